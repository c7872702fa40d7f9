"""How fast does an endpoint write, over all its tokens, now and before?"""

from __future__ import annotations

from typing import Final

import numpy as np

from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.demand import MIN_GROWTH
from overrun.analysis.evidence.thresholds import LONGER

# Part of the calls, the slowest, that is left out of the mean pace: a stuck stream or two are no sag; own default.
TRIMMED: Final = 0.01


def some_slow(case: Case, slow: Calls, usual_ms: float) -> float | None:
    """Return the share of the slow requests' calls written slowly, where most other calls keep their pace (a slow host); None where all calls slowed."""
    if case.calls_before is None:
        return None
    sides = [
        side.where(~side.has_engine).median("tpot_ms") for side in (case.calls, case.calls_before)
    ]
    if sides[0] is None or sides[1] is None or sides[0] > MIN_GROWTH * sides[1]:
        return None
    return float((slow.of("tpot_ms") > LONGER * usual_ms).mean())


def pooled(calls: Calls) -> float:
    """Return the time per token over all tokens of these calls."""
    tokens = np.maximum(calls.of("output_tokens") - 1.0, 0.0)
    both = known(calls.of("tpot_ms"), tokens) & (tokens > 0.0)
    return (
        float((calls.of("tpot_ms")[both] * tokens[both]).sum() / tokens[both].sum())
        if both.any()
        else 0.0
    )


def overall_ratio(case: Case) -> float | None:
    """Return the mean time per token over all calls but the slowest hundredth, now over before; None without a baseline.

    A mean, since a provider that sags for minutes on end leaves the median of an hour where it was.
    """
    if case.calls_before is None:
        return None
    sides = [
        side.of("tpot_ms")[~side.has_engine & known(side.of("tpot_ms"))]
        for side in (case.calls, case.calls_before)
    ]
    if min(len(side) for side in sides) < MIN_CALLS:
        return None
    means = [float(side[side <= np.quantile(side, 1.0 - TRIMMED)].mean()) for side in sides]
    return means[0] / max(means[1], 1e-3)
