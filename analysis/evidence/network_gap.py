"""How long is a call under way before its engine has it? The gap between a client's call and the engine's part of it, now and before."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.overlap import Flow
from overrun.analysis.numbers.statistics.effect_size import rank_correlation
from overrun.analysis.words.arrays import FloatArray

# Values most of which lie within this part of their median are one value; own default.
SAME: Final = 0.1
# Part of the network's time that must be the way to the engine where only its budget says that it is too long; own default.
MOSTLY: Final = 0.5


# Times the former gap from which one is longer; own default.
LONGER_GAP: Final = 2.0
# Spread over the median below which a gap is a constant; own default.
CONSTANT: Final = 0.25


class Gaps(NamedTuple):
    """Client time minus engine time per call now (ms, NaN unknown), its median now and before, their ratio, and its spread (IQR over median).

    `slow_ratio` is the mean of the slow requests' calls over that of as slow ones before: few calls that wait do not move a median.
    """

    now_ms: FloatArray
    median_ms: float
    before_ms: float
    ratio: float
    spread: float
    slow_ratio: float


def gap_ms(calls: Calls) -> FloatArray:
    """Return what the client waited beside the engine's own time, per call in ms; NaN where only one side told."""
    alone = calls.of("engine_alone") > 0.0
    gap = np.where(alone, np.nan, calls.of("e2e_ms") - calls.of("engine_e2e_ms"))
    out: FloatArray = np.where(gap >= 0.0, gap, np.nan)
    return out


def engine_gaps(case: Case) -> Gaps | None:
    """Return the gaps of both sides; None below 30 calls with an engine's own time on either.

    Without a baseline, what a gap may be is its part of the network's budget; None where that is kept.
    """
    now = gap_ms(case.calls)
    before = now if case.calls_before is None else gap_ms(case.calls_before)
    if min(int(known(now).sum()), int(known(before).sum())) < MIN_CALLS:
        return None
    low, middle, high = (float(q) for q in np.nanpercentile(now, [25.0, 50.0, 75.0]))
    usual = float(np.nanmedian(before))
    if case.calls_before is None:
        spent, meant = case.tail.reference_ms.get("network", 0.0), case.tail.usual_ms("network")
        theirs = float(np.nansum(gap_ms(case.usual_calls))) / max(case.tail.reference_n, 1)
        if spent <= meant or theirs < MOSTLY * spent:  # another call's way is not the engine's
            return None
        usual *= meant / spent
    slow, calm = (gap_ms(calls) for calls in (case.slow_calls, case.usual_calls))
    ratio = (
        float(np.nanmean(slow)) / max(float(np.nanmean(calm)), 0.5)
        if known(slow).any() and known(calm).any()
        else 1.0
    )
    return Gaps(
        now, middle, usual, middle / max(usual, 0.5), (high - low) / max(middle, 0.5), ratio
    )


def load_correlation(calls: Calls, values: FloatArray) -> float:
    """Return the rank correlation of a value with the number of calls in flight when the call began; 0 if it is not known."""
    chosen = known(values)
    if int(chosen.sum()) < MIN_CALLS:
        return 0.0
    middle = float(np.median(values[chosen]))
    same = float((np.abs(values[chosen] - middle) <= SAME * middle).mean()) > 0.5
    if same and float(np.percentile(values[chosen], 99.0)) <= 2.0 * middle:
        return 0.0  # a constant follows nothing; those that differ (from before the onset, for one) would decide alone
    start, end = calls.of("start_s"), calls.end_s
    flying = Flow(start, end, end - start).between(start - 0.5, start + 0.5)[chosen]
    return rank_correlation(values[chosen], flying)
