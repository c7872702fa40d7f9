"""How far apart are two samples, and how closely does one follow another?"""

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.words.arrays import FloatArray

# Cliff's delta from which lengths differ by more than chance would interest anyone: the usual mark of a small effect.
MIN_CLIFF: Final = 0.15


def cliffs_delta(slow: FloatArray, rest: FloatArray) -> float:
    """Return P(slow > rest) - P(slow < rest) over all pairs, -1..1; the effect size of the Mann-Whitney test."""
    ordered = np.sort(rest)
    less = np.searchsorted(ordered, slow, side="left")
    greater = len(ordered) - np.searchsorted(ordered, slow, side="right")
    return float((less - greater).sum() / max(len(slow) * len(ordered), 1))


def rank_correlation(a: FloatArray, b: FloatArray) -> float:
    """Return Spearman's rank correlation (-1..1) of two series of the same length; equal values share a rank. 0 where one does not vary, or below three values."""
    if len(a) < 3:
        return 0.0
    ranks = [pl.Series(side).rank().to_numpy() for side in (a, b)]
    if min(float(side.std()) for side in ranks) == 0.0:
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
