"""What if one stage never took more than a limit? Exact arithmetic on the recorded stage times of each request.

It assumes that the stages beside it keep their times: true for a dependency that answers faster, a bound for a queue,
whose end also changes the load on what follows.
"""

import numpy as np

from analysis.budget import StageTimes
from analysis.finding import Predicted
from analysis.whatif.effect import effect


def clip(
    times: StageTimes, stage: str, limit_ms: float, *, metric: str, percentile: float, rng: np.random.Generator
) -> Predicted:
    """Return the percentile (0..100) of the path's total with `stage` held to at most `limit_ms` in every request.

    `times` has at least one request; a stage that took no time changes nothing. The fix itself costs no answers.
    """
    spent = times.ms.get(stage, np.zeros(len(times.total_ms)))
    after = times.total_ms - np.maximum(spent - limit_ms, 0.0)
    return effect(times.total_ms, after, metric=metric, percentile=percentile, cost={}, rng=rng)
