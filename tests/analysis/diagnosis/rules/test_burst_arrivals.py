"""burst_arrivals: fires when the same number of requests comes in bursts, is silent when they come evenly."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.arrival_bursts import dispersion
from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the

N = 1200
CALM = np.cumsum(np.random.default_rng(3).exponential(0.5, 600))
EVERY_S, SIZE = 20.0, 40


def arrivals(bursty: bool) -> np.ndarray:
    if not bursty:
        return np.r_[CALM, CALM[-1] + np.cumsum(np.random.default_rng(4).exponential(0.5, 600))]
    begin = CALM[-1] + EVERY_S * (np.arange(600) // SIZE)
    return np.r_[CALM, begin + (np.arange(600) % SIZE) * 0.02]


def rows(bursty: bool) -> pl.DataFrame:
    wait = np.where(np.arange(N) >= 600, 150.0 * (np.arange(N) % SIZE), 5.0)
    return requests(N, start_s=arrivals(bursty), queue_ms=wait, prefill_ms=50.0, decode_ms=100.0)


def test_fires_on_bursts_at_the_same_mean_rate() -> None:
    found = run(rows(True), slo=E2E)
    finding = the(found, "burst_arrivals")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "queue",
        "burst_arrivals",
        ["burst_arrivals"],
    )
    assert finding.evidence["dispersion_now"] > 10.0
    assert finding.evidence["arrivals_ratio"] == pytest.approx(1.05, abs=0.1)


@pytest.mark.parametrize("in_crowds", [True, False])
def test_bursts_of_a_sample_are_those_of_all_where_slow_requests_came_in_them(
    in_crowds: bool,
) -> None:
    """A request every half a second; since the onset every other one is in a burst of twenty: the slow ones are those, or the others."""
    even, burst = (
        CALM[-1] + np.arange(300) * 1.0,
        CALM[-1] + EVERY_S * (np.arange(300) // 20) + (np.arange(300) % 20) * 0.02,
    )
    start, mine = (
        np.r_[CALM, even, burst],
        np.r_[np.zeros(900, dtype=bool), np.ones(300, dtype=bool)],
    )
    slow = mine if in_crowds else ~mine & (np.arange(N) >= 600)
    rows = requests(
        N, start_s=start, queue_ms=np.where(slow, 4_000.0, 5.0), prefill_ms=50.0, decode_ms=100.0
    ).sort("start_ns")
    found = run(rows, slo=E2E, coverage=0.1)
    assert (of(found, "burst_arrivals") is not None) is in_crowds
    assert of(run(rows, slo=E2E), "burst_arrivals") is not None


def test_silent_when_the_same_waits_come_at_even_arrivals() -> None:
    found = run(rows(False), slo=E2E)
    assert found.verdict.stage == "queue"
    assert of(found, "burst_arrivals") is None
    assert any(out.what == "burst_arrivals" for out in found.verdict.ruled_out)


def test_dispersion_is_one_for_poisson_and_the_size_for_bursts() -> None:
    start = np.cumsum(np.random.default_rng(1).exponential(0.1, 20_000))
    assert dispersion(start, 0.0, start[-1], 5.0) == pytest.approx(1.0, abs=0.25)
    # 50 at once in every fifth bin: mean 10, two differences of 50 in five, half of 50^2 x 2 / 5 = 500, so 50.
    bursts = np.repeat(np.arange(0.0, 2_000.0, 5.0), 50)
    assert dispersion(bursts, 0.0, 2_000.0, 1.0) == pytest.approx(50.0, rel=0.1)
    assert dispersion(np.arange(10.0), 0.0, 10.0, 1.0) is None


def test_a_rate_that_falls_is_no_burst() -> None:
    """Users who wait for an answer ask nothing meanwhile: 8 requests a second fall to 1.6 within some minutes. Nor is a rate that rises, or drops at once."""
    rng = np.random.default_rng(5)
    at = np.sort(rng.uniform(0.0, 240.0, 1_920))
    falling = at[rng.uniform(size=len(at)) < 0.2 + 0.8 * np.exp(-at / 60.0)]
    dropping = at[rng.uniform(size=len(at)) < np.where(at < 80.0, 1.0, 0.4)]
    for start in (falling, 240.0 - falling[::-1], dropping):
        for width in (1.0, 4.0, 8.0):
            told = dispersion(start, 0.0, 240.0, width)
            assert told is not None
            assert told < 2.0


@pytest.mark.parametrize(("in_crowds", "cause"), [(True, "burst_arrivals"), (False, None)])
def test_smaller_bursts_are_named_where_the_slow_requests_came_in_them(
    in_crowds: bool, cause: str | None
) -> None:
    """2.25 times as many requests for 4 s of every minute: the dispersion is 2.4, and who comes late in a burst waits; or as many wait at any other time."""
    rng = np.random.default_rng(6)
    at = np.sort(rng.uniform(0.0, 600.0, 5_400))
    rate = np.where(at < 300.0, 0.4, np.where(at % 60.0 < 4.0, 0.9, 0.364))
    start = at[rng.uniform(size=len(at)) < rate]
    late, moment = start >= 300.0, start % 60.0
    waits = late & (
        (moment > 2.0) & (moment < 4.5) if in_crowds else (moment > 30.0) & (moment < 35.0)
    )
    rows = requests(
        len(start),
        start_s=start,
        queue_ms=np.where(waits, 4_000.0, 5.0),
        prefill_ms=50.0,
        decode_ms=100.0,
    )
    found = run(rows, slo=E2E)
    assert (found.verdict.stage, found.verdict.cause) == ("queue", cause)


def test_bursts_that_came_before_as_well_are_known_from_a_short_baseline() -> None:
    """Twice the usual rate for 10 s of every 40, from the first minute on. Counts of 8 s show it best, and a baseline of 90 s has too few of them; a quarter
    of the calls since the onset takes 1.8 times as long, whenever they came."""
    rng = np.random.default_rng(8)
    at = np.sort(rng.uniform(0.0, 360.0, 3_600))
    at = at[rng.uniform(size=len(at)) < np.where(at % 40.0 < 10.0, 1.0, 0.4)]
    late = (at >= 90.0) & (rng.uniform(size=len(at)) < 0.25)
    wait = 1_400.0 * rng.lognormal(0.0, 0.15, len(at)) * np.where(late, 1.8, 1.0)
    found = run(requests(len(at), start_s=at, first_token_ms=wait, decode_ms=100.0), slo=E2E)
    assert found.verdict.status == "over_budget"
    assert of(found, "burst_arrivals") is None
