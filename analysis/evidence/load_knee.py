"""From which load on does each further request slow all others? A two-segment fit with an interval, and how much room is left below it.

Source of the method: segmented regression with a bootstrap of the break; Kneedle and the like find a knee in any curve, so a break counts only
when the steeper side was observed and is steeper beyond doubt.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from overrun.analysis.words.arrays import FloatArray

# Six distinct loads that span a factor of three are the least for a curve (as for the universal scalability law).
LEAST_LEVELS: Final = 6
LEAST_SPAN: Final = 3.0
LEAST_POINTS: Final = 30
_RESAMPLES: Final = 200
_CANDIDATES: Final = 40
# Points beyond the break that make it observed: a tenth of all.
_BEYOND: Final = 0.1
# The slope behind the break must be this much steeper, and the upper side of its interval inside the observed load.
_STEEPER: Final = 1.5


class Knee(msgspec.Struct, kw_only=True):
    """Where `metric` begins to rise with running requests: `at` with its 95 % interval, and the ms that one more running request costs on either side.

    `utilisation` = P95 of the observed load over `at`, `spare` = 1 - utilisation (20 to 30 % are usual). Null, with the reason, where the load never passed
    a break.
    """

    metric: str
    n: int
    at: float | None
    interval: tuple[float, float] | None
    slope_before_ms: float | None
    slope_after_ms: float | None
    load_p95: float | None
    utilisation: float | None
    spare: float | None
    reasons: dict[str, str] = {}


def load_knee(
    load: FloatArray, value_ms: FloatArray, metric: str, rng: np.random.Generator
) -> Knee:
    """Fit value = a + b load + c max(0, load - at), c > 0, to paired samples of shape (n,)."""
    n = len(load)
    out = Knee(
        metric=metric,
        n=n,
        at=None,
        interval=None,
        slope_before_ms=None,
        slope_after_ms=None,
        load_p95=float(np.percentile(load, 95.0)) if n else None,
        utilisation=None,
        spare=None,
    )
    why = _too_little(load)
    if why is None:
        keep = np.arange(n) if n <= 5_000 else rng.choice(n, 5_000, replace=False)
        x, y = load[keep], value_ms[keep]
        grid = np.unique(np.percentile(x, np.linspace(5.0, 95.0, _CANDIDATES)))
        at, before, rise = _fit(x, y, grid)
        drawn = [
            _fit(x[i], y[i], grid)
            for i in (rng.integers(0, len(x), len(x)) for _ in range(_RESAMPLES))
        ]
        breaks, rises = np.array([d[0] for d in drawn]), np.array([d[2] for d in drawn])
        low, high = (float(v) for v in np.percentile(breaks, [2.5, 97.5]))
        beyond = float((x > high).mean())
        clear = float(np.percentile(rises, 2.5)) > 0.0 and before + rise > _STEEPER * max(
            before, 0.0
        )
        if clear and beyond >= _BEYOND / 2 and float((x > at).mean()) >= _BEYOND:
            out.at, out.interval, out.slope_before_ms, out.slope_after_ms = (
                at,
                (low, high),
                before,
                before + rise,
            )
            out.utilisation = (out.load_p95 or 0.0) / at if at > 0.0 else None
            out.spare = None if out.utilisation is None else max(0.0, 1.0 - out.utilisation)
            return out
        why = f"no break shows up to a load of {float(x.max()):,.0f}: the load never reached it"
    nulls = (
        "at",
        "interval",
        "slope_before_ms",
        "slope_after_ms",
        "utilisation",
        "spare",
        *(() if n else ("load_p95",)),
    )
    out.reasons = dict.fromkeys(nulls, why)
    return out


def _too_little(load: FloatArray) -> str | None:
    levels = np.unique(load)
    if len(load) < LEAST_POINTS or len(levels) < LEAST_LEVELS:
        return f"{len(load)} samples at {len(levels)} loads: at least {LEAST_POINTS} at {LEAST_LEVELS} are needed"
    low, high = np.percentile(load, [2.0, 98.0])
    if high < LEAST_SPAN * max(low, 1.0):
        return f"the load ranged from {low:,.0f} to {high:,.0f} only: to find a knee it must vary by a factor of {LEAST_SPAN:g}"
    return None


def _fit(x: FloatArray, y: FloatArray, grid: FloatArray) -> tuple[float, float, float]:
    """Return (break, slope before, rise of the slope) with the least squared error over the grid."""
    best = (float(grid[0]), 0.0, 0.0, np.inf)
    ones = np.ones(len(x))
    for at in grid:
        design = np.column_stack([ones, x, np.maximum(0.0, x - at)])
        solution, *_ = np.linalg.lstsq(design, y, rcond=None)
        error = float(((design @ solution - y) ** 2).sum())
        if error < best[3]:
            best = (float(at), float(solution[1]), float(solution[2]), error)
    return best[0], best[1], best[2]
