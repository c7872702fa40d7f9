"""What if each request had been faster by a known time? Exact arithmetic on recorded times; for what a cause added to each request."""

import numpy as np

from overrun.analysis.numbers.stages.budget import StageTimes
from overrun.analysis.whatif.quantile_gain import effect
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import Predicted


def saved(
    times: StageTimes,
    saved_ms: FloatArray,
    *,
    metric: str,
    percentile: float,
    rng: np.random.Generator,
    cost: dict[str, float] | None = None,
    limits_ms: float | FloatArray | None = None,
) -> Predicted:
    """Return the percentile (0..100) of the path's total with `saved_ms` (shape (n,), at least 0) taken off every request, never below 0."""
    after = np.maximum(times.total_ms - np.maximum(saved_ms, 0.0), 0.0)
    return effect(
        times.total_ms,
        after,
        metric=metric,
        percentile=percentile,
        cost=cost or {},
        rng=rng,
        limits_ms=limits_ms,
    )
