"""Times and tokens of model calls."""

from __future__ import annotations

import pytest

from tests.analysis.assembly.assembling import ENGINE, assembled, request_of, root, stages_ms
from tests.collector.oracle_build import ERROR, MS, SERVER, Made, chat


def test_ttft_from_a_span_event_says_so() -> None:
    request = request_of(root(1000), chat(2, 200, 900, events=[(450, "First Token Stream Event")]))
    assert (request["ttft_ns"], request["ttft_source"]) == (450 * MS, 2)


def test_ttft_is_the_engines_where_the_client_saw_none() -> None:
    engine = Made(
        9, "llm_request", 250, 850, 2, SERVER, ENGINE, service="vllm", scope="vllm.tracing.otel"
    )
    requests, calls = assembled(root(1000), chat(2, 200, 900), engine)
    assert (calls[0]["ttft_ns"], calls[0]["ttft_source"]) == (250 * MS, 3)
    # The engine's first token came 50 ms after the call began plus 250 ms, and the call began at 200.
    assert (requests[0]["ttft_ns"], requests[0]["ttft_source"]) == (500 * MS, 3)
    assert calls[0]["tpot_ns"] == pytest.approx((600 - 250) * MS / 9)


def test_tpot_needs_two_tokens_and_says_why_it_is_missing() -> None:
    reasons = []
    for more in (
        {"out": 1, "ttft": 100},
        {"out": None, "ttft": 100},
        {"out": 10},
        {"out": 10, "ttft": 100, "status": ERROR},
        {"out": 10, "ttft": 100, "attributes": {"gen_ai.usage.reasoning.output_tokens": 4}},
        {"out": 11, "ttft": 100},
    ):
        _, calls = assembled(root(1000), chat(2, 100, 900, **more))
        reasons.append((calls[0]["tpot_reason"], calls[0]["tpot_ns"]))
    assert reasons == [
        ("fewer_than_2_tokens", None),
        ("no_token_count", None),
        ("no_first_token", None),
        ("failed", None),
        ("hidden_reasoning", None),
        (None, 70.0 * MS),
    ]


def test_itl_spreads_the_chunks_time_over_the_gaps_between_tokens() -> None:
    chunks = [(200 + 50 * i, "gen_ai.content.completion.chunk") for i in range(4)] + [
        (500, "gen_ai.content.completion.chunk")
    ]
    requests, calls = assembled(root(1000), chat(2, 100, 900, out=13, events=chunks))
    # 200, 250, 300, 350, 500: 300 ms between first and last, 12 gaps between 13 tokens, worst 150.
    assert (calls[0]["itl_ns"], calls[0]["itl_max_ns"], calls[0]["itl_source"]) == (
        25.0 * MS,
        150.0 * MS,
        "chunk",
    )
    assert (calls[0]["ttft_ns"], calls[0]["ttft_source"]) == (100 * MS, 2)
    assert (requests[0]["itl_ns"], requests[0]["itl_max_ns"]) == (25.0 * MS, 150.0 * MS)


def test_a_prefill_that_may_hold_the_queue_is_not_shown_as_prefill() -> None:
    timed = {
        "gen_ai.latency.e2e": 1.0,
        "gen_ai.latency.time_to_first_token": 0.5,
        "gen_ai.latency.time_in_model_prefill": 0.48,
        "gen_ai.latency.time_in_model_decode": 0.5,
    }
    requests, [call] = assembled(
        Made(1, " Req 1f0a", 0, 1000, scope="sglang server", attributes=timed)
    )
    assert {k: v for k, v in stages_ms(requests[0]).items() if v} == {
        "first_token": 500,
        "decode": 500,
    }
    assert call["prefill_ns"] is None
