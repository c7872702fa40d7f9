"""Whose time it was: the critical path of joined spans."""

from __future__ import annotations

import pytest

from tests.analysis.assembly.assembling import assembled, proxy, request_of, root, stages_ms
from tests.collector.oracle_build import CLIENT, ERROR, MS, SERVER, Made, chat


def test_what_a_call_spends_around_the_gateway_that_makes_it_is_the_network() -> None:
    gateway = Made(
        3, "POST /v1/chat/completions", 150, 850, parent=2, kind=SERVER, service="gateway"
    )
    request = request_of(
        root(1000),
        chat(2, 100, 900),
        gateway,
        chat(4, 200, 800, parent=3, ttft=100, service="gateway"),
    )
    assert stages_ms(request) == {"other": 300, "network": 100, "first_token": 100, "decode": 500}


@pytest.mark.parametrize(
    ("sent_ms", "until_ms", "gateway_ms"), [(400, 840, 250), (400, 700, 250), (200, 250, 0)]
)
def test_what_a_proxy_holds_before_it_sends_a_call_on_is_the_gateways(
    sent_ms: float, until_ms: float, gateway_ms: float
) -> None:
    """A proxy that tells of HTTP alone: its client's span ends with the answer, or with the headers at the first token. Or it only asks who that is."""
    server, client = (
        proxy(3, 150, 850, 2, "http"),
        Made(4, "POST", sent_ms, until_ms, 3, CLIENT, service="proxy", scope="http"),
    )
    request = request_of(root(1000), chat(2, 100, 900, ttft=600), server, client)
    held = {"gateway": gateway_ms} if gateway_ms else {}
    assert stages_ms(request) == {
        "other": 200,
        "first_token": 600 - gateway_ms,
        "decode": 200,
        **held,
    }
    assert stages_ms(request, "ttft_") == {"other": 100, "first_token": 600 - gateway_ms, **held}
    assert request["llm_calls"] == 1


@pytest.mark.parametrize("loser", [2, 4])
def test_a_call_cancelled_as_another_one_answers_fails_nothing(loser: int) -> None:
    cancelled = chat(
        loser,
        250,
        900,
        out=None,
        attributes={"gen_ai.operation.name": "chat", "error.type": "asyncio.CancelledError"},
        status=ERROR,
    )
    request = request_of(root(1000), chat(3, 200, 900, ttft=300), cancelled)
    assert (request["error"], request["error_type"], request["ttft_ns"]) == (False, None, 500 * MS)
    assert stages_ms(request) == {"other": 300, "first_token": 300, "decode": 400}


def test_retrieval_overlapped_by_a_later_guardrail_counts_up_to_it() -> None:
    request = request_of(
        root(1000),
        Made(2, "retrieve", 0, 300, 1),
        Made(3, "guardrail", 200, 400, 1),
        chat(4, 400, 1000),
    )
    assert stages_ms(request) == {"retrieval": 200, "guardrail": 200, "generation": 600}


TGI = {
    "total_time": "1.5s",
    "validation_time": "1ms",
    "queue_time": "300ms",
    "inference_time": "1.2s",
    "time_per_token": "30ms",
}


def test_where_only_the_client_saw_the_first_token_the_engines_time_is_parted_there() -> None:
    request = request_of(
        root(1600),
        chat(2, 10, 1590, ttft=400),
        Made(3, "generate", 20, 1520, 2, service="tgi", attributes=TGI),
    )
    found = stages_ms(request)
    assert {k: v for k, v in found.items() if v} == {
        "network": 80,
        "queue": 300,
        "first_token": 90,
        "decode": 1110,
        "other": 20,
    }


def test_what_an_engine_writes_after_its_client_left_is_not_on_the_path() -> None:
    """The call is given up at 900 ms, before it learned an id; its engine request waits for 600 ms and writes until 2,100 ms."""
    times = {
        "e2e": 2.0,
        "time_to_first_token": 0.7,
        "time_in_queue": 0.6,
        "time_in_model_prefill": 0.1,
        "time_in_model_decode": 1.3,
    }
    told = {f"gen_ai.latency.{name}": seconds for name, seconds in times.items()} | {
        "gen_ai.usage.completion_tokens": 130
    }
    given_up = chat(4, 90, 900, status=2, attributes={"error.type": "asyncio.CancelledError"})
    engine = Made(5, "llm_request", 100, 2100, 1, SERVER, told, service="vllm", scope="vllm")
    requests, calls = assembled(root(1000), chat(2, 20, 80, ttft=30), given_up, engine)
    assert (requests[0]["e2e_ns"], requests[0]["llm_calls"]) == (1000e6, 2)
    found = {k: v for k, v in stages_ms(requests[0]).items() if v}
    # Up to 900 the path is the call that was given up: it waited in the engine's queue until 700 and left in the middle of decoding.
    assert found == {
        "other": 130,
        "first_token": 30,
        "network": 10,
        "queue": 600,
        "prefill": 100,
        "decode": 130,
    }
    [left] = [c for c in calls if c["error"]]
    assert (left["duration_ns"], left["engine_e2e_ns"], left["queue_ns"]) == (810e6, 2000e6, 600e6)


def test_a_call_that_was_cancelled_when_another_had_answered_is_neither_the_path_nor_the_answer() -> (
    None
):
    requests, calls = assembled(
        root(1000),
        chat(2, 100, 900, ttft=300),
        chat(3, 120, 901, status=2, attributes={"error.type": "asyncio.CancelledError"}),
    )
    assert stages_ms(requests[0]) == {"other": 200, "first_token": 300, "decode": 500}
    assert (requests[0]["error"], requests[0]["ttft_ns"], [c["on_path"] for c in calls]) == (
        False,
        400e6,
        [True, False],
    )
