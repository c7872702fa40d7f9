"""departure: when the metric left its former distribution, before the limit was missed."""

import numpy as np

from overrun.analysis.incident.onset import dated, departure

RNG = np.random.default_rng(11)


def ramp(slow_from: int, n: int = 1000) -> np.ndarray:
    """A latency of about 1,000 ms that grows by a factor of 1.005 per request from one index on."""
    return 1_000.0 * RNG.lognormal(0.0, 0.2, n) * 1.005 ** np.maximum(0, np.arange(n) - slow_from)


def wandering(n: int, seed: int) -> np.ndarray:
    """A latency whose load wanders: its logarithm is an autoregression, each request like the fifty before it (correlation 0.98), and noise of its own."""
    rng = np.random.default_rng(seed)
    load = np.empty(n)
    load[0] = rng.normal()
    for k in range(1, n):
        load[k] = 0.98 * load[k - 1] + np.sqrt(1.0 - 0.98**2) * rng.normal()
    return 1_000.0 * np.exp(0.25 * load + rng.normal(0.0, 0.2, n))


def test_a_load_that_wanders_is_no_departure() -> None:
    starts = np.arange(1500) * 1_000_000
    found = [
        departure(starts, wandering(1500, seed), 1500 * 1_000_000, shared=True)
        for seed in range(40)
    ]
    # 19 of the 40 before requests counted by their runs.
    assert sum(at is not None for at in found) <= 3


def test_a_slow_rise_is_dated_while_the_load_wanders() -> None:
    for seed in range(10):
        values = wandering(1500, seed) * 1.01 ** np.maximum(0, np.arange(1500) - 800)
        onset = int(np.argmax(values > 5_000.0))
        found = departure(np.arange(1500) * 1_000_000, values, onset * 1_000_000, shared=True)
        assert found is not None
        assert 600 < found / 1e6 < onset


def test_a_slow_rise_is_dated_to_its_beginning() -> None:
    values = ramp(500)
    onset = int(np.argmax(values > 5_000.0))
    found = departure(np.arange(1000) * 1_000_000, values, onset * 1_000_000)
    assert onset > 700
    assert found is not None
    assert abs(found / 1e6 - 500) < 60


def test_a_step_has_no_earlier_beginning() -> None:
    values = np.where(np.arange(1000) < 500, 1_000.0, 9_000.0) * RNG.lognormal(0.0, 0.2, 1000)
    assert departure(np.arange(1000) * 1_000_000, values, 500 * 1_000_000) is None


def test_too_few_requests_before_the_onset() -> None:
    assert departure(np.arange(100) * 1_000_000, ramp(50, 100), 60 * 1_000_000) is None


def test_a_change_has_an_interval_and_needs_no_limit() -> None:
    values = np.where(np.arange(1000) < 500, 1_000.0, 1_300.0) * RNG.lognormal(0.0, 0.2, 1000)
    found = dated(np.arange(1000) * 1_000_000, values, None)
    assert found is not None
    first, last = (moment.timestamp() for moment in found.interval)
    assert first <= 500 <= last
    assert last - first < 60
    assert first <= found.at.timestamp() <= last
    assert found.before_ratio < found.after_ratio


def test_intervals_of_changes_cover_the_true_moment() -> None:
    hits = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        values = np.where(np.arange(600) < 300, 1_000.0, 1_500.0) * rng.lognormal(0.0, 0.3, 600)
        found = dated(np.arange(600) * 1_000_000, values, None)
        assert found is not None
        hits += found.interval[0].timestamp() <= 300 <= found.interval[1].timestamp()
    assert hits >= 54


def test_what_does_not_change_has_no_date() -> None:
    assert dated(np.arange(600) * 1_000_000, RNG.lognormal(0.0, 0.3, 600), None) is None
    assert dated(np.empty(0, np.int64), np.empty(0), None) is None
