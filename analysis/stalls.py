"""Do tokens come slower while prompts of others are read? The odds of it, given much against little to read meanwhile."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from analysis.budget import FloatArray
from analysis.calls import Calls, known
from analysis.speed import MIN_TOKENS

# Odds ratio above 3 with a lower limit above 1.5: published default.
MIN_ODDS: Final = 3.0
MIN_LOWER: Final = 1.5
# A call decodes slowly from this many times the usual time per token; own default.
SLOW: Final = 1.5
# A gap between chunks is a stall from this many median gaps: published factor 5.
SPIKE: Final = 5.0


class Odds(NamedTuple):
    """Odds ratio of slow tokens given much against little to read meanwhile, with its 95 % interval (Woolf, Haldane corrected)."""

    ratio: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether tokens stall for what is read beside them."""
        return self.ratio >= MIN_ODDS and self.low >= MIN_LOWER


def stall_odds(calls: Calls, met: FloatArray, usual_ms: float) -> Odds | None:
    """Compare calls that met many tokens to read a second with those that met few (`met`, shape (n,); upper and lower third); None below 30 of either."""
    token, slow_ms = calls.token_ms, calls.of("itl_max_ms")
    chosen = known(token, met) & (calls.of("output_tokens") >= MIN_TOKENS)
    stalled = np.where(known(slow_ms), slow_ms > SPIKE * usual_ms, token > SLOW * usual_ms)
    low, high = (float(q) for q in np.quantile(met[chosen], [1 / 3, 2 / 3])) if int(chosen.sum()) >= 90 else (0.0, 0.0)
    much, little = chosen & (met >= high), chosen & (met <= low)
    if min(int(much.sum()), int(little.sum())) < 30 or high <= low:
        return None
    return odds_ratio(stalled[much].astype(np.float64), stalled[little].astype(np.float64))


def odds_ratio(much: FloatArray, little: FloatArray) -> Odds:
    """Return the odds of a 1 among `much` over those among `little`, arrays of 0 and 1."""
    a, b, c, d = much.sum() + 0.5, len(much) - much.sum() + 0.5, little.sum() + 0.5, len(little) - little.sum() + 0.5
    log, error = math.log(a * d / (b * c)), math.sqrt(1 / a + 1 / b + 1 / c + 1 / d)
    return Odds(math.exp(log), math.exp(log - 1.96 * error), math.exp(log + 1.96 * error))
