"""How do the bins of an incident compare with those around it? Means, ratios of sums and whether a series grew, of one split of the grid."""

from __future__ import annotations

from math import sqrt
from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.stations.stretch import LEAST_BINS, WORTH, independent, steps
from overrun.analysis.words.arrays import BoolArray, FloatArray

# Standard errors from which a difference counts; own default: one of 2,000 for a single comparison, of which a state makes about ten.
CLEAR: Final = 3.5
# Fewest bins on a side of a comparison, beside the onset that LEAST_BINS dated.
_LEAST: Final = 3


class Sides(NamedTuple):
    """The bins of the incident (`now`), and those that it is compared with (`then`, None where there are none)."""

    now: BoolArray
    then: BoolArray | None

    def mean(self, values: FloatArray | None) -> float | None:
        """The mean of the incident's bins; None without a known one."""
        return mean(values, self.now)

    def former(self, values: FloatArray | None) -> float | None:
        """The mean of the other bins; None without a known one."""
        return mean(values, self.then)

    def ratio(self, values: FloatArray | None) -> float | None:
        """How many times its former mean a series is."""
        now, then = self.mean(values), self.former(values)
        return None if now is None or not then else now / then

    def clear(self, values: FloatArray | None) -> float:
        """How many standard errors lie between both means, above 0 if it grew; 0 without a comparison."""
        if values is None or self.then is None:
            return 0.0
        now, then = (values[side & np.isfinite(values)] for side in (self.now, self.then))
        if min(len(now), len(then)) < _LEAST:
            return 0.0
        error = sqrt(float(now.var()) / _samples(now) + float(then.var()) / _samples(then))
        least = 1e-9 * max(abs(float(now.mean())), abs(float(then.mean())), 1e-9)
        return float(now.mean() - then.mean()) / max(error, least)

    def grew(self, values: FloatArray | None, by: float = WORTH) -> bool:
        """Whether a series is clearly `by` times its former mean."""
        ratio = self.ratio(values)
        if ratio is None:
            new = self.former(values) == 0.0 and (self.mean(values) or 0.0) > 0.0
            return new and self.clear(values) > CLEAR
        return ratio >= by and self.clear(values) >= CLEAR

    def fell(self, values: FloatArray | None, by: float = WORTH) -> bool:
        """Whether a series is clearly a `by`-th of its former mean or less."""
        ratio = self.ratio(values)
        return ratio is not None and ratio <= 1.0 / by and self.clear(values) <= -CLEAR


def mean(values: FloatArray | None, side: BoolArray | None) -> float | None:
    """Return the mean of the known values of some bins; None without any."""
    if values is None or side is None:
        return None
    some = values[side & np.isfinite(values)]
    return float(some.mean()) if len(some) else None


def quotient(
    above: FloatArray | None, below: FloatArray | None, side: BoolArray | None
) -> float | None:
    """Return the quotient of two sums over the bins where both are known: never a mean of quotients. None without any."""
    if above is None or below is None or side is None:
        return None
    both = side & np.isfinite(above) & np.isfinite(below)
    total = float(below[both].sum())
    return float(above[both].sum()) / total if total > 0.0 else None


def each(above: FloatArray | None, below: FloatArray | None) -> FloatArray | None:
    """Return the quotient of two series in each bin, NaN where the lower one is 0; None where one is not known."""
    if above is None or below is None:
        return None
    out: FloatArray = np.divide(
        above, below, out=np.full(len(above), np.nan), where=np.nan_to_num(below) > 0.0
    )
    return out


def smooth(values: FloatArray, width: int = 3) -> FloatArray:
    """Return means of neighbouring bins: a request is counted where it ends, and a gauge sees it where it is."""
    known = np.isfinite(values)
    kernel = np.ones(min(width, len(values)))
    total = np.convolve(np.where(known, values, 0.0), kernel, "same")
    many = np.convolve(known, kernel, "same")
    out: FloatArray = np.divide(total, many, out=np.full(len(values), np.nan), where=many > 0)
    return out


def _samples(values: FloatArray) -> float:
    residual = values - steps(values, max(LEAST_BINS, len(values) // 8))
    return len(values) * independent(residual)
