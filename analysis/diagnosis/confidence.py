"""How sure is a named cause? As often as causes that explain as much of the excess were right, in windows that taught no rule.

`python -m tests.benchmarks.calibration` fits the curve on simulated faults of a seed that was not looked at, and on real engines and telemetry of public reports
without token counts, engine metrics, half of their traces or a baseline. docs/results/confidence.json holds it against the worlds that it was not fitted on.
"""

from __future__ import annotations

from typing import Final

import numpy as np

# Share of the excess that a cause explains, and the part of such causes that were right; it never falls (2026-11-26, 225 causes).
CURVE: Final = ((0.35, 0.25), (0.45, 0.33), (0.68, 0.73), (0.85, 0.8), (0.99, 0.93))


def confidence(share: float) -> float:
    """Return how sure a cause is (0..1) that explains this share (0..1) of the excess."""
    shares, right = zip(*CURVE, strict=True)
    return round(float(np.interp(share, shares, right)), 2)
