"""Do requests come one by one or in bursts? Index of dispersion of the arrivals, now against before."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.repeated_calls import attempts
from overrun.analysis.words.arrays import FloatArray

# Dispersion that is this many times the baseline's (1 for a Poisson stream) is bursty: published factor 3.
MIN_BURSTS: Final = 3.0
# From this on a dispersion that was below it is distinguished from chance (independent arrivals, the width that shows most of four: 1.7 in one window of a hundred), and
# the slow requests must come among so many times as many others as requests do: 1.65 to 1.9 in simulated bursts, 0.99 to 1.2 in queues of other causes.
UNLIKELY: Final = 2.0
CROWDED_TIMES: Final = 1.5
# Width of a count: arrivals expected in it. Short enough to see a burst of seconds, long enough that a count is more than 0 or 1; own default.
PER_BIN: Final = 5.0
WIDTHS: Final = (1.0, 2.0, 4.0, 8.0)
# Fewest counts for a variance; own default.
MIN_BINS: Final = 20


# Standard errors (root of 2/n for n counts) above 1 from which a dispersion is more than chance.
CLEAR_DISPERSION_SE: Final = 3.0


def of_all(dispersion: float, counts: int, kept: float) -> float:
    """Return the index of dispersion of all, of which a sample (`kept`, 0..1) has this one over so many counts.

    Thinning leaves independent arrivals what they are and makes others more like them: 1 + kept x (D - 1). What is 1 but for chance stays as it is.
    """
    return (
        1.0 + (dispersion - 1.0) / kept
        if dispersion - 1.0 > CLEAR_DISPERSION_SE * math.sqrt(2.0 / max(counts, 1))
        else dispersion
    )


def dispersion(start_s: FloatArray, from_s: float, to_s: float, width_s: float) -> float | None:
    """Return variance over mean of the counts in bins of `width_s` (1 for Poisson arrivals), None below 20 bins.

    The variance is that of von Neumann, half the mean square of successive differences: a rate that rises with the day, drops with a deploy, or falls
    because nobody asks again before the answer is there, is no burst (of 240 s of 6 requests/s falling evenly to a fifth, the usual variance makes 9).
    """
    bins = int((to_s - from_s) / width_s)
    if bins < MIN_BINS:
        return None
    counts, _ = np.histogram(start_s, bins=bins, range=(from_s, from_s + bins * width_s))
    mean = float(counts.mean())
    return float((np.diff(counts) ** 2).mean() / (2.0 * mean)) if mean > 0.0 else None


def arrival_dispersion(case: Case) -> tuple[float | None, float | None]:
    """Return the index of dispersion of the requests now and before, in bins of equal length: the length at which they differ most.

    Of a short baseline only the shorter lengths are known: a longer one has nothing to be compared with, and counts where none is known of both.
    """
    now, usual = (_arrivals(calls) for calls in _asked(case))
    if len(now) < MIN_BINS * PER_BIN:
        return None, None
    width = _width_s(now)
    told: list[tuple[float | None, float | None]] = []
    # The burst's own length is not known: the width at which the two sides differ most tells.
    for factor in WIDTHS:
        sides = []
        for start in (now, usual):
            one = (
                dispersion(start, float(start.min()), float(start.max()), factor * width)
                if len(start)
                else None
            )
            sides.append(
                None
                if one is None
                else of_all(one, int((start.max() - start.min()) / (factor * width)), case.kept)
            )
        told.append((sides[0], sides[1]))
    alone = [pair for pair in told if pair[0] is not None]
    of_both = [pair for pair in alone if pair[1] is not None]
    return max(of_both or alone, key=lambda pair: _over(*pair), default=(None, None))


def crowding(case: Case) -> float:
    """Return among how many other requests the slow ones came (in the time in which 5 do), over the same of all requests; 1 where there are too few.

    Of a sample it is led back to all of them, among whom the contrast is so much stronger."""
    now, slow = _arrivals(_asked(case)[0]), _arrivals(case.slow_calls)
    if len(now) < MIN_BINS * PER_BIN or not len(slow):
        return 1.0
    width = _width_s(now)
    met = [
        float(
            (
                np.searchsorted(now, at, side="right")
                - np.searchsorted(now, at - width, side="left")
            ).mean()
        )
        for at in (slow, now)
    ]
    return 1.0 + (met[0] / met[1] - 1.0) / case.kept


def _asked(case: Case) -> tuple[Calls, Calls | None]:
    """The calls now and before to what the slow requests wait for: their engines, or the one model. Those of other services to others are in nobody's way."""
    if case.slow_calls.has_engine.any():
        return case.served
    return case.calls.of_kind(
        model=case.slowest_model
    ), None if case.calls_before is None else case.calls_before.of_kind(model=case.slowest_model)


def _width_s(start_s: FloatArray) -> float:
    """The time in which `PER_BIN` requests come on the average, a second at least."""
    return max(1.0, PER_BIN * float(start_s.max() - start_s.min()) / len(start_s))


def _arrivals(calls: Calls | None) -> FloatArray:
    """When requests came: the first call of each trace that repeats no other one. Retries and steps come in bursts of their own making."""
    if calls is None or not len(calls):
        return np.empty(0)
    first = (
        calls.frame.filter(~pl.Series(attempts(calls).repeat))
        .group_by("trace_key")
        .agg(pl.col("start_s").min())
    )
    return np.sort(first["start_s"].to_numpy())


def _over(now: float | None, before: float | None) -> float:
    return (now or 0.0) / max(before or 1.0, 1.0)


def burstiness(case: Case) -> float:
    """Return the dispersion now over that of the baseline (over 1, a Poisson stream's, where there is none); 1 if it is not known."""
    now, before = arrival_dispersion(case)
    return 1.0 if now is None else _over(now, before)
