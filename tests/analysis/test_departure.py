"""departure: when the metric left its former distribution, before the limit was missed."""

import numpy as np

from analysis.departure import departure

RNG = np.random.default_rng(11)


def ramp(slow_from: int, n: int = 1000) -> np.ndarray:
    """A latency of about 1,000 ms that grows by a factor of 1.005 per request from one index on."""
    return 1_000.0 * RNG.lognormal(0.0, 0.2, n) * 1.005 ** np.maximum(0, np.arange(n) - slow_from)


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
