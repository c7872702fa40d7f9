"""Are only the first requests of a run late? Kernels that are compiled, weights that are paged in and caches that fill delay the first ones, at any load.

A run that is judged with them says how long it was: two late requests of 100 miss a P99, two of 1,000 do not.
"""

from __future__ import annotations

from math import lgamma
from typing import Final

import numpy as np

from overrun.analysis.words.arrays import BoolArray, FloatArray

# At most this part of a run's requests, or so many times what is in flight, are its first ones; own default.
MOST: Final = 0.1
AT_ONCE: Final = 2
# Nearly all of the first ones are late, and that they are the first ones is no chance (hypergeometric).
NEARLY_ALL: Final = 0.8
CHANCE: Final = 0.01


def warm_up(start_s: FloatArray, late: BoolArray, in_flight: int | None) -> int:
    """Return how many requests of a run are its warm-up: the first ones, of which nearly all are late while no later one is; 0 without one.

    `start_s` and `late` have shape (n,): when each was sent, and whether it missed a limit by its time."""
    n, bad = len(late), int(late.sum())
    most = max(int(MOST * n), AT_ONCE * (in_flight or 0))
    if not bad or bad == n:
        return 0
    first = int(np.flatnonzero(late[np.argsort(start_s, kind="stable")])[-1]) + 1
    if first > most or bad < NEARLY_ALL * first or _chance(n, bad, first) > CHANCE:
        return 0
    return first


def _chance(n: int, bad: int, first: int) -> float:
    """That `bad` requests of `n` are all among the first ones: C(first, bad) / C(n, bad)."""

    def log_of(total: int) -> float:
        return lgamma(total + 1) - lgamma(total - bad + 1)

    return float(np.exp(log_of(first) - log_of(n)))
