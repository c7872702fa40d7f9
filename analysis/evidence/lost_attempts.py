"""What do attempts that nobody waited for cost, and do they follow slowness?"""

from __future__ import annotations

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import Calls, known
from overrun.analysis.evidence.repeated_calls import (
    Attempts,
)


def work_of(calls: Calls, cost_in: float, cost_out: float) -> float | None:
    """Return the mean work of a call, of those whose tokens are told (who gave up was told of none); None where none are."""
    work = cost_in * calls.new_tokens + cost_out * calls.of("output_tokens")
    return float(np.nanmean(work)) if known(work).any() else None


def lasted_s(calls: Calls) -> float:
    """Return for how many seconds at least one of these calls ran."""
    order = np.argsort(calls.of("start_s"))
    start, end = calls.of("start_s")[order], np.maximum.accumulate(calls.end_s[order])
    return float(np.maximum(0.0, end - np.maximum(start, np.r_[-np.inf, end[:-1]])).sum())


def lost_ms(calls: Calls, found: Attempts) -> dict[int, float]:
    """Return, per request (trace key), the time between its first attempt and its last one."""
    frame = pl.DataFrame(
        {"key": calls.frame["trace_key"], "ms": np.where(found.repeat, found.after_ms, 0.0)}
    )
    return dict(frame.group_by("key").agg(pl.col("ms").fill_nan(0.0).sum()).iter_rows())


def lag_correlation(calls: Calls, found: Attempts, width_s: float = 15.0) -> float | None:
    """Return the correlation of the share of repeats with the latency of the interval before; None below 8 intervals."""
    start = calls.of("start_s")
    if not len(start):
        return None
    slot = ((start - start.min()) / width_s).astype(np.int64)
    n = np.bincount(slot)
    if len(n) < 8:
        return None
    share = np.bincount(slot, found.repeat.astype(np.float64)) / np.maximum(n, 1)
    wait = np.bincount(slot, np.nan_to_num(calls.of("e2e_ms"))) / np.maximum(n, 1)
    a, b = share[1:], wait[:-1]
    return float(np.corrcoef(a, b)[0, 1]) if a.std() > 0.0 and b.std() > 0.0 else None
