"""Calls that come sooner meet other batches: arithmetic with the factor of two replays against the same engine with the fix in place."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from overrun.analysis.simulator.engine import Setup, simulate
from overrun.analysis.whatif import shifted_calls
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.fixes import clip, connection_pooling
from overrun.analysis.whatif.prediction import Prediction, Times
from tests.analysis.whatif.builders import START_US, facts_of, requests_of
from tests.analysis.whatif.recording import COSTS, arrivals, hosted, recorded

N = 400
# Forty requests begin within a second every eight; a search of up to six seconds spreads their calls, one of 100 ms does not.
BEGUN = 8.0 * (np.arange(N) // 40) + np.tile(np.linspace(0.0, 1.0, 40), 10)
SEARCH_MS = np.random.default_rng(3).uniform(200.0, 6_000.0, N)


def searched(
    *, engine: bool, stage: str = "retrieval", within: bool = False
) -> tuple[Facts, np.ndarray]:
    """The requests with their searches, or that time in another stage, and the calls' first tokens (ms) were each search 100 ms.

    `within`: the time lies in the call, which its client sends as soon as the request begins, in front of the engine's own span.
    """
    came = arrivals(N)
    reached = BEGUN + SEARCH_MS / 1000.0
    order = np.argsort(reached)
    came = replace(came, arrival_s=reached[order])
    calls = (recorded(came) if engine else hosted(came)).calls
    start = START_US + (BEGUN[order] * 1e6).astype(np.int64)
    took = SEARCH_MS[order]
    reached_us = start + (took * 1000.0).astype(np.int64)
    calls = calls.with_columns(start_us=reached_us)
    rows = requests_of(
        calls,
        start_us=start,
        e2e_ms=calls["e2e_ms"].to_numpy() + took,
        ttft_ms=calls["ttft_ms"].to_numpy() + took,
        **{f"{stage}_ms": took, f"ttft_{stage}_ms": took},
    )
    if within:
        held = {name: calls[name].to_numpy() + took for name in ("ttft_ms", "e2e_ms")}
        calls = calls.with_columns(
            start_us=start,
            engine_start_us=reached_us,
            engine_instance=calls["instance"],
            instance=pl.lit("app"),
            ttft_client_ms=held["ttft_ms"],
            **held,
        )
    soon = np.argsort(BEGUN[order] + 0.1, kind="stable")
    own = {name: getattr(came, name)[soon] for name in came.__slots__} | {
        "arrival_s": BEGUN[order][soon] + 0.1
    }
    return facts_of(calls, requests=rows, metric="ttft", percentile=95.0), simulate(
        type(came)(**own), Setup(), COSTS
    ).ttft_s * 1000.0


def p95(answer: Prediction) -> tuple[float, tuple[float, float]]:
    assert answer.predicted is not None, answer.reasons
    assert answer.predicted.interval is not None
    return answer.predicted.after, answer.predicted.interval


@pytest.mark.parametrize(
    ("stage", "within"), [("retrieval", False), ("network", False), ("network", True)]
)
def test_requests_that_a_slow_search_or_handshake_kept_apart_meet_at_the_engine_without_it(
    stage: str, within: bool
) -> None:
    facts, first = searched(engine=True, stage=stage, within=within)
    truth = float(np.quantile(first + 100.0, 0.95))
    arithmetic = float(np.quantile(facts.call("ttft_engine_ms") + 100.0, 0.95))
    assert truth > 1.3 * arithmetic
    fixed = (
        clip.predict(facts, stage=stage, limit_ms=100.0)
        if stage == "retrieval"
        else connection_pooling.predict(facts, network_ms=100.0)
    )
    after, (low, high) = p95(fixed)
    assert after == pytest.approx(truth, rel=0.1)
    assert low < truth < high


def test_at_a_provider_arithmetic_stands() -> None:
    facts, _ = searched(engine=False)
    answer = clip.predict(facts, stage="retrieval", limit_ms=100.0)
    assert p95(answer)[0] == pytest.approx(float(np.quantile(facts.call("ttft_ms") + 100.0, 0.95)))
    assert answer.method == "exact"


def test_arithmetic_and_replay_are_weighed_by_what_each_does_not_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts, _ = searched(engine=True)
    told, drawn, apart = (
        Times(*[np.random.default_rng(seed).lognormal(6.0, 0.5, N)] * 3) for seed in (5, 6, 7)
    )

    def factor(came: Times, sooner: Times) -> tuple[float, float]:
        monkeypatch.setattr(
            shifted_calls,
            "_with",
            lambda _facts, _after, _engines, shift, _draw: came if shift is None else sooner,
        )
        found = shifted_calls.batches(facts, told, np.full(facts.calls.height, 500.0))
        assert found is not None
        return found("ttft", 0.95)

    def change(sooner: Times) -> float:
        return float(np.log(np.quantile(sooner.ttft, 0.95) / np.quantile(told.ttft, 0.95)))

    # A replay that gives the recording back is followed, also in who meets whom; one that is as far off as chance takes it counts for half at the most.
    assert factor(told, drawn) == pytest.approx((change(drawn), 0.0), abs=1e-6)
    followed, spread = factor(apart, drawn)
    assert abs(followed) < 0.7 * abs(change(drawn))
    assert 0.03 < spread < 0.2
    # What is far more than chance is followed all the same, and a replay that is off by a factor is off by it on both sides.
    slower, twice = (Times(*[drawn.ttft * by] * 3) for by in (3.0, 6.0))
    assert factor(apart, slower)[0] == pytest.approx(change(slower), rel=0.15)
    assert factor(Times(*[apart.ttft * 2.0] * 3), twice)[0] == pytest.approx(
        change(slower), rel=0.2
    )
