"""Engine spans are under the client calls that they served."""

from __future__ import annotations

import pytest

from tests.analysis.assembly.assembling import CLIENT_ID, ENGINE, assembled, root, stages_ms
from tests.collector.oracle_build import MS, SERVER, Made, chat


@pytest.mark.parametrize(
    ("trace", "parent"),
    [(1, 2), (1, 1), (2, 0)],
    ids=["child of the call", "sibling of the call", "a trace of its own, same response id"],
)
def test_an_engine_span_splits_its_clients_call(trace: int, parent: int) -> None:
    engine = Made(
        9,
        "llm_request",
        250,
        850,
        parent,
        SERVER,
        ENGINE,
        trace=trace,
        service="vllm",
        scope="vllm.tracing.otel",
    )
    requests, calls = assembled(
        root(1000), chat(2, 200, 900, ttft=310, attributes=CLIENT_ID), engine
    )
    assert (len(requests), len(calls)) == (1, 1)
    # Front end 50 = 250 - 100 - 100 before the queue; the client's 50 + 50 around the engine are network.
    assert stages_ms(requests[0]) == {
        "other": 350,
        "queue": 100,
        "prefill": 100,
        "decode": 350,
        "network": 100,
    }
    call = calls[0]
    assert (
        call["ttft_client_ns"],
        call["ttft_engine_ns"],
        call["ttft_ns"],
        call["ttft_source"],
    ) == (310 * MS, 250 * MS, 310 * MS, 1)
    assert (call["queue_ns"], call["prefill_ns"], call["decode_ns"], call["engine_e2e_ns"]) == (
        100 * MS,
        100 * MS,
        350 * MS,
        600 * MS,
    )
    assert (call["span_id"], call["engine_span_id"], call["engine_instance"]) == (2, 9, "vllm-1")


def test_two_calls_with_engines_of_their_own_are_kept_apart() -> None:
    made = [root(1000)]
    for i, start in enumerate((100, 500)):
        made.append(chat(2 + i, start, start + 300, attributes={"gen_ai.response.id": f"r{i}"}))
        made.append(
            Made(
                10 + i,
                "llm_request",
                start + 10,
                start + 290,
                0,
                SERVER,
                ENGINE | {"gen_ai.request.id": f"r{i}"},
                trace=5 + i,
                service="vllm",
            )
        )
    requests, calls = assembled(*made)
    assert (len(requests), len(calls)) == (1, 2)
    assert [c["engine_span_id"] for c in calls] == [10, 11]
    assert requests[0]["network_ns"] == 40 * MS


def test_an_engine_behind_dynamos_front_end_splits_its_call() -> None:
    told = {
        "gen_ai.latency.e2e": 0.8,
        "gen_ai.latency.time_to_first_token": 0.4,
        "gen_ai.latency.time_in_queue": 0.3,
        "gen_ai.latency.time_in_model_prefill": 0.1,
        "gen_ai.latency.time_in_model_decode": 0.4,
        "gen_ai.usage.completion_tokens": 20,
    }
    ended = {"request.outcome": "success", "request_id": "df1e046a-5b41-458a-8730-68e596c76c37"}
    front = Made(
        1,
        "http-request",
        0,
        1000,
        attributes={
            **ended,
            "model": "m",
            "input_tokens": "9",
            "output_tokens": "20",
            "ttft_ms": "450",
            "avg_itl_ms": "21.05",
        },
        scope="front",
    )
    requests, calls = assembled(
        front,
        Made(2, "kv_router.select_worker", 10, 30, 1, scope="front"),
        Made(3, "kv_router.route_request", 30, 990, 1, attributes=ended, scope="front"),
        Made(4, "handle_payload", 50, 980, 3, SERVER, service="worker"),
        Made(5, "llm_request", 100, 900, 4, SERVER, told, service="worker", scope="vllm"),
    )
    [request], [call] = requests, calls
    assert (call["response_id"], call["output_tokens"], call["model"]) == (
        "chatcmpl-df1e046a-5b41-458a-8730-68e596c76c37",
        20,
        "m",
    )
    found = stages_ms(request)
    assert (found["queue"], found["prefill"], found["decode"], sum(found.values())) == (
        320,
        100,
        400,
        1000,
    )


@pytest.mark.parametrize("lost", ["the answered call's engine", "the first attempt's call"])
def test_an_engine_that_names_another_answer_is_not_the_next_calls_where_a_span_was_lost(
    lost: str,
) -> None:
    def engine(id: int, start: float, end: float, name: str) -> Made:
        return Made(
            id,
            "llm_request",
            start,
            end,
            1,
            SERVER,
            {"gen_ai.latency.time_in_queue": 0.3, "gen_ai.request.id": name},
            service="vllm",
            scope="vllm",
        )

    given_up = chat(2, 100, 550, status=2, attributes={"error.type": "openai.APITimeoutError"})
    answer, first, second = (
        chat(3, 550, 14_000, attributes={"gen_ai.response.id": "two"}),
        engine(4, 101, 12_000, "one"),
        engine(5, 551, 13_998, "two"),
    )
    _, calls = assembled(
        root(15_000), answer, first, *([second] if lost.startswith("the first") else [given_up])
    )
    begun, last = sorted(calls, key=lambda call: call["start_ns"])
    assert begun["engine_e2e_ns"] == 11_899e6
    assert last["engine_e2e_ns"] == (13_447e6 if lost.startswith("the first") else None)


@pytest.mark.parametrize("writes_until", [2_000, 12_000])
def test_what_an_engine_writes_for_a_call_that_was_given_up_is_not_the_next_calls(
    writes_until: float,
) -> None:
    """Asked again after 450 ms: where the engine works on the first attempt for ten seconds, a twentieth of that is more than lies between the two."""

    def engine(id: int, start: float, end: float, queue_s: float) -> Made:
        return Made(
            id,
            "llm_request",
            start,
            end,
            1,
            SERVER,
            {"gen_ai.latency.time_in_queue": queue_s},
            service="vllm",
            scope="vllm",
        )

    given_up = chat(2, 100, 550, status=2, attributes={"error.type": "openai.APITimeoutError"})
    _, calls = assembled(
        root(15_000),
        given_up,
        chat(3, 550, 14_000),
        engine(4, 101, writes_until, 0.3),
        engine(5, 551, 13_998, 0.7),
    )
    first, second = sorted(calls, key=lambda call: call["start_ns"])
    assert (first["engine_e2e_ns"], first["queue_ns"]) == ((writes_until - 101) * 1e6, 300e6)
    assert (second["engine_e2e_ns"], second["queue_ns"]) == (13_447e6, 700e6)
