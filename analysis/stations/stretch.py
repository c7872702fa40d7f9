"""Did a series change, between which bins, by how much, and is that beyond its noise? One test for every series, with or without a limit.

The scan statistic over all stretches [at, until) by ranks (a Mann-Whitney test of the stretch against the rest, maximised), thinned for how far a value follows the
one before, and corrected for the stretches and for the number of series that were tried (Bonferroni).
"""

from __future__ import annotations

import functools
from math import erfc, log1p, sqrt
from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.words.arrays import FloatArray, IndexArray

# Fewest bins on a side: of fewer, one odd scrape is a change.
LEAST_BINS: Final = 4
# Chance of a false change after correction; own default: one of a thousand pages without any.
SURE: Final = 1e-3
# The smallest ratio that is worth a word; own default.
WORTH: Final = 1.1
# A stretch up to the end is one change, one in the middle two: the former is preferred by this factor where both fit.
_ONE_CHANGE: Final = 1.06
_DEEPEST: Final = 3
# Of n * n / 2 stretches, which overlap, so many times n count as tried apart: at 40 bins 1 of 240 shuffled recordings speaks with 4 as with 20 (n / 2), and 6 with 1; of
# 13 simulated faults 11 are dated with 4 and 7 with 20 (2026-11).
_APART: Final = 4.0
# Where a latency is known to be over its limit, only the time is asked for.
KNOWN_WORSE: Final = 1e-2


class Stretch(NamedTuple):
    """The bins [at, until) that differ most from the others: means outside and inside, standard errors between them, and the corrected chance."""

    at: int
    until: int
    before: float
    after: float
    z: float
    p: float

    @property
    def ratio(self) -> float:
        """How many times the former mean the new one is; infinite from 0."""
        if self.before > 0.0:
            return self.after / self.before
        return float("inf") if self.after > 0.0 else 1.0


def find_stretch(values: FloatArray, tried: int = 1, sure: float = SURE) -> Stretch | None:
    """Return the stretch that differs, None where noise explains every one; `tried` is how many series are looked at."""
    known = np.flatnonzero(np.isfinite(values))
    n = len(known)
    if n < 2 * LEAST_BINS + 2 or np.ptp(values[known]) <= 1e-12 * max(
        1.0, float(np.abs(values[known]).max())
    ):
        return None
    ranked = ranks(values[known])
    ranked = ranked - ranked.mean()
    a, b = _best(ranked)
    inside = np.zeros(n, np.bool_)
    inside[a:b] = True
    residual = ranked - np.where(inside, ranked[inside].mean(), ranked[~inside].mean())
    spread = float(residual.std()) or 0.5
    thinned = independent(ranked - steps(ranked, max(LEAST_BINS, n // 8)))
    error = spread * sqrt(1.0 / inside.sum() + 1.0 / (~inside).sum())
    z = abs(float(ranked[inside].mean() - ranked[~inside].mean())) / error * sqrt(thinned)
    p = min(1.0, _chance(z, n - 2.0) * _APART * n * tried)
    if a == 0:  # an onset without an end is the later part
        a, b, inside = b, n, ~inside
    means = float(values[known][~inside].mean()), float(values[known][inside].mean())
    until = int(known[b - 1]) + 1 if b < n else len(values)
    found = Stretch(int(known[a]), until, *means, z, p)
    return found if p < sure and not 1.0 / WORTH < found.ratio < WORTH else None


def _chance(t: float, freedom: float) -> float:
    """Two-sided chance of Student's t by Wallace's normal approximation (Ann. Math. Stat. 30, 1959; within 1 % of z from 3 degrees of freedom on).

    A normal tail would take ten scrapes that happen to follow one another for a change: 11 of 240 shuffled recordings of 40 bins (2026-11).
    """
    freedom = max(freedom, 1.0)
    z = sqrt(freedom * log1p(t * t / freedom)) * (8.0 * freedom + 1.0) / (8.0 * freedom + 3.0)
    return erfc(z / sqrt(2.0))


def ranks(values: FloatArray) -> FloatArray:
    """Return the rank of each value, ties by their mean rank."""
    order = np.argsort(values, kind="stable")
    rank = np.empty(len(values))
    rank[order] = np.arange(len(values))
    _, of = np.unique(values, return_inverse=True)
    means: FloatArray = (np.bincount(of, rank) / np.bincount(of))[of]
    return means


def independent(residual: FloatArray) -> float:
    """Return which part of the samples counts as independent where each follows the one before: (1 - r) / (1 + r), r up to 0.95."""
    r = residual - residual.mean()
    rho = float((r[1:] * r[:-1]).sum() / max(float((r * r).sum()), 1e-12))
    rho = min(max(rho, 0.0), 0.95)
    return (1.0 - rho) / (1.0 + rho)


def steps(values: FloatArray, least: int, deep: int = _DEEPEST) -> FloatArray:
    """Return the means of up to 2 ** deep stretches of at least so many values, parted where that explains most."""
    n = len(values)
    if deep == 0 or n < 2 * least:
        return np.full(n, values.mean())
    before, k = np.cumsum(values)[:-1], np.arange(1, n)
    gain = (before - k * values.mean()) ** 2 * n / (k * (n - k))
    gain[: least - 1] = gain[n - least :] = -1.0
    at = int(np.argmax(gain)) + 1
    parts = [steps(part, least, deep - 1) for part in (values[:at], values[at:])]
    return np.concatenate(parts)


def _best(ranked: FloatArray) -> tuple[int, int]:
    """The stretch whose mean rank lies farthest from that of the others, in standard errors."""
    n = len(ranked)
    total = np.r_[0.0, np.cumsum(ranked)]
    i, j = _pairs(n)
    k = j - i
    score = np.abs(total[j] - total[i]) / np.sqrt(k * (n - k) / n)
    best = int(np.argmax(np.where((i == 0) | (j == n), score * _ONE_CHANGE, score)))
    return int(i[best]), int(j[best])


@functools.lru_cache(8)
def _pairs(n: int) -> tuple[IndexArray, IndexArray]:
    """All stretches [i, j) of n values that leave LEAST_BINS on both sides."""
    i, j = np.triu_indices(n + 1, LEAST_BINS)
    some = j - i <= n - LEAST_BINS
    return i[some], j[some]
