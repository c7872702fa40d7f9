"""Where is a function of a few parameters least, when all one can do is evaluate it? The downhill simplex of Nelder and Mead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from overrun.analysis.words.arrays import FloatArray

# Reflection, expansion, contraction, shrinking: the values of Nelder and Mead, Computer Journal 7 (1965).
_REFLECT, _EXPAND, _CONTRACT, _SHRINK = 1.0, 2.0, 0.5, 0.5
_TOLERANCE: Final = 1e-4


def minimise(
    value: Callable[[FloatArray], float], start: FloatArray, step: FloatArray, evaluations: int
) -> tuple[FloatArray, float]:
    """Return the best point found within so many evaluations and the value there; ends early when all corners are worth the same (1e-4)."""
    points = [start.astype(np.float64)] + [
        start + step[i] * (np.arange(len(start)) == i) for i in range(len(start))
    ]
    worth = [value(point) for point in points]
    used = len(points)
    while used < evaluations:
        order = np.argsort(worth, kind="stable")
        points, worth = [points[i] for i in order], [worth[i] for i in order]
        if worth[-1] - worth[0] < _TOLERANCE * max(1e-9, abs(worth[0])):
            break
        centre = np.mean(points[:-1], axis=0)
        reflected = centre + _REFLECT * (centre - points[-1])
        at_reflected = value(reflected)
        used += 1
        if at_reflected < worth[0]:
            expanded = centre + _EXPAND * (centre - points[-1])
            at_expanded = value(expanded)
            used += 1
            points[-1], worth[-1] = (
                (expanded, at_expanded) if at_expanded < at_reflected else (reflected, at_reflected)
            )
        elif at_reflected < worth[-2]:
            points[-1], worth[-1] = reflected, at_reflected
        else:
            nearer = centre + _CONTRACT * (
                (reflected if at_reflected < worth[-1] else points[-1]) - centre
            )
            at_nearer = value(nearer)
            used += 1
            if at_nearer < min(at_reflected, worth[-1]):
                points[-1], worth[-1] = nearer, at_nearer
            else:
                points = [points[0]] + [
                    points[0] + _SHRINK * (point - points[0]) for point in points[1:]
                ]
                worth = [worth[0]] + [value(point) for point in points[1:]]
                used += len(points) - 1
    best = int(np.argmin(worth))
    return points[best], float(worth[best])
