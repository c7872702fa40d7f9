"""Clip to budget: exact on the recorded stage times."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from analysis.budget import StageTimes
from analysis.whatif.clip import clip
from analysis.whatif.effect import effect


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@given(
    hnp.arrays(np.float64, st.tuples(st.just(2), st.integers(1, 100)), elements=st.floats(0, 1e5)), st.floats(0, 1e5)
)
def test_after_is_the_quantile_of_clipped_sums(ms: np.ndarray, limit_ms: float) -> None:
    times = StageTimes("e2e", ms[0] + ms[1], {"queue": ms[0], "decode": ms[1]})
    result = clip(times, "queue", limit_ms, metric="e2e", percentile=95.0, rng=rng())
    expected = np.percentile(np.minimum(ms[0], limit_ms) + ms[1], 95.0)
    assert result.after == pytest.approx(float(expected), abs=1e-6)
    assert result.after <= result.before + 1e-6
    assert result.interval is not None
    assert result.interval[0] <= result.interval[1]
    assert result.touched_ratio <= float((ms[0] > limit_ms).mean())


def test_stage_that_took_no_time_changes_nothing() -> None:
    times = StageTimes("e2e", np.arange(100.0), {"decode": np.arange(100.0)})
    result = clip(times, "tool", 0.0, metric="e2e", percentile=95.0, rng=rng())
    assert (result.before, result.touched_ratio) == (result.after, 0.0)


def test_interval_is_that_of_a_plain_bootstrap() -> None:
    values = np.random.default_rng(5).lognormal(6.0, 0.8, 400)
    result = effect(values, values, metric="e2e", percentile=95.0, cost={}, rng=rng())
    draws = np.random.default_rng(6).integers(0, 400, (20_000, 400))
    plain = np.percentile(np.percentile(values[draws], 95.0, axis=1), [2.5, 97.5])
    assert result.interval == pytest.approx(plain.tolist(), rel=0.05)


def test_interval_of_one_request_is_the_request() -> None:
    result = effect(np.array([7.0]), np.array([5.0]), metric="e2e", percentile=95.0, cost={}, rng=rng())
    assert (result.before, result.after, result.interval, result.touched_ratio) == (7.0, 5.0, (5.0, 5.0), 1.0)
