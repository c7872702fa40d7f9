"""Did more arrive, and before it became slow? Arrivals of an open loop (what ends and what piles up), or the number of clients of a closed one.

By Little's law alone, more clients at a ceiling and a slower server at equal arrivals look the same. So a loop is open unless the number inside is proven to be what
is held: it stands still at a few levels, stiller than the rate does.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import numpy as np

from overrun.analysis.stations.onset import Onset
from overrun.analysis.stations.station import Plant
from overrun.analysis.stations.stretch import LEAST_BINS, WORTH, steps
from overrun.analysis.words.arrays import FloatArray

# The number inside counts as still within 5 % or one request, in this part of the bins; own defaults.
_STILL: Final = 0.05
_MOSTLY: Final = 0.7
# Levels of clients differ by this factor; three of them are a sweep.
_LEVELS: Final = 1.15
_SWEEP: Final = 3
_FEWEST: Final = 4.0
# Noise of the rate over that of the number inside, from which it is the number that is held.
_STILLER: Final = 2.0
# Bins around an onset that are compared with as many before, and how many standard deviations of those they must lie above.
_AROUND: Final = (-3, -2, -1, 0)
_BINS: Final = 5
_PAST: Final = 6
_ABOVE: Final = 4.0


class Demand(NamedTuple):
    """The kind of loop, how many times the former demand the present one is (None: not known), and whether it grew with the latency or before it."""

    loop: Literal["open", "closed", "unknown"]
    growth: float | None
    first: bool

    @property
    def what(self) -> str:
        """What is demanded, as words."""
        return "clients at once" if self.loop == "closed" else "arrivals"


UNKNOWN: Final = Demand("unknown", None, False)


def demand_of(plant: Plant, onset: Onset) -> Demand:
    """Return the demand on the outermost observer."""
    outer, sides = plant.outer, onset.sides
    work = None if outer is None else outer.work()
    if outer is None or work is None or sides.then is None:
        return UNKNOWN
    inside = outer.seen()
    inside = outer.inside() if inside is None else inside
    both = sides.now | sides.then
    if inside is not None and is_closed(inside[both], work[both]):
        growth = sides.ratio(inside)
        return Demand("closed", growth, growth is not None and growth >= WORTH)
    arrivals = work
    if outer.done() is not None and inside is not None:
        arrivals = work + np.r_[np.nan, np.diff(inside)] / plant.recording.grid.step_s
    growth = sides.ratio(arrivals)
    early, past = _around(arrivals, onset.at), _blocks(arrivals[sides.then])
    if early is None or not len(past) or past.mean() <= 0.0:
        return Demand("open", growth, False)
    first = early >= WORTH * past.mean() and early - past.mean() > _ABOVE * past.std()
    return Demand("open", max(early / float(past.mean()), growth or 0.0), bool(first))


def is_closed(inside: FloatArray, rate: FloatArray) -> bool:
    """Whether clients hold on to the number inside, so that the rate is the result."""
    known = np.isfinite(inside) & np.isfinite(rate)
    inside, rate = inside[known], rate[known]
    if len(inside) < 4 * LEAST_BINS or inside.mean() < _FEWEST:
        return False
    level = steps(inside, LEAST_BINS)
    still = np.abs(inside - level) <= np.maximum(_STILL * level, 1.0)
    if still.mean() < _MOSTLY:
        return False
    if len(_levels(level, still)) >= _SWEEP:
        return True
    return _noise(rate, steps(rate, LEAST_BINS)) > _STILLER * _noise(inside, level) + 0.005


def _levels(level: FloatArray, still: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[float]:
    kept: list[float] = []
    for one in sorted(set(np.round(level[still], 2).tolist())):
        if int((np.round(level, 2) == one).sum()) >= LEAST_BINS and (
            not kept or one > _LEVELS * kept[-1]
        ):
            kept.append(one)
    return kept


def _noise(values: FloatArray, level: FloatArray) -> float:
    return float(np.median(np.abs(values - level)) / max(float(values.mean()), 1e-12))


def _around(values: FloatArray, at: int) -> float | None:
    """The highest median of a few bins around an onset: a single step of the number inside is no arrival rate."""
    some = [values[max(at + shift, 0) : at + shift + _BINS] for shift in _AROUND]
    medians = [float(np.median(one[np.isfinite(one)])) for one in some if np.isfinite(one).any()]
    return max(medians, default=None)


def _blocks(values: FloatArray) -> FloatArray:
    """Means of blocks of as many bins as the others that they are compared with."""
    values = values[np.isfinite(values)]
    if len(values) < 3 * _PAST:
        return values
    means: FloatArray = values[: len(values) // _PAST * _PAST].reshape(-1, _PAST).mean(axis=1)
    return means
