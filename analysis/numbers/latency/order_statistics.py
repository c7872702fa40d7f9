"""Which values stand at certain places of an order that nobody wants to read whole? The stretches around them, which a sample shows, and what is read there.

Whoever asks counts the values per stretch, and reads those within one. The counts below a stretch say where its values stand, so that the answer is exact,
however the sample fell; a place that no stretch holds shows that they were too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np

from overrun.analysis.words.arrays import FloatArray

# Standard errors of a sample's rank between a percentile and the edges that are laid around it, and where those did not hold it: one in 150,000 by chance.
NEAR: Final = 4.5
FAR: Final = 40.0

Piece: TypeAlias = tuple[float, float]
"""A stretch [low, high) of values."""


def pieces(ordered: FloatArray, shares: Iterable[float], wide: float) -> list[Piece]:
    """Return the stretches around quantiles (0..1, ascending) of an ascending sample, `wide` standard errors of its ranks on either side, joined where
    they meet."""
    m = len(ordered)
    out: list[Piece] = []
    for p in shares:
        half = wide * math.sqrt(p * (1.0 - p) / max(m, 1)) + wide / max(m, 1)
        first, last = math.floor(m * (p - half)), math.ceil(m * (p + half))
        low = -math.inf if first <= 0 else float(ordered[first - 1])
        high = math.inf if last >= m else float(np.nextafter(ordered[last], math.inf))
        if out and low <= out[-1][1]:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return out


def stretch_of(column: str, around: Sequence[Piece]) -> str:
    """Return SQL for the number of the stretch that a value lies in: odd within one of the pieces, even between them."""
    edges = [edge for piece in around for edge in piece]
    cases = " ".join(
        f"when {column} < cast('{edge!r}' as double) then {k}"
        for k, edge in enumerate(edges)
        if math.isfinite(edge)
    )
    last = len(edges) if math.isfinite(edges[-1]) else len(edges) - 1
    return f"case {cases} else {last} end" if cases else f"{last}"


def between(low: float, high: float, place: float) -> float:
    """Return what stands at a place between the values at the whole places around it, in numpy's form: exact at both ends and monotone."""
    t = place - math.floor(place)
    return high - (high - low) * (1.0 - t) if t >= 0.5 else low + (high - low) * t
