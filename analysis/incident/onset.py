"""Since when are requests not what they were? The moment at which the judged metric left its former distribution, before any limit was missed.

A fault that builds up (a cache that fills, a queue that grows) misses the limit minutes after it began; what is compared must end before it began.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from overrun.analysis.numbers.latency.percentiles import sorted_quantile
from overrun.analysis.numbers.outcomes.goodput import design_effect
from overrun.analysis.numbers.statistics.change_points import (
    MIN_ONSET_SIDE,
    in_time,
    split,
    split_interval,
)
from overrun.analysis.words.arrays import FloatArray, IntArray
from overrun.analysis.words.timestamps import from_us

# Quantiles of the first requests whose exceedance is followed: a shift of all requests shows in the lower ones, a new tail in the upper.
LEVELS: Final = (0.5, 0.75, 0.9, 0.97)
# The first part of the window that stands for "what they were", and fewest requests in it; own defaults.
FIRST_PART: Final = 0.3
MIN_FIRST: Final = 60
# Odds of being over the level that must grow by this factor: caches and sessions that warm up move them a little at any start; own default.
MIN_ODDS_GROWTH: Final = 3.0


class Onset(msgspec.Struct, kw_only=True):
    """When a metric left its former distribution, whether or not a limit was kept before: `at`, with a 95 % interval.

    `level_ms` is the level at which it shows best: `before_ratio` of the requests were above it before, `after_ratio` are since then.
    """

    at: datetime
    interval: tuple[datetime, datetime]
    level_ms: float
    before_ratio: float
    after_ratio: float


def dated(
    start_us: IntArray, values: FloatArray, at_us: int | None, *, shared: bool = False
) -> Onset | None:
    """Return the onset that is known (`at_us`, microseconds since 1970), else the moment of departure, with its interval; None where nothing changed.

    `shared` as of `departure`. None as well where fewer than `MIN_ONSET_SIDE` requests are on either side: an onset before the window has no interval in it.
    """
    start, value = in_time(start_us, values)
    if not len(start):
        return None
    at = departure(start, value, int(start[-1]) + 1, shared=shared) if at_us is None else at_us
    place = len(start) if at is None else int(np.searchsorted(start, at))
    if at is None or not MIN_ONSET_SIDE <= place <= len(start) - MIN_ONSET_SIDE:
        return None
    before = np.sort(value[:place])
    levels = [sorted_quantile(before, level) for level in LEVELS]
    found = [(*split_interval(value > level), level) for level in levels]
    first, last, _, level = max(found, key=lambda one: one[2])
    return Onset(
        at=from_us(at),
        interval=(from_us(int(start[min(first, place)])), from_us(int(start[max(last, place)]))),
        level_ms=level,
        before_ratio=float((value[:place] > level).mean()),
        after_ratio=float((value[place:] > level).mean()),
    )


def departure(
    start_us: IntArray, values: FloatArray, onset_us: int, *, shared: bool = False
) -> int | None:
    """Return when the metric left its former distribution (microseconds since 1970), at the latest at the onset; None if only at the onset.

    For each level the share of requests above it, up to a little behind the onset, is split where two shares explain it best (likelihood ratio
    above 3 log n, see `incident.find_onset`); the earliest accepted split counts. `shared`: requests of one moment have the metric in
    common, as those of one batch the time per token: n of them count like n over the design effect on either side of the split (batch means).
    """
    start, value = in_time(start_us, values)
    until = int(np.searchsorted(start, onset_us))
    first = max(MIN_FIRST, int(FIRST_PART * until))
    if until < first + MIN_ONSET_SIDE:
        return None
    known = value[:until]
    before = np.sort(known[:first])
    found = [_split(known > sorted_quantile(before, level), first, shared) for level in LEVELS]
    places = [place for place in found if place is not None]
    return int(start[min(places)]) if places else None


def _split(over: npt.NDArray[np.bool_], first: int, shared: bool) -> int | None:
    """Return the index at which the share of `over` rises for good, None where it does not, or within the part that sets the level."""
    hits: Any = np.concatenate([[0], np.cumsum(over, dtype=np.int64)])
    at = split(hits)
    if at is None or at < first:
        return None
    if shared and split(hits, max(design_effect(side) for side in (over[:at], over[at:]))) is None:
        return None
    # Half a request is added on both sides (Haldane), so that none is no division by zero.
    before, after = (
        (hit + 0.5) / (n - hit + 0.5)
        for hit, n in ((hits[at], at), (hits[-1] - hits[at], len(over) - at))
    )
    return at if after >= MIN_ODDS_GROWTH * before else None
