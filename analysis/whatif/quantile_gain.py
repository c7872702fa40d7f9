"""How much does a quantile move between the recorded times and those after a fix, and how sure is that?"""

from typing import Final

import numpy as np

from overrun.analysis.numbers.latency.percentiles import sorted_quantile
from overrun.analysis.numbers.outcomes.goodput import design_effect
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import SEED, Predicted

RESAMPLES: Final = 2000


def effect(
    before_ms: FloatArray,
    after_ms: FloatArray,
    *,
    metric: str,
    percentile: float,
    cost: dict[str, float],
    rng: np.random.Generator,
    limits_ms: float | FloatArray | None = None,
) -> Predicted:
    """Return the change of a percentile (0..100) with a 90 % percentile-bootstrap interval of the value after the fix.

    Both arrays have shape (n,), n >= 1, same order, milliseconds; `limits_ms` is the metric's limit, one for all or of that shape. The interval is about
    which requests came, not about whether the fix works as assumed.
    """
    p = percentile / 100.0
    ordered = np.sort(after_ms)
    low, high = np.percentile(resampled_quantiles(ordered, p, rng), [5.0, 95.0])
    return Predicted(
        metric=metric,
        quantile=p,
        before=sorted_quantile(np.sort(before_ms), p),
        after=sorted_quantile(ordered, p),
        interval=(float(low), float(high)),
        touched_ratio=float((after_ms != before_ms).mean()),
        cost=cost,
        over_before_ratio=None if limits_ms is None else float((before_ms > limits_ms).mean()),
        over_after_ratio=None if limits_ms is None else float((after_ms > limits_ms).mean()),
        reasons={
            "backtest_error_ratio": "arithmetic on the recorded requests: no model whose replay could be checked"
        }
        | (
            dict.fromkeys(
                ("over_before_ratio", "over_after_ratio"), f"nothing limits {metric.upper()}"
            )
            if limits_ms is None
            else {}
        ),
    )


def another_run(values: FloatArray, p: float) -> tuple[float, float]:
    """Return how far below and above (log units, >= 0, 90 %) the p-quantile of another run may lie, by what came in this one. `values` in order of arrival.

    What is measured after a change is of other requests: their quantile scatters as this one does, so the difference of both does by the root of two. Slow requests come in
    runs, and n of them tell as much as n over the design effect (`design_effect`) of independent ones.
    """
    known = values[~np.isnan(values)]
    ordered = np.sort(known)
    middle = sorted_quantile(ordered, p)
    independent = max(2.0, len(known) / design_effect(known > middle))
    hits = np.random.default_rng(SEED).beta(
        p * independent + 0.5, (1.0 - p) * independent + 0.5, RESAMPLES
    )
    low, high = np.quantile(ordered, np.quantile(hits, [0.05, 0.95]))
    least = max(middle, 1e-3)
    return (
        float(np.sqrt(2.0) * np.log(least / max(float(low), 1e-3))),
        float(np.sqrt(2.0) * np.log(max(float(high), 1e-3) / least)),
    )


def resampled_quantiles(ordered: FloatArray, p: float, rng: np.random.Generator) -> FloatArray:
    """Return `RESAMPLES` bootstrap replicates of the p-quantile of an ascending array.

    A resample's k-th smallest value is the sample at rank ceil(n U), with U the k-th of n uniform order statistics,
    which is Beta(k, n + 1 - k); its successor is drawn given U. The same distribution as resampling n values, at a
    cost that does not grow with n.
    """
    n = len(ordered)
    position = p * (n - 1)
    k = int(position) + 1
    first = rng.beta(k, n + 1 - k, RESAMPLES)
    step = rng.beta(1, n - k, RESAMPLES) if k < n else np.zeros(RESAMPLES)
    second = first + (1.0 - first) * step
    low, high = (
        ordered[np.clip(np.ceil(n * u).astype(np.intp) - 1, 0, n - 1)] for u in (first, second)
    )
    values: FloatArray = low + (high - low) * (position - int(position))
    return values
