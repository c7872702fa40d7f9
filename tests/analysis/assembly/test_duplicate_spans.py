"""One model call that several spans tell of counts once; calls that are only alike count each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from overrun.analysis.assembly import duplicate_spans
from tests.analysis.assembly.assembling import assembled, counted, root
from tests.collector.oracle_build import ERROR, MS, SERVER, Made, chat

OUTER, INNER = "openinference.instrumentation.langchain", "openinference.instrumentation.openai"


def twin(id: int, start: float, end: float, **more: Any) -> Made:
    """The call as the client library's own instrumentation saw it, alone in trace 2."""
    return chat(id, start, end, 0, **{"ttft": 50, "trace": 2, "scope": INNER, **more})


def test_a_call_reported_again_in_a_trace_of_its_own_is_one_call_of_the_request() -> None:
    requests, calls = assembled(root(1000), chat(2, 100, 700, scope=OUTER), twin(9, 110, 695))
    assert len(requests) == 1
    assert [(c["span_id"], c["trace_lo"], c["ttft_ns"]) for c in calls] == [(9, 1, 50_000_000)]
    # The first token that only the inner one saw is the request's.
    assert requests[0]["ttft_ns"] == 160_000_000


@pytest.mark.parametrize(
    "other",
    [
        {"scope": OUTER},  # one instrumentation reports a call once: two judges, best of two
        {"out": 11},  # another answer
        {"service": "other"},  # another process
    ],
)
def test_calls_that_are_only_alike_are_two_calls(other: dict[str, Any]) -> None:
    assert counted(root(1000), chat(2, 100, 700, scope=OUTER), twin(9, 110, 695, **other)) == (2, 2)


@pytest.mark.parametrize(("start", "end"), [(600, 1300), (750, 1000), (1200, 1210)])
def test_calls_at_other_times_are_two_calls(start: float, end: float) -> None:
    assert counted(root(1000), chat(2, 100, 700, scope=OUTER), twin(9, start, end))[1] == 2


def test_a_failed_call_reported_twice_failed_once() -> None:
    failed = {"out": None, "status": ERROR}
    requests, calls = assembled(
        root(1000), chat(2, 100, 110, scope=OUTER, **failed), twin(9, 101, 109, ttft=None, **failed)
    )
    assert (len(requests), [c["error"] for c in calls]) == (1, [True])
    # A failure and a success that tells no tokens are not the same.
    assert (
        counted(
            root(1000),
            chat(2, 100, 110, scope=OUTER, **failed),
            twin(9, 101, 109, ttft=None, out=None),
        )[1]
        == 2
    )


def twins(*offsets: float, out: int | None = None) -> list[Made]:
    """A call per offset that LangChain tells of, and the client library alone in a trace of its own; at the end there is no count."""
    return [
        made
        for k, at in enumerate(offsets)
        for made in (
            chat(20 + k, 100 + at, 700 + at, scope=OUTER, out=out),
            twin(40 + k, 110 + at, 695 + at, out=None, trace=10 + k),
        )
    ]


@pytest.mark.parametrize("out", [None, 10])
def test_a_call_that_nobody_counted_is_told_twice_if_both_began_and_ended_together(
    out: int | None,
) -> None:
    [request], [call] = assembled(root(1000), *twins(0, out=out))
    assert (call["ttft_client_ns"], call["output_tokens"], request["ttft_ns"]) == (
        pytest.approx(60e6, abs=10e6),
        out,
        160e6,
    )
    assert counted(root(1000), *twins(0, 3, 200, out=out)) == (1, 3)


@pytest.mark.parametrize(("start", "end"), [(110, 600), (200, 695), (50, 695), (110, 800)])
def test_calls_that_nobody_counted_and_that_only_overlap_are_two(start: float, end: float) -> None:
    assert (
        counted(
            root(1000), chat(2, 100, 700, scope=OUTER, out=None), twin(9, start, end, out=None)
        )[1]
        == 2
    )


def test_calls_that_nobody_counted_are_two_where_each_belongs_to_a_request() -> None:
    other = [
        Made(8, "POST /other", 0, 1000, kind=SERVER, trace=2),
        chat(9, 110, 695, 8, ttft=50, out=None, trace=2, scope=INNER),
    ]
    assert counted(root(1000), chat(2, 100, 700, scope=OUTER, out=None), *other)[1] == 2


@pytest.mark.parametrize("out", [None, 10])
@pytest.mark.parametrize("lasts", [4, 20, 60])
def test_a_short_call_is_one_though_what_is_around_it_takes_longer(
    lasts: float, out: int | None
) -> None:
    made = [
        chat(2, 100, 130 + lasts, scope=OUTER, out=None),
        twin(9, 112, 112 + lasts, ttft=2, out=out),
    ]
    assert counted(root(1000), *made) == (1, 1)


@pytest.mark.parametrize("out", [None, 10])
def test_parallel_calls_go_to_the_reports_that_fit_them_best(out: int | None) -> None:
    # Each inner span fits into the outer ones of all the calls that began before it; its own is the one just around it.
    made = [
        made
        for k in range(5)
        for made in (
            chat(
                20 + k,
                100 + 4 * k,
                180 + 9 * k,
                scope=OUTER,
                out=out,
                attributes={"gen_ai.request.max_tokens": k + 1},
            ),
            twin(
                40 + k,
                101 + 4 * k,
                178 + 9 * k,
                out=out,
                trace=10 + k,
                attributes={"gen_ai.response.id": f"chatcmpl-{k + 1}"},
            ),
        )
    ]
    [request], calls = assembled(root(1000), *made)
    assert request["llm_calls"] == 5
    assert [(c["max_tokens"], c["response_id"]) for c in calls] == [
        (k, f"chatcmpl-{k}") for k in range(1, 6)
    ]


def test_parallel_steps_keep_the_calls_that_they_hold_although_the_others_fit_better() -> None:
    # Each framework's span (12 and 22) holds its client's (13, 23): 13 began and ended nearer to 22.
    _, calls = assembled(
        root(1000),
        chat(12, 100, 441, scope=OUTER),
        chat(13, 204, 439, parent=12, scope=INNER),
        chat(22, 209, 441, scope=OUTER),
        chat(23, 296, 441, parent=22, scope=INNER),
    )
    assert [c["span_id"] for c in calls] == [13, 23]


@pytest.mark.parametrize(("inner", "failed"), [({"status": ERROR}, True), ({}, False)])
def test_a_call_whose_only_report_inside_failed_has_failed_if_nothing_came_of_it(
    inner: dict[str, Any], failed: bool
) -> None:
    _, [call] = assembled(
        root(1000),
        chat(2, 100, 150, out=None, scope=OUTER),
        chat(3, 101, 149, parent=2, out=None, scope=OUTER, **inner),
    )
    assert call["error"] == failed
    # One that answered was tried again.
    _, [call] = assembled(
        root(1000),
        chat(2, 100, 150, scope=OUTER),
        chat(3, 101, 149, parent=2, out=None, scope=OUTER, **inner),
    )
    assert not call["error"]


def test_a_wrapper_may_end_before_the_stream_that_it_read_is_closed() -> None:
    assert counted(
        root(1000), chat(2, 100, 290, scope=OUTER), chat(9, 122, 311, ttft=60, scope=INNER)
    ) == (1, 1)
    assert counted(
        root(1000),
        chat(2, 100, 290, scope=OUTER, out=None),
        chat(9, 122, 311, ttft=60, scope=INNER, out=None),
    ) == (1, 1)


def test_a_call_without_a_count_is_one_beside_a_parent_that_is_not_here() -> None:
    [request], [call] = assembled(
        chat(2, 100, 700, 77, scope=OUTER, out=None),
        chat(9, 110, 690, 77, ttft=60, scope=INNER, out=None),
    )
    assert (request["llm_calls"], call["ttft_client_ns"]) == (1, 70_000_000)


def test_a_framework_may_tell_the_alias_of_a_model_where_both_count() -> None:
    alias = {"attributes": {"gen_ai.request.model": "alias"}}
    assert counted(root(1000), chat(2, 100, 700, scope=OUTER, **alias), twin(9, 110, 695)) == (1, 1)
    assert counted(
        root(1000), chat(2, 100, 700, scope=OUTER, out=None, **alias), twin(9, 110, 695)
    ) == (2, 2)


def test_a_report_without_a_count_joins_two_that_have_it() -> None:
    assert counted(
        root(1000),
        chat(2, 100, 700, scope=OUTER),
        twin(9, 110, 695),
        chat(8, 98, 704, scope="traceloop", out=None),
    ) == (1, 1)


def test_equal_calls_of_two_requests_at_one_time_stay_with_their_requests() -> None:
    made = [
        made
        for k in (1, 2)
        for made in (
            root(1000, trace=k),
            chat(2, 100 + k, 700 + k, scope=OUTER, trace=k),
            chat(9, 104 - k, 704 - k, scope=INNER, trace=k),
        )
    ]
    requests, calls = assembled(*made)
    assert [(r["trace_lo"], r["llm_calls"]) for r in requests] == [(1, 1), (2, 1)]
    assert len(calls) == 2


def side_by_side(*offsets: float, step: int = 1, **inner: Any) -> list[Made]:
    """Calls of a graph's step and, beside the step, what the client library tells of them without a count."""
    told = {"scope": INNER, "out": None, "ttft": 50} | inner
    return [
        Made(2, "step", 50, 950, 1),
        *(
            made
            for k, at in enumerate(offsets)
            for made in (
                chat(20 + k, 100 + at, 700 + at, 2, scope=OUTER, out=None),
                chat(40 + k, 105 + at, 695 + at, step, **told),
            )
        ),
    ]


def test_a_call_that_nobody_counted_is_one_where_the_client_tells_of_it_beside_the_step_that_made_it() -> (
    None
):
    _, [call] = assembled(root(1000), *side_by_side(0))
    assert call["ttft_client_ns"] == 55_000_000
    assert counted(root(1000), *side_by_side(0, 2, 4)) == (1, 3)


@pytest.mark.parametrize(
    "inner", [{"scope": OUTER}, {"attributes": {"gen_ai.request.model": "other"}}, {"step": 3}]
)
def test_calls_of_one_request_that_nobody_counted_are_two_by_scope_model_or_step(
    inner: dict[str, Any],
) -> None:
    assert counted(root(1000), Made(3, "other step", 50, 950, 1), *side_by_side(0, **inner)) == (
        1,
        2,
    )


def test_calls_with_other_response_ids_are_two_calls() -> None:
    one, other = (
        {"attributes": {"gen_ai.response.id": name}} for name in ("chatcmpl-1", "chatcmpl-2")
    )
    assert counted(
        root(1000), chat(2, 100, 700, scope=OUTER, **one), twin(9, 110, 695, **other)
    ) == (2, 2)
    assert counted(root(1000), chat(2, 100, 700, scope=OUTER, **one), twin(9, 110, 695)) == (1, 1)


def test_one_response_id_tells_a_call_whose_tokens_nobody_asked_for() -> None:
    same = {"attributes": {"gen_ai.response.id": "chatcmpl-1"}}
    assert counted(
        root(1000),
        chat(2, 100, 700, out=None, **same),
        twin(9, 150, 650, service="gateway", **same),
    ) == (1, 1)


def test_one_response_id_for_every_answer_names_no_call() -> None:
    """As mock providers give it: of calls at a time, alone, in one request, and told of by two instrumentations."""
    same = {"attributes": {"gen_ai.response.id": "chatcmpl-mock"}}
    alone = [
        twin(9, 10.0 * i, 10.0 * i + 100, trace=i, out=10 + i % 3, **same) for i in range(2, 42)
    ]
    assert counted(*alone) == (40, 40)
    assert counted(
        root(1000), *(chat(i, 10.0 * i, 10.0 * i + 300, **same) for i in range(2, 12))
    ) == (1, 10)
    twice = [
        chat(
            1_000 + i,
            10.0 * i - 2,
            10.0 * i + 103,
            0,
            trace=100 + i,
            out=10 + i,
            scope=OUTER,
            **same,
        )
        for i in range(2, 12)
    ]
    assert counted(
        *twice,
        *(twin(9, 10.0 * i, 10.0 * i + 100, trace=i, out=10 + i, **same) for i in range(2, 12)),
    ) == (10, 10)


def test_three_reports_of_one_call_are_one_call() -> None:
    assert counted(
        root(1000),
        chat(2, 100, 700, scope=OUTER),
        twin(9, 110, 695),
        twin(8, 112, 690, trace=3, scope="traceloop"),
    ) == (1, 1)


def test_each_report_has_one_partner() -> None:
    made = [
        root(1000),
        chat(2, 100, 700, scope=OUTER),
        chat(3, 105, 705, scope=OUTER),
        twin(8, 110, 695),
        twin(9, 112, 700, trace=3),
    ]
    assert counted(*made) == (1, 2)


def test_reports_beside_each_other_in_one_trace_are_one_call() -> None:
    assert counted(root(1000), chat(2, 100, 700, scope=OUTER), chat(9, 110, 695, scope=INNER)) == (
        1,
        1,
    )


def test_the_longer_report_takes_the_shorter_ones_place_if_it_stands_alone() -> None:
    requests, calls = assembled(
        root(1000),
        chat(2, 110, 690, scope=INNER, ttft=50),
        twin(9, 100, 700, scope=OUTER, ttft=None),
    )
    assert (len(requests), len(calls)) == (1, 1)
    assert (requests[0]["trace_lo"], calls[0]["span_id"]) == (1, 2)


def test_calls_within_two_requests_stay_apart() -> None:
    other = Made(7, "POST /chat", 90, 800, kind=2, trace=2)
    assert counted(
        root(1000),
        chat(2, 100, 700, scope=OUTER),
        other,
        chat(9, 110, 695, 7, trace=2, scope=INNER),
    ) == (2, 2)


def test_one_response_id_at_one_time_is_one_call_and_later_it_is_another() -> None:
    same = {"attributes": {"gen_ai.response.id": "chatcmpl-1"}}
    gateway = {
        "service": "gateway",
        "scope": "litellm",
        "out": 12,
        **same,
    }  # counts tokens in its own way
    assert counted(root(1000), chat(2, 100, 700, **same), twin(9, 150, 650, **gateway)) == (1, 1)
    # By another clock it may be: as long, and seconds away at most. One that is given again is quick.
    assert counted(root(1000), chat(2, 100, 700, **same), twin(9, 2150, 2650, **gateway)) == (1, 1)
    assert counted(root(1000), chat(2, 100, 700, **same), twin(9, 2150, 2180, **gateway)) == (2, 2)
    assert counted(root(1000), chat(2, 100, 700, **same), twin(9, 12150, 12650, **gateway)) == (
        2,
        2,
    )
    assert counted(root(1000), chat(2, 100, 700, **same), twin(9, 2150, 2650, **same)) == (2, 2)


FIRST_TOKEN = {"events": [(320, "First Token Stream Event")]}


def test_what_only_the_client_saw_of_a_gateways_call_is_the_calls() -> None:
    client = chat(
        2,
        10,
        990,
        ttft=300,
        attributes={"gen_ai.response.id": "a", "gen_ai.response.finish_reasons": ["stop"]},
    )
    _, [call] = assembled(
        root(1000),
        client,
        chat(
            3,
            30,
            960,
            2,
            service="gateway",
            scope="litellm",
            attributes={"gen_ai.usage.cache_read.input_tokens": 40},
        ),
    )
    assert (
        call["span_id"],
        call["ttft_ns"],
        call["response_id"],
        call["finish_reason"],
        call["cached_tokens"],
    ) == (3, 280_000_000, "a", "stop", 40)
    assert call["tpot_ns"] == (930 - 280) * 1e6 / 9


def test_what_only_the_inner_report_saw_is_the_calls_although_it_counted_no_tokens() -> None:
    _, [call] = assembled(
        root(1000),
        chat(2, 10, 990, scope=OUTER),
        chat(3, 20, 980, 2, out=None, scope=INNER, **FIRST_TOKEN),
    )
    assert (call["span_id"], call["ttft_ns"], call["ttft_source"]) == (2, 310_000_000, 2)


def test_it_goes_through_three_reports() -> None:
    requests, [call] = assembled(
        root(1000), chat(2, 10, 990, ttft=300), chat(3, 20, 980, 2, out=None), chat(4, 30, 970, 3)
    )
    assert (call["span_id"], call["ttft_ns"], requests[0]["ttft_ns"]) == (
        4,
        280_000_000,
        310_000_000,
    )


@pytest.mark.parametrize(
    "inner",
    [
        [chat(3, 500, 900, 2)],  # less than half of the time: something else was done beside it
        [chat(3, 10, 500, 2), chat(4, 500, 990, 2)],  # two calls
        [chat(3, 400, 990, 2)],  # the first token came before it began
    ],
)
def test_a_first_token_of_something_else_is_not_shared(inner: list[Made]) -> None:
    _, calls = assembled(root(1000), chat(2, 10, 990, ttft=300), *inner)
    assert [c["ttft_ns"] for c in calls] == [None] * len(inner)


def test_a_routers_call_that_was_tried_at_two_deployments_is_one_call() -> None:
    around = chat(2, 10, 990, attributes={"gen_ai.operation.name": "acompletion"})
    requests, [call] = assembled(
        root(1000), around, chat(3, 20, 300, 2, out=None, status=ERROR), chat(4, 310, 980, 2)
    )
    assert (call["span_id"], call["attempts"], call["attempts_source"], call["wasted_ns"]) == (
        4,
        2,
        "span",
        290_000_000,
    )
    assert (requests[0]["llm_calls"], requests[0]["attempts"]) == (1, 2)


GATEWAY = {"service": "gateway", "attributes": {"gen_ai.response.id": "chatcmpl-1"}}


def through_a_gateway(*, client: int = 2, until: float = 690) -> list[Made]:
    """A client's call, what the gateway did for it in trace 2, and the engine's request in trace 3: one response id in all of them."""
    return [
        chat(
            2,
            100,
            700,
            1 if client == 2 else 0,
            attributes={"gen_ai.response.id": "chatcmpl-1"},
            trace=1,
        ),
        Made(
            11, "POST /v1/chat/completions", 110, until, 0, kind=SERVER, trace=2, service="gateway"
        ),
        Made(12, "auth", 110, 140, 11, trace=2, service="gateway"),
        chat(13, 150, 680, 11, trace=2, **GATEWAY),
        Made(
            21,
            "llm_request",
            160,
            670,
            0,
            kind=SERVER,
            trace=3,
            service="vllm",
            attributes={
                "gen_ai.latency.e2e": 0.51,
                "gen_ai.latency.time_in_queue": 0.1,
                "gen_ai.request.id": "chatcmpl-1",
                "gen_ai.usage.completion_tokens": 10,
            },
        ),
    ]


@pytest.mark.parametrize("within_a_request", [True, False])
@pytest.mark.parametrize("backwards", [True, False])
def test_what_a_gateway_did_in_a_trace_of_its_own_is_a_part_of_its_clients_call(
    within_a_request: bool, backwards: bool
) -> None:
    made = through_a_gateway(client=2 if within_a_request else 0)
    made = [root(1000), *made] if within_a_request else made
    requests, calls = assembled(*(made[::-1] if backwards else made))
    assert [(c["span_id"], c["engine_span_id"], c["trace_lo"]) for c in calls] == [(13, 21, 1)]
    assert [(r["trace_lo"], r["llm_calls"], r["e2e_ns"]) for r in requests] == [
        (1, 1, (1000 if within_a_request else 600) * MS)
    ]


def test_a_gateways_request_that_did_more_than_the_call_is_a_request_of_its_own() -> None:
    assert counted(root(1000), *through_a_gateway(until=1500))[0] == 2


def test_a_call_that_one_scope_tells_of_twice_from_one_start_on_is_what_it_told_later() -> None:
    made = [
        chat(id, 0, end, out=out, trace=id, scope="litellm", attributes={"gen_ai.response.id": "a"})
        for id, end, out in ((2, 500, 19), (3, 520, 9))
    ]
    assert counted(*made) == (1, 1)
    assert [call["output_tokens"] for call in assembled(*made)[1]] == [9]


@pytest.mark.parametrize(("parents", "calls"), [((1, 3), 1), ((3, 1), 1), ((1, 1), 2), ((2, 3), 2)])
def test_a_call_that_one_scope_tells_of_in_a_step_and_beside_it_is_one(
    parents: tuple[int, int], calls: int
) -> None:
    steps = [Made(id, "step", 10, 900, parent) for id, parent in ((2, 1), (3, 1))]
    made = [
        chat(id, 100 + late, 800 + late, parent, scope="langchain")
        for id, late, parent in ((4, 0, parents[0]), (5, 0.4, parents[1]))
    ]
    assert counted(root(1000), *steps, *made) == (1, calls)


def test_a_call_within_a_call_of_its_scope_is_no_repeat_of_it() -> None:
    outer, inner = (
        chat(4, 100, 800, 1, out=None, scope="llama"),
        chat(5, 100.2, 799.9, 4, out=None, ttft=50, scope="llama"),
    )
    assert [
        (call["span_id"], call["ttft_ns"]) for call in assembled(root(1000), outer, inner)[1]
    ] == [(4, 50_200_000)]


def test_a_wrapper_of_a_client_in_a_frameworks_scope_tells_of_the_frameworks_calls() -> None:
    handler = chat(4, 100, 800, scope="langfuse-sdk")
    wrapper = replace(twin(5, 110, 790, scope="langfuse-sdk"), name="OpenAI-generation")
    assert counted(root(1000), handler, wrapper) == (1, 1)
    assert counted(root(1000), handler, replace(wrapper, name="ChatOpenAI")) == (2, 2)


def test_a_model_is_one_whose_ever_it_is_and_by_whatever_version_of_its_interface() -> None:
    names = [
        "us.anthropic.claude-3-haiku-20240307-v1:0",
        "claude-3-haiku-20240307",
        "openai/gpt-4.1",
        "gpt-4.1",
        "gpt-4.1-mini",
        "qwen2.5",
        None,
    ]
    one, again, other, bare, mini, qwen, none = duplicate_spans.models(
        pa.chunked_array([names])
    ).tolist()
    assert one == again
    assert other == bare
    assert len({one, other, mini, qwen, none}) == 5
    assert none == -1
