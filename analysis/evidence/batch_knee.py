"""From which batch size on does each further call slow all tokens down, and do calls wait for a place?"""

from __future__ import annotations

from typing import Final

import numpy as np

from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.words.arrays import FloatArray

# A call waited for a place where it waited longer than this many steps, and so must the slowest hundredth; own defaults.
STEPS_WAITED: Final = 3.0

WAITED_AT: Final = 99.0


def waited(calls: Calls) -> bool:
    """Return whether some calls waited for a place in the batch, not for one step to end: only then can a higher limit have let more in."""
    wait, token = calls.of("queue_ms"), calls.token_ms
    both = known(wait) & calls.has_engine
    usual = float(np.nanmedian(token[both])) if known(token[both]).any() else 0.0
    return bool(both.any()) and float(np.percentile(wait[both], WAITED_AT)) > STEPS_WAITED * usual


def token_time_knee(batch: FloatArray, token_ms: FloatArray) -> float | None:
    """Return the batch size where two straight lines fit time per token best, None where one line does as well (F below 10) or sizes vary little."""
    if len(batch) < 3 * MIN_CALLS or batch.max() < 3.0 * max(batch.min(), 1.0):
        return None
    one = _residual(batch, token_ms, [])
    best = min(
        (
            (_residual(batch, token_ms, [at]), at)
            for at in np.quantile(batch, np.linspace(0.15, 0.85, 15))
        ),
        key=lambda pair: pair[0],
    )
    gain = (one - best[0]) / max(best[0] / (len(batch) - 4), 1e-12)
    return float(best[1]) if gain > 10.0 else None


def _residual(x: FloatArray, y: FloatArray, breaks: list[float]) -> float:
    columns = np.column_stack([np.ones(len(x)), x, *(np.maximum(x - at, 0.0) for at in breaks)])
    found, *_ = np.linalg.lstsq(columns, y, rcond=None)
    return float(((y - columns @ found) ** 2).sum())
