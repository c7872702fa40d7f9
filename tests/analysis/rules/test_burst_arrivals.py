"""burst_arrivals: fires when the same number of requests comes in bursts, is silent when they come evenly."""

import numpy as np
import polars as pl
import pytest

from analysis.bursts import dispersion
from tests.analysis.builders import requests
from tests.analysis.rules.cases import E2E, causes, of, run, the

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
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == ("queue", "burst_arrivals", ["burst_arrivals"])
    assert finding.evidence["dispersion_now"] > 10.0
    assert finding.evidence["arrivals_ratio"] == pytest.approx(1.05, abs=0.1)


def test_silent_when_the_same_waits_come_at_even_arrivals() -> None:
    found = run(rows(False), slo=E2E)
    assert found.verdict.stage == "queue"
    assert of(found, "burst_arrivals") is None
    assert any(out.what == "burst_arrivals" for out in found.verdict.ruled_out)


def test_dispersion_is_one_for_poisson_and_the_size_for_bursts() -> None:
    start = np.cumsum(np.random.default_rng(1).exponential(0.1, 20_000))
    assert dispersion(start, 0.0, start[-1], 5.0) == pytest.approx(1.0, abs=0.25)
    # 50 at once in every fifth bin: mean 10, variance (50 - 10)^2 / 5 + 10^2 x 4 / 5 = 400, so 40 (less what the moving mean takes).
    bursts = np.repeat(np.arange(0.0, 2_000.0, 5.0), 50)
    assert dispersion(bursts, 0.0, 2_000.0, 1.0) == pytest.approx(40.0, rel=0.1)
    assert dispersion(np.arange(10.0), 0.0, 10.0, 1.0) is None
