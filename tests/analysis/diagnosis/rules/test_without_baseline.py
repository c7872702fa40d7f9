"""What is named where the fault is there from the first request on and nothing older is stored: what the structure tells, and nothing that needs a before."""

import heapq
from typing import Any

import numpy as np
import polars as pl
import pytest

from overrun.analysis.diagnosis.rules.long_outputs import lopsided
from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.full_engine import found_full
from overrun.analysis.words.slo import Slo
from overrun.collector.normalise.stages import ROLE
from tests.analysis.builders import calls_of, requests, spans_of
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the
from tests.analysis.diagnosis.rules.fleet import N as CALLS
from tests.analysis.diagnosis.rules.fleet import fleet

N = 600
EACH = np.arange(N)
SLOW = EACH % 10 == 9
LENGTHS = np.exp(np.random.default_rng(5).normal(np.log(120.0), 0.5, N))


def written(tokens: np.ndarray, **columns: Any) -> pl.DataFrame:
    """Answers of so many tokens at 15 ms each, with spans of a network and a search."""
    out = np.maximum(2, tokens).astype(int)
    return requests(
        N,
        **{"network_ms": 50.0, "prefill_ms": 100.0, "decode_ms": out * 15.0, "output_tokens": out}
        | columns,
    )


@pytest.mark.parametrize(("network_ms", "named"), [(1_400.0, ["slow_dependency"]), (140.0, [])])
def test_a_dependency_that_takes_more_than_its_budget_in_every_request_is_named(
    network_ms: float, named: list[str]
) -> None:
    """Slow requests differ from typical ones in the length of the answer alone; but 150 of the 2,500 ms are the network's."""
    found = run(written(LENGTHS * (0.5 if named else 1.0), network_ms=network_ms), slo=E2E)
    assert (found.verdict.status, found.baseline, causes(found)) == ("over_budget", None, named)
    if named:
        finding = the(found, "slow_dependency")
        assert (
            "takes 1.40 s in slow and 1.40 s in typical requests; its budget is 150 ms"
            in finding.headline
        )
        assert finding.evidence["claims_ms"] == {"network": pytest.approx(1_250.0)}


@pytest.mark.parametrize(
    ("kind", "cause"), [("tail", None), ("hump", "long_outputs"), ("cut", "long_outputs")]
)
def test_long_answers_are_a_cause_where_they_are_more_than_the_tail_that_lengths_have(
    kind: str, cause: str | None
) -> None:
    tokens = {
        "tail": LENGTHS,
        "hump": np.where(SLOW, 5.0 * LENGTHS, LENGTHS),
        "cut": np.minimum(LENGTHS, 200.0),
    }[kind]
    cut = (tokens >= 200.0) if kind == "cut" else np.zeros(N, dtype=bool)
    found = run(written(tokens, truncated=cut), slo=E2E)
    assert (found.verdict.status, found.verdict.stage, found.verdict.cause) == (
        "over_budget",
        "decode",
        cause,
    )
    assert (of(found, "long_outputs") is None) == (cause is None)
    if cause is None:
        assert "whether tokens were faster before" in found.verdict.sentence
    # A heavy tail and a hump look alike: slower tokens fit as well, and the sentence names both.
    known = "known" if kind == "cut" else "not_known"
    assert found.verdict.cause_status == known
    assert ("or every token takes longer than before" in found.verdict.sentence) == (kind == "hump")


def test_a_hump_is_told_within_a_route() -> None:
    """A route of short and one of long answers have two humps together, and none each."""
    rows = pl.DataFrame(
        {
            "route": np.where(SLOW, "essay", "chat"),
            "output_tokens": np.where(SLOW, 5.0 * LENGTHS, LENGTHS).astype(int),
            "truncated": None,
        }
    )
    twice = pl.concat([rows, rows])
    assert not lopsided(twice)
    assert lopsided(twice.with_columns(route=pl.lit("chat")))


@pytest.mark.parametrize("loops", [True, False])
def test_an_agent_takes_more_steps_than_a_search_at_any_time(loops: bool) -> None:
    """A third of the requests are an agent's with six steps each; the slow ones loop, or wait for their first token."""
    agent = EACH % 3 == 0
    slow = agent & (EACH % 4 == 0)
    steps = np.where(agent, np.where(slow & loops, 16, 6), 1)
    first = np.where(slow & (not loops), 3_000.0, 100.0)
    found = run(
        requests(
            N,
            route=np.where(agent, "/agent", "/search").tolist(),
            llm_calls=steps,
            first_token_ms=first,
            generation_ms=steps * 200.0,
        ),
        slo=E2E,
    )
    assert ("agent_loop" in causes(found)) is loops


@pytest.mark.parametrize("equal", [True, False])
def test_where_a_tool_is_called_again_with_equal_arguments_many_of_a_route_may_loop(
    equal: bool,
) -> None:
    """A quarter of the agents take 12 steps instead of 4; the slower third of these is over the limit."""
    loops = EACH % 4 == 0
    steps = np.where(loops, 12, 4)
    frame = requests(
        N,
        route="/agent",
        tool_ms=steps * 50.0,
        generation_ms=steps * np.where(EACH % 3 == 0, 160.0, 100.0),
        llm_calls=steps,
        tool_calls=0,
    )
    again = "[text: 9 characters, 1f]" if equal else None
    spans = [
        spans_of(
            frame,
            "execute_tool search",
            "tool",
            10.0 * k,
            5.0,
            span_id=10 + k,
            keep=loops,
            attributes={
                "gen_ai.tool.name": "search",
                "gen_ai.tool.call.arguments": again or f"[text: 9 characters, {k}f]",
            },
        )
        for k in range(9)
    ]
    found = run(frame, spans=spans, slo=Slo(e2e_ms=2_250.0))
    assert (found.baseline, "agent_loop" in causes(found)) == (None, equal)


def test_handshakes_of_every_call_are_named() -> None:
    frame = requests(
        N, network_ms=1_500.0, first_token_ms=300.0, decode_ms=np.where(SLOW, 1_100.0, 500.0)
    )
    found = run(frame, spans=[spans_of(frame, "http.tls", "network", 1.0, 1_400.0)], slo=E2E)
    assert (found.baseline, causes(found)) == (None, ["connection_churn"])


@pytest.mark.parametrize(
    ("gap_ms", "elsewhere_ms", "named"),
    [(1_500.0, 0.0, ["cross_region"]), (100.0, 0.0, []), (100.0, 1_400.0, ["slow_dependency"])],
)
def test_a_constant_gap_beyond_the_budget_of_the_network_is_distance(
    gap_ms: float, elsewhere_ms: float, named: list[str]
) -> None:
    """On the way to the engine, that is: the network may as well be slow on the way to an identity service."""
    engine_ms = np.where(SLOW, 2_600.0, 800.0)
    frame = requests(
        N, network_ms=gap_ms + elsewhere_ms, prefill_ms=engine_ms - 500.0, decode_ms=500.0
    )
    found = run(
        frame,
        calls=[calls_of(frame, engine_e2e_ms=engine_ms, duration_ms=engine_ms + gap_ms)],
        slo=E2E,
    )
    assert [
        cause
        for cause in causes(found)
        if cause in ("cross_region", "connection_churn", "slow_dependency")
    ] == named


def test_searches_in_a_row_are_the_reason_why_searching_takes_long() -> None:
    frame = requests(
        N, retrieval_ms=np.where(SLOW, 2_400.0, 1_800.0), prefill_ms=200.0, decode_ms=400.0
    )
    each = np.where(SLOW, 800.0, 600.0)
    spans = [
        spans_of(frame, "qdrant.query", "retrieval", k * (each + 1.0), each, span_id=10 + k)
        for k in range(3)
    ]
    found = run(frame, spans=spans, slo=E2E)
    assert (found.verdict.cause, causes(found)) == ("sequential_calls", ["sequential_calls"])
    # The same with a search for the ranking behind them: what it takes is not the row's, most is.
    behind = frame.with_columns(
        retrieval_ns=pl.col("retrieval_ns") + 200_000_000, e2e_ns=pl.col("e2e_ns") + 200_000_000
    )
    assert causes(run(behind, spans=spans, slo=Slo(e2e_ms=2_700.0))) == ["sequential_calls"]


def test_a_check_by_a_large_model_in_every_request_is_named() -> None:
    frame = requests(
        N, guardrail_ms=1_600.0, prefill_ms=np.where(SLOW, 700.0, 200.0), decode_ms=400.0
    )
    guard = spans_of(frame, "guardrail.input", "guardrail", 0.0, 1_600.0, span_id=2)
    call = spans_of(
        frame,
        "chat large-70b",
        "guardrail",
        1.0,
        1_590.0,
        span_id=3,
        parent_id=2,
        role=ROLE["llm"],
        model="large-70b",
        output_tokens=6,
    )
    found = run(frame, spans=[guard, call], slo=E2E)
    assert (found.baseline, causes(found)) == (None, ["oversized_side_model"])
    assert "1.59 s of a typical one" in the(found, "oversized_side_model").headline


def test_a_check_that_is_no_stage_of_its_own_takes_what_it_takes_in_typical_requests_as_well() -> (
    None
):
    """A small model checks every prompt for 400 ms, as part of the first token; slow requests wait for something else."""
    frame = requests(N, first_token_ms=np.where(SLOW, 1_500.0, 900.0), decode_ms=1_200.0)
    check = spans_of(
        frame,
        "chat guard-mini",
        "first_token",
        0.0,
        400.0,
        span_id=2,
        role=ROLE["llm"],
        model="guard-mini",
        output_tokens=6,
    )
    main = spans_of(
        frame,
        "chat large",
        "first_token",
        400.0,
        1_700.0,
        span_id=3,
        role=ROLE["llm"],
        model="large",
        output_tokens=80,
    )
    found = run(frame, spans=[check, main], slo=E2E)
    assert found.verdict.status == "over_budget"
    assert of(found, "oversized_side_model") is None


@pytest.mark.parametrize(
    ("gauge", "few", "many"), [("spec_accept_rate", 0.1, 0.5), ("spec_accept_length", 1.4, 2.8)]
)
def test_drafts_of_which_hardly_any_is_accepted_are_named(
    gauge: str, few: float, many: float
) -> None:
    for told, named in ((few, ["speculation_not_paying"]), (many, [])):
        found = run(
            written(LENGTHS), slo=E2E, gauges={gauge: {float(t): told for t in range(0, N, 15)}}
        )
        assert causes(found) == named


@pytest.mark.parametrize("warms_up", [True, False])
def test_a_replica_that_is_slow_at_first_and_comes_to_the_others_pace_is_cold(
    warms_up: bool,
) -> None:
    replica = np.arange(CALLS) % 3
    token = np.where(replica == 2, 18.0 * (1.0 + 6.0 * np.exp(-np.arange(CALLS) / 120.0)), 18.0)
    if not warms_up:
        mine = np.flatnonzero(replica == 2)
        token[mine] = np.random.default_rng(1).permutation(token[mine])
    frame, calls = fleet(replica, token_ms=token)
    found = run(
        frame,
        calls=[calls],
        slo=Slo(e2e_ms=2_500.0, percentile=99.0, goodput_target=0.99),
        baseline="none",
    )
    assert ("cold_start" in causes(found)) is warms_up
    if warms_up:
        assert the(found, "cold_start").evidence["new_instances"] == ["gpu-2"]


def test_huge_prompts_that_always_came_stand_out_among_the_others_of_their_time() -> None:
    n = 1_600
    place = np.arange(n) % 40
    wait = np.where((place > 0) & (place <= 9), 5_000.0 - 500.0 * ((place - 1) % 10), 5.0)
    n_in = np.where(place == 0, 50_000, np.random.default_rng(3).integers(900, 1_100, n))
    found = run(
        requests(
            n,
            start_s=np.arange(n) * 0.5,
            queue_ms=wait,
            prefill_ms=n_in * 0.1,
            decode_ms=300.0,
            input_tokens=n_in,
        ),
        slo=E2E,
        baseline="none",
    )
    assert (found.verdict.cause, the(found, "huge_context").evidence["huge_calls"]) == (
        "huge_context",
        40,
    )


@pytest.mark.parametrize(("places", "full"), [(True, True), (False, False)])
def test_who_finds_the_engine_full_waits_for_room(places: bool, full: bool) -> None:
    """Every tenth second eight calls come at once: four run and four wait; or all run, and who comes alone waits for something else."""
    rows = []
    for k in range(120):
        for j in range(8 if k % 10 == 0 else 1):
            queued = 1_000.0 * (j // 4) if places else 1_000.0 * (k % 10 == 5)
            rows.append(
                {
                    "start_s": k * 5.0 + 0.001 * j,
                    "queue_ms": queued,
                    "prefill_ms": 10.0,
                    "decode_ms": 990.0,
                }
            )
    frame = pl.DataFrame(rows).with_columns(
        engine_instance=pl.lit("gpu-0"),
        output_tokens=pl.lit(20.0),
        ttft_ms=pl.lit(None),
        e2e_ms=pl.col("queue_ms") + 1_000.0,
    )
    calls = Calls(frame)
    assert found_full(calls.where(calls.of("queue_ms") > 0.0), calls) is full


def test_pace_that_follows_ones_own_prompts_is_not_the_providers() -> None:
    """Two of five calls are written beside a long prompt of one's own, three times as slowly."""
    n, place = 1_000, np.arange(1_000) % 5
    beside, prompts = (place == 1) | (place == 3), (place == 2) | (place == 4)
    n_in = np.where(prompts, 30_000, np.random.default_rng(2).integers(300, 700, n))
    frame = requests(
        n,
        start_s=np.arange(n) - np.where(prompts, 0.9, 0.0),
        first_token_ms=50.0,
        decode_ms=np.where(beside, 3_000.0, 1_000.0),
        output_tokens=101,
        tpot_ms=np.where(beside, 30.0, 10.0),
        input_tokens=n_in,
    )
    found = run(frame, slo=E2E, baseline="none")
    assert found.verdict.stage == "decode"
    assert of(found, "token_rate_sag") is None
    assert any(
        "other prompts of your application" in out.figure
        for out in found.verdict.ruled_out
        if out.what == "token_rate_sag"
    )


def test_an_engine_that_is_full_now_and_then_is_told_without_a_before() -> None:
    """First come, first served by eight places for 4.1 s each, of which arrivals at random take three quarters."""
    start = np.cumsum(np.random.default_rng(4).exponential(4.1 / 8 / 0.75, 1_000))
    free, wait = [0.0] * 8, np.zeros(1_000)
    for k, at in enumerate(start):
        begins = max(at, free[0])
        wait[k] = 1_000.0 * (begins - at) + 1.0
        heapq.heapreplace(free, begins + 4.1)
    found = run(
        requests(
            1_000,
            start_s=start,
            queue_ms=wait,
            prefill_ms=100.0,
            decode_ms=4_000.0,
            output_tokens=100,
        ),
        slo=Slo(e2e_ms=5_000.0),
    )
    assert (found.verdict.stage, found.verdict.cause) == ("queue", "under_capacity")
    assert "only a baseline shows" in found.verdict.sentence
    assert (
        "their engine was at its fullest when they arrived" in the(found, "under_capacity").headline
    )
