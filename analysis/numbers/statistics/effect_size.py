"""How far apart are two samples?"""

from typing import Final

import numpy as np

from overrun.analysis.words.arrays import FloatArray

# Cliff's delta from which lengths differ by more than chance would interest anyone: the usual mark of a small effect.
MIN_CLIFF: Final = 0.15


def cliffs_delta(slow: FloatArray, rest: FloatArray) -> float:
    """Return P(slow > rest) - P(slow < rest) over all pairs, -1..1; the effect size of the Mann-Whitney test."""
    ordered = np.sort(rest)
    less = np.searchsorted(ordered, slow, side="left")
    greater = len(ordered) - np.searchsorted(ordered, slow, side="right")
    return float((less - greater).sum() / max(len(slow) * len(ordered), 1))
