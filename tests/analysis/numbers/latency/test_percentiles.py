"""Percentiles against numpy, minimum samples, and the coverage of the intervals."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from overrun.analysis.numbers.latency.percentiles import (
    MIN_N,
    _binomial_cdf,
    binomial_tail,
    latency,
    min_n,
    percentiles,
    quantile,
    quantile_interval,
    sorted_quantile,
)
from tests.analysis.builders import frame_of, requests

SAMPLES = hnp.arrays(
    np.float64, st.integers(1, 400), elements=st.floats(0, 1e7, allow_subnormal=False)
)


@given(SAMPLES, st.floats(0.0, 1.0))
def test_quantile_is_numpys(values: np.ndarray, p: float) -> None:
    assert sorted_quantile(np.sort(values), p) == pytest.approx(
        float(np.quantile(values, p)), rel=1e-12, abs=1e-12
    )
    assert quantile(values, p) == sorted_quantile(np.sort(values), p)


@pytest.mark.parametrize(
    "values",
    [
        np.full(400, 7.0),
        np.arange(400.0),
        np.arange(400.0)[::-1],
        np.r_[np.zeros(380), np.full(20, 9e6)],
    ],
)
def test_hostile_shapes_agree_with_numpy(values: np.ndarray) -> None:
    stats = percentiles(values)
    expected = np.percentile(values, [50, 75, 90, 95, 99])
    assert [stats.p50, stats.p75, stats.p90, stats.p95, stats.p99] == pytest.approx(
        expected.tolist()
    )
    assert stats.max == values.max()
    assert stats.p99_interval is not None
    assert stats.p99_interval[0] <= stats.p99_interval[1] <= stats.max


@pytest.mark.parametrize(
    ("name", "n"),
    [("p50", 6), ("p75", 11), ("p90", 29), ("p95", 59), ("p99", 299), ("p99_9", 2995)],
)
def test_percentile_below_its_least_n_is_null_with_the_reason(name: str, n: int) -> None:
    enough, few = percentiles(np.arange(float(n))), percentiles(np.arange(float(n - 1)))
    assert getattr(enough, name) is not None
    assert getattr(few, name) is None
    assert str(n) in few.reasons[name]
    assert few.max == n - 2


@pytest.mark.parametrize(
    ("name", "n"), [("p50_interval", 6), ("p95_interval", 72), ("p99_interval", 368)]
)
def test_interval_below_its_least_n_is_null_with_the_reason(name: str, n: int) -> None:
    assert getattr(percentiles(np.arange(float(n))), name) is not None
    few = percentiles(np.arange(float(n - 1)))
    assert getattr(few, name) is None
    assert str(n) in few.reasons[name]


def test_least_n_follows_its_rule() -> None:
    for percentile, n in MIN_N.items():
        if percentile > 50:
            assert 1 - (percentile / 100) ** n >= 0.95 > 1 - (percentile / 100) ** (n - 1)
    assert min_n(97.0) == math.ceil(math.log(0.05) / math.log(0.97))
    assert min_n(50.0) == 6


def test_raw_gives_every_percentile_for_back_tests() -> None:
    stats = percentiles(np.array([1.0, 2.0]), raw=True)
    assert (stats.p50, stats.p99_9) == (1.5, pytest.approx(1.999))
    assert stats.p50_interval is None


def test_no_sample_is_null_with_the_reason_everywhere() -> None:
    stats = percentiles(np.empty(0), empty="no chunk events")
    assert (stats.n, stats.p50, stats.max) == (0, None, None)
    assert stats.reasons["p95"] == stats.reasons["max"] == "no chunk events"


@pytest.mark.parametrize(
    ("n", "p"), [(6, 0.5), (101, 0.5), (72, 0.95), (200, 0.95), (368, 0.99), (1000, 0.99)]
)
def test_interval_covers_the_true_quantile_95_times_in_100(n: int, p: float) -> None:
    """Simulation error at 8,000 draws is +-0.5 points (two standard errors)."""
    rng = np.random.default_rng(n)
    draws = np.sort(rng.lognormal(0.0, 1.2, (8000, n)), axis=1)
    truth = float(np.exp(1.2 * {0.5: 0.0, 0.95: 1.6448536, 0.99: 2.3263479}[p]))
    bounds = np.array([quantile_interval(row, p) for row in draws])
    covered = float(((bounds[:, 0] <= truth) & (truth <= bounds[:, 1])).mean())
    assert 0.94 <= covered <= 0.96


def test_interval_is_none_where_no_order_statistic_lies_outside() -> None:
    assert quantile_interval(np.arange(5.0), 0.5) is None
    assert quantile_interval(np.arange(71.0), 0.95) is None


@pytest.mark.parametrize(
    ("n", "p"), [(20, 0.05), (300, 0.01), (900, 0.1), (900, 0.5), (7, 0.0), (7, 1.0)]
)
def test_the_tail_of_a_binomial_is_the_sum_of_its_terms(n: int, p: float) -> None:
    for k in (-1, 0, 1, 3, n // 10, n // 2, n, n + 1):
        terms = [math.comb(n, i) * p**i * (1.0 - p) ** (n - i) for i in range(max(k, 0), n + 1)]
        assert binomial_tail(n, k, p) == pytest.approx(math.fsum(terms), abs=1e-12)


@given(st.integers(1, 300), st.floats(0.01, 0.99))
def test_binomial_sum_agrees_with_the_definition(n: int, p: float) -> None:
    first, cdf = _binomial_cdf(n, p)
    exact = np.cumsum([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])
    assert cdf == pytest.approx(exact[first : first + len(cdf)], abs=1e-9)


def test_only_successful_requests_count() -> None:
    frame = frame_of(requests(100, prefill_ms=10.0, error=[True] * 40 + [False] * 60))
    assert latency(frame.rows).e2e_ms.n == 60


def test_source_of_ttft_says_who_measured() -> None:
    one = frame_of(requests(10, ttft_prefill_ms=10.0, prefill_ms=10.0, ttft_source=3))
    two = frame_of(
        requests(10, ttft_prefill_ms=10.0, prefill_ms=10.0, ttft_source=[1] * 6 + [3] * 4)
    )
    assert latency(one.rows).ttft_ms.source == "engine"
    assert latency(two.rows).ttft_ms.source == "attribute 60 %, engine 40 %"
    assert latency(one.rows).itl_ms.source is None
    assert "chunk events" in latency(one.rows).itl_ms.reasons["p50"]
