"""Do requests come one by one or in bursts? Index of dispersion of the arrivals, now against before."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from analysis.budget import FloatArray
from analysis.calls import Calls
from analysis.case import Case
from analysis.repeats import attempts

# Dispersion that is this many times the baseline's (1 for a Poisson stream) is bursty: published factor 3.
MIN_BURSTS: Final = 3.0
# Width of a count: arrivals expected in it. Short enough to see a burst of seconds, long enough that a count is more than 0 or 1; own default.
PER_BIN: Final = 5.0
WIDTHS: Final = (1.0, 2.0, 4.0, 8.0)
# Fewest counts for a variance; own default.
MIN_BINS: Final = 20


def dispersion(start_s: FloatArray, from_s: float, to_s: float, width_s: float) -> float | None:
    """Return variance over mean of the counts in bins of `width_s` (1 for Poisson arrivals), None below 20 bins."""
    bins = int((to_s - from_s) / width_s)
    if bins < MIN_BINS:
        return None
    counts, _ = np.histogram(start_s, bins=bins, range=(from_s, from_s + bins * width_s))
    # A trend over the window (diurnal load) is no burst: counts are compared with their own half hour's neighbours.
    around = np.convolve(counts, np.ones(MIN_BINS // 2) / (MIN_BINS // 2), mode="same") if bins >= 4 * MIN_BINS else np.full(bins, counts.mean())
    mean = float(counts.mean())
    return float(((counts - around) ** 2).mean() / mean) if mean > 0.0 else None


def arrival_dispersion(case: Case) -> tuple[float | None, float | None]:
    """Return the index of dispersion of the requests now and before, in bins of equal length: the length at which they differ most."""
    now, usual = (_arrivals(calls) for calls in (case.calls, case.calls_before))
    if len(now) < MIN_BINS * PER_BIN:
        return None, None
    width = max(1.0, PER_BIN * (now.max() - now.min()) / len(now))
    best: tuple[float | None, float | None] = (None, None)
    # The burst's own length is not known: the width at which the two sides differ most tells.
    for factor in WIDTHS:
        sides = []
        for start in (now, usual):
            sides.append(dispersion(start, float(start.min()), float(start.max()), factor * width) if len(start) else None)
        if sides[0] is not None and (best[0] is None or _over(sides[0], sides[1]) > _over(best[0], best[1])):
            best = (sides[0], sides[1])
    return best


def _arrivals(calls: Calls | None) -> FloatArray:
    """When requests came: the first call of each trace that repeats no other one. Retries and steps come in bursts of their own making."""
    if calls is None or not len(calls):
        return np.empty(0)
    first = calls.frame.filter(~pl.Series(attempts(calls).repeat)).group_by("trace_key").agg(pl.col("start_s").min())
    return np.sort(first["start_s"].to_numpy())


def _over(now: float, before: float | None) -> float:
    return now / max(before or 1.0, 1.0)


def burstiness(case: Case) -> float:
    """Return the dispersion now over that of the baseline (over 1, a Poisson stream's, where there is none); 1 where it cannot be told."""
    now, before = arrival_dispersion(case)
    return 1.0 if now is None else _over(now, before)
