"""What is known of a call's attempts comes from whatever tells of them; what nobody tells of is unknown, not one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.assembly.assembling import NOTHING, assembled, fact, of_litellm, root, told
from tests.collector.oracle_build import CLIENT, ERROR, MS, SERVER, Made, chat


def sdk(
    id: int,
    start: float,
    end: float,
    *,
    error: str | None = None,
    out: int | None = 5,
    step: str = "doGenerate",
    parent: int = 2,
) -> Made:
    """One attempt as the Vercel AI SDK tells it."""
    return chat(
        id,
        start,
        end,
        parent,
        out=None if error else out,
        status=ERROR if error else 0,
        attributes={"ai.operationId": f"ai.generateText.{step}"}
        | ({"error.type": error} if error else {}),
    )


OUTER = Made(
    2,
    "ai.generateText",
    50,
    950,
    1,
    attributes={"ai.operationId": "ai.generateText", "gen_ai.usage.output_tokens": 5},
)


def test_a_failed_attempt_and_the_one_after_it_are_one_call() -> None:
    requests, calls = assembled(
        root(1000), OUTER, sdk(3, 100, 110, error="RateLimit"), sdk(4, 300, 900)
    )
    assert [fact(c) for c in calls] == [(2, "span", 200.0, 0, "error")]
    assert (calls[0]["span_id"], calls[0]["error"]) == (4, False)
    # The pause before the second attempt is waiting for a turn.
    assert (
        requests[0]["llm_calls"],
        requests[0]["attempts"],
        requests[0]["queue_ns"],
        requests[0]["other_ns"],
    ) == (1, 2, 190 * MS, 200 * MS)


def test_attempts_that_all_failed_are_one_failed_call() -> None:
    _, calls = assembled(
        root(1000),
        OUTER,
        sdk(3, 100, 110, error="Timeout"),
        sdk(4, 300, 310, error="Timeout"),
        sdk(5, 600, 610, error="Timeout"),
    )
    assert [(*fact(c), c["error"]) for c in calls] == [(3, "span", 500.0, 0, "slow", True)]


def test_the_steps_of_a_tool_loop_are_calls_of_one_attempt_each() -> None:
    assert (
        told(root(1000), OUTER, sdk(3, 100, 200), sdk(4, 300, 900))
        == [(1, "span", 0.0, 0, None)] * 2
    )


def test_a_failed_call_beside_another_is_no_attempt_of_it_unless_their_parent_says_so() -> None:
    failed = chat(2, 100, 110, out=None, status=ERROR)
    assert told(root(1000), failed, chat(3, 300, 900)) == [NOTHING] * 2


@pytest.mark.parametrize(
    "first",
    [
        [chat(3, 100, 200, 2, out=None, status=ERROR)],
        [
            chat(3, 100, 200, 2, out=None, status=ERROR),
            chat(4, 110, 190, 3, out=None, status=ERROR, scope="client"),
        ],
        [
            chat(3, 100, 200, 2, out=None, status=ERROR),
            chat(4, 110, 190, 3, out=7, status=ERROR, scope="client"),
        ],
    ],
)
def test_attempts_that_several_instrumentations_tell_of_within_each_other_are_one_call(
    first: list[Made],
) -> None:
    """A framework's call around a router's, one per attempt, each around its client's (DSPy, LiteLLM and OpenAI instrumented at once)."""
    again = chat(5, 400, 890, 2, out=5, scope="router"), chat(6, 410, 880, 5, out=5, scope="client")
    requests, calls = assembled(
        root(1000), chat(2, 50, 900, 1, out=None, scope="framework"), *first, *again
    )
    [call] = calls
    assert (
        call["span_id"],
        call["error"],
        call["attempts"],
        call["attempts_source"],
        call["retry_cause"],
    ) == (6, False, 2, "span", "error")
    assert requests[0]["queue_ns"] == 200 * MS


def http(id: int, start: float, end: float, status: int, parent: int = 2) -> Made:
    return Made(
        id,
        "POST",
        start,
        end,
        parent,
        kind=CLIENT,
        attributes={"http.request.method": "POST", "http.response.status_code": status},
    )


@pytest.mark.parametrize(
    ("statuses", "wanted"),
    [
        ([200], (1, "http", 0.0, 0, None)),
        ([429, 200], (2, "http", 100.0, 0, "error")),
        ([504, 503, 200], (3, "http", 200.0, 0, "slow")),
        ([429, 429], (2, "http", 100.0, 0, "error")),
        ([400], (1, "http", 0.0, 0, None)),
    ],
)
def test_http_requests_inside_a_call_tell_of_its_attempts(
    statuses: list[int], wanted: tuple[Any, ...]
) -> None:
    tries = [
        http(10 + i, 110 + 100 * i, 120 + 100 * i, status) for i, status in enumerate(statuses)
    ]
    assert told(root(1000), chat(2, 100, 900), *tries) == [wanted]


def test_a_proxys_own_count_is_taken_from_its_server_span() -> None:
    proxy = Made(
        5,
        "POST /v1/chat/completions",
        100,
        900,
        1,
        kind=SERVER,
        attributes={"litellm.deployment.attempt": 3},
    )
    assert told(root(1000), proxy, chat(6, 150, 850, 5)) == [(3, "event", None, None, None)]


def proxied(id: int, start: float, end: float, *, error: str | None = None) -> Made:
    """One attempt of LiteLLM's proxy, a span of its own under the server's."""
    return chat(
        id,
        start,
        end,
        5,
        out=None if error else 10,
        status=ERROR if error else 0,
        attributes={"error.type": error} if error else {},
    )


@pytest.mark.parametrize(
    ("count", "wanted"), [(2, (2, "span", 300.0, 0, "error")), (3, (3, "span", 300.0, 0, "error"))]
)
def test_what_a_proxy_counted_and_showed_are_the_attempts_of_one_call(
    count: int, wanted: tuple[Any, ...]
) -> None:
    proxy = Made(
        5,
        "POST /v1/chat/completions",
        100,
        900,
        1,
        kind=SERVER,
        attributes={"litellm.deployment.attempt": count},
    )
    requests, calls = assembled(
        root(1000), proxy, proxied(6, 150, 180, error="RateLimitError"), proxied(7, 450, 850)
    )
    assert [fact(c) for c in calls] == [wanted]
    assert (requests[0]["llm_calls"], requests[0]["attempts"], requests[0]["queue_ns"]) == (
        1,
        count,
        270 * MS,
    )


def test_a_proxys_count_is_nobodys_where_it_made_several_calls() -> None:
    proxy = Made(
        5, "POST /mcp", 100, 900, 1, kind=SERVER, attributes={"litellm.deployment.attempt": 2}
    )
    assert told(root(1000), proxy, proxied(6, 150, 300), proxied(7, 450, 850)) == [NOTHING] * 2


def test_resends_are_one_attempt_more() -> None:
    sent = Made(
        10,
        "POST",
        110,
        890,
        2,
        kind=CLIENT,
        attributes={"rpc.system": "grpc", "http.request.resend_count": 2},
    )
    assert told(root(1000), chat(2, 100, 900), sent)[0][0] in (1, 3)


def engine(
    id: int, start: float, end: float, *, out: int, parent: int = 2, ttft: float = 20
) -> Made:
    return Made(
        id,
        "llm_request",
        start,
        end,
        parent,
        kind=SERVER,
        service="vllm",
        scope="vllm.tracing",
        attributes={
            "gen_ai.latency.e2e": (end - start) / 1000,
            "gen_ai.latency.time_to_first_token": ttft / 1000,
            "gen_ai.usage.completion_tokens": out,
        },
    )


def test_engine_requests_one_after_the_other_were_attempts_that_the_client_gave_up() -> None:
    assert told(
        root(1000),
        chat(2, 100, 900, out=30),
        engine(5, 110, 400, out=17),
        engine(6, 500, 890, out=30),
    ) == [(2, "engine", 390.0, 17, "slow")]


def test_engine_requests_at_one_time_are_choices_and_a_single_token_prepares_a_cache() -> None:
    assert told(
        root(1000),
        chat(2, 100, 900, out=30),
        engine(5, 110, 880, out=30),
        engine(6, 110, 890, out=30),
    ) == [NOTHING]
    assert told(
        root(1000),
        chat(2, 100, 900, out=30),
        engine(5, 110, 200, out=1),
        engine(6, 210, 890, out=30),
    ) == [NOTHING]


@pytest.mark.parametrize(
    ("ttft", "wanted"), [(420, (None, "hidden", 320.0, None, None)), (190, NOTHING), (250, NOTHING)]
)
def test_retries_that_a_client_hides_show_in_what_the_engine_did_not_take(
    ttft: float, wanted: tuple[Any, ...]
) -> None:
    """Two refusals before the engine's 100 ms; 90 or 150 ms more are the network's and a gateway's."""
    assert told(
        root(1000), chat(2, 100, 900, ttft=ttft), engine(5, 880 - 500, 880, out=10, ttft=100)
    ) == [wanted]


def test_attempts_of_a_request_are_unknown_if_one_of_its_calls_hides_its_own() -> None:
    requests, _ = assembled(
        root(1000), chat(2, 100, 400), http(10, 110, 390, 200), chat(3, 500, 900)
    )
    assert requests[0]["attempts"] is None
    requests, _ = assembled(
        root(1000),
        chat(2, 100, 400),
        http(10, 110, 390, 200),
        chat(3, 500, 900),
        http(11, 510, 890, 200, parent=3),
    )
    assert requests[0]["attempts"] == 2


def retried(count: int) -> dict[str, Any]:
    return {
        "attributes": {
            "hidden_params": f'{{"additional_headers": {{"x-litellm-attempted-retries": {count}}}}}'
        }
    }


def test_a_call_that_says_it_is_no_first_attempt_takes_the_last_failed_one_before_it() -> None:
    made = [
        root(1000),
        of_litellm(2, 0, 100, 1, error="RateLimit", asked="a"),
        of_litellm(3, 10, 90, 1, error="Timeout", asked="b"),
        of_litellm(4, 20, 90, 1, asked="c", **retried(0)),
        of_litellm(5, 300, 900, 1, asked="d", **retried(2)),
        of_litellm(6, 310, 900, 1, asked="e", **retried(1)),
    ]
    assert sorted(told(*made)) == [
        (1, "event", 0.0, 0, None),
        (2, "span", 310.0, 0, "error"),
        (3, "span", 290.0, 0, "slow"),
    ]


def test_what_another_sender_calls_a_call_type_says_nothing() -> None:
    requests, calls = assembled(
        root(1000),
        Made(
            2,
            "dial",
            10,
            300,
            1,
            attributes={"call_type": "acompletion", "service": "voice", "cache_key": "k"},
        ),
    )
    assert (calls, requests[0]["queue_ns"], requests[0]["gateway_ns"]) == ([], 0, 0)
