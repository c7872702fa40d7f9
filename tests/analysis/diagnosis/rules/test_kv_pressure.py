"""kv_pressure: fires when the cache is full at the same work, is silent when more work filled it, and says what it lacks."""

import numpy as np
import polars as pl
import pytest

from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the

N = 600
LATE = np.arange(N) >= 300


def waiting(start_s: np.ndarray | None = None) -> pl.DataFrame:
    wait = np.where(LATE, 4_000.0, 5.0)
    columns = {} if start_s is None else {"start_s": start_s}
    return requests(N, queue_ms=wait, prefill_ms=100.0, decode_ms=1_000.0, **columns)


def gauges(
    usage: tuple[float, float],
    preempted: tuple[float, float],
    capacity: tuple[float, float] | None = None,
) -> dict[str, dict[float, float]]:
    seconds = [float(t) for t in range(0, 600, 15)]
    sides = {"kv_cache_usage": usage, "preemptions": preempted} | (
        {"kv_capacity": capacity} if capacity else {}
    )
    return {
        name: {t: value[0] if t < 300 else value[1] for t in seconds}
        for name, value in sides.items()
    }


def test_fires_when_the_engine_says_that_its_cache_shrank() -> None:
    found = run(waiting(), slo=E2E, gauges=gauges((0.5, 0.99), (0.0, 0.2), (40_000.0, 20_000.0)))
    finding = the(found, "kv_pressure")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "queue",
        "kv_pressure",
        ["kv_pressure"],
    )
    # One request a second and 0.2 preemptions a second; 20,000 of 40,000 tokens are left.
    assert finding.evidence["preempted"] == pytest.approx(0.2, rel=0.03)
    assert (finding.evidence["capacity_ratio"], finding.evidence["capacity_source"]) == (
        0.5,
        "the engine's own figure",
    )
    assert finding.evidence["share_of_excess"] == pytest.approx(1.0, abs=0.01)
    assert "50 %" in finding.headline
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    assert finding.fix.predicted.after < 2_500.0 < finding.fix.predicted.before


@pytest.mark.parametrize(("odd_s", "ratio"), [((0.0, 15.0, 30.0, 45.0), 0.5), ((15.0,), 1.0)])
def test_a_cache_that_shrank_while_it_had_room_to_spare_shrank_before_the_onset(
    odd_s: tuple[float, ...], ratio: float
) -> None:
    """Twice the capacity in the first minute; a single sample says nothing."""
    told = gauges((0.5, 0.99), (0.0, 0.2), (20_000.0, 20_000.0))
    told["kv_capacity"] |= dict.fromkeys(odd_s, 40_000.0)
    assert (
        the(run(waiting(), slo=E2E, gauges=told), "kv_pressure").evidence["capacity_ratio"] == ratio
    )


def test_capacity_is_told_from_the_tokens_held_where_the_engine_does_not() -> None:
    finding = the(run(waiting(), slo=E2E, gauges=gauges((0.5, 1.0), (0.0, 0.2))), "kv_pressure")
    # The same calls hold the same tokens at twice the usage: half the capacity.
    assert finding.evidence["capacity_ratio"] == pytest.approx(0.5, rel=0.03)


def test_fires_on_a_smaller_cache_that_loses_prompts_before_it_preempts() -> None:
    # The cache held 60 of 100 tokens of every prompt and holds 20 now: 80 instead of 40 are computed, with KV usage far from full.
    cached = np.where(LATE, 20, 60)
    slow = requests(
        N,
        prefill_ms=np.where(LATE, 4_000.0, 100.0),
        decode_ms=1_000.0,
        input_tokens=100,
        cached_tokens=cached,
    )
    shrunk = run(slow, slo=E2E, gauges=gauges((0.2, 0.4), (0.0, 0.0), (40_000.0, 20_000.0)))
    assert shrunk.verdict.cause == "kv_pressure"
    finding = the(shrunk, "kv_pressure")
    assert finding.evidence["lost_tokens_ratio"] == pytest.approx(1.0)
    assert finding.fix is not None
    assert (finding.fix.title, finding.fix.whatif, finding.fix.parameters) == (
        "Enlarge the KV cache",
        "kv_size",
        {"factor": 2.0},
    )
    # With the memory as it was, the lost prompts are the cause.
    kept = run(slow, slo=E2E, gauges=gauges((0.2, 0.4), (0.0, 0.0), (40_000.0, 40_000.0)))
    assert (kept.verdict.cause, of(kept, "kv_pressure")) == ("prefix_cache_lost", None)


@pytest.mark.parametrize(("capacity", "fires"), [(20_000.0, True), (40_000.0, False)])
def test_who_finds_no_room_in_a_smaller_cache_waits_and_nobody_is_preempted(
    capacity: float, fires: bool
) -> None:
    found = run(waiting(), slo=E2E, gauges=gauges((0.6, 0.97), (0.0, 0.0), (40_000.0, capacity)))
    assert (of(found, "kv_pressure") is not None) is fires
    assert ("requests wait for free blocks" in found.verdict.sentence) is fires


def test_silent_when_more_requests_filled_the_cache() -> None:
    start = np.r_[np.arange(300), 300.0 + np.arange(300) / 3.0]
    found = run(
        waiting(start), slo=E2E, gauges=gauges((0.5, 0.99), (0.0, 0.6), (40_000.0, 40_000.0))
    )
    assert of(found, "kv_pressure") is None
    assert any(
        out.what == "kv_pressure" and "times as much work" in out.figure
        for out in found.verdict.ruled_out
    )


def test_silent_on_a_full_cache_without_preemptions() -> None:
    assert (
        of(run(waiting(), slo=E2E, gauges=gauges((0.5, 0.99), (0.0, 0.0))), "kv_pressure") is None
    )


def test_missing_gauges_are_said() -> None:
    assert "/metrics" in run(waiting(), slo=E2E).skipped["kv_pressure"]


def rollout(capacity: float, *, drained_s: float = 330.0) -> dict[str, dict[float, float]]:
    """Samples of two pods: the old one serves until 300 s and is scraped until it is drained, the new one is scraped from 255 s on and serves from 300 s on."""
    old = [float(t) for t in range(0, int(drained_s), 15)]
    new = [float(t) for t in range(255, 600, 15)]
    return {
        "running@old": {t: 8.0 if t < 300.0 else 0.0 for t in old},
        "kv_cache_usage@old": {t: 0.5 if t < 300.0 else 0.0 for t in old},
        "preemptions@old": dict.fromkeys(old, 0.0),
        "kv_capacity@old": dict.fromkeys(old, 40_000.0),
        "running@new": {t: 0.0 if t < 300.0 else 8.0 for t in new},
        "kv_cache_usage@new": {t: 0.0 if t < 300.0 else 0.99 for t in new},
        "preemptions@new": {t: 0.0 if t < 300.0 else 0.2 for t in new},
        "kv_capacity@new": dict.fromkeys(new, capacity),
    }


@pytest.mark.parametrize("drained_s", [300.0, 330.0, 600.0])
def test_a_smaller_cache_of_a_new_pod_shows_though_it_was_scraped_before_its_traffic(
    drained_s: float,
) -> None:
    found = run(waiting(), slo=E2E, gauges=rollout(2_000.0, drained_s=drained_s))
    finding = the(found, "kv_pressure")
    assert finding.evidence["capacity_ratio"] == 0.05
    # 0.2 a second at one request a second, on one of two instances.
    assert finding.evidence["preempted"] == pytest.approx(0.2, rel=0.05)
    assert finding.evidence["usage"] == pytest.approx(0.99)
    assert finding.evidence["usage_before"] == pytest.approx(0.5)


def test_a_new_pod_with_the_same_cache_did_not_shrink() -> None:
    finding = of(run(waiting(), slo=E2E, gauges=rollout(40_000.0)), "kv_pressure")
    assert finding is None or finding.evidence["capacity_ratio"] == 1.0
