"""How certain is a share? Its interval by the number of cases."""

import math
from typing import Final

# One-sided 95 % normal quantile: a share is called below its target only when chance alone would rarely show it.
Z_ONE_SIDED: Final = 1.645
# Two-sided.
Z_95: Final = 1.96


def wilson(hits: float, n: float, z: float = Z_95) -> tuple[float, float]:
    """Return the Wilson score interval of a share, (0, 1) for n = 0. z = 1.96 gives 95 % two-sided."""
    if n == 0:
        return 0.0, 1.0
    share, zz = hits / n, z * z
    centre = (share + zz / (2 * n)) / (1 + zz / n)
    half = z / (1 + zz / n) * math.sqrt(share * (1 - share) / n + zz / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)
