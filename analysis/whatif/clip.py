"""What if one stage never took more than a limit? Exact arithmetic on the recorded stage times of each request.

It assumes that the stages beside it keep their times: true for a dependency that answers faster, a bound for a queue,
whose end also changes the load on what follows.
"""

from typing import Annotated

import numpy as np
from msgspec import Meta

from analysis.budget import STAGES, StageTimes
from analysis.errors import nearest
from analysis.finding import Predicted, say_ms
from analysis.whatif.effect import effect
from analysis.whatif.facts import Facts
from analysis.whatif.prediction import Fix, Prediction, Times, WhatIfError, predict_times, recorded


def clip(
    times: StageTimes, stage: str, limit_ms: float, *, metric: str, percentile: float, rng: np.random.Generator
) -> Predicted:
    """Return the percentile (0..100) of the path's total with `stage` held to at most `limit_ms` in every request.

    `times` has at least one request; a stage that took no time changes nothing. The fix itself costs no answers.
    """
    spent = times.ms.get(stage, np.zeros(len(times.total_ms)))
    after = times.total_ms - np.maximum(spent - limit_ms, 0.0)
    return effect(times.total_ms, after, metric=metric, percentile=percentile, cost={}, rng=rng)


def predict(
    facts: Facts,
    *,
    stage: Annotated[str, Meta(description="the stage, such as retrieval, tool, queue or network")],
    limit_ms: Annotated[float, Meta(ge=0, lt=1e9, description="the most it may take, in ms")],
) -> Prediction:
    """Return the answer for a stage held to `limit_ms`.

    Raises:
        WhatIfError: there is no such stage.
    """
    if stage not in STAGES:
        raise WhatIfError(f"stage {stage[:64]!r} is unknown: {nearest(stage, STAGES)}")
    fix = Fix("clip", f"Hold {stage} to {say_ms(limit_ms)}", f"{stage} never takes longer than {say_ms(limit_ms)} and nothing else changes",
              {"stage": stage, "limit_ms": limit_ms})
    old = recorded(facts)
    over = np.maximum(np.nan_to_num(facts.ms(f"{stage}_ms")) - limit_ms, 0.0)
    # Of a stage that stands on both sides of the first token, the saving before it is what its share there exceeds the limit by.
    over_before = np.maximum(np.nan_to_num(facts.ms(f"ttft_{stage}_ms")) - limit_ms, 0.0)
    queue = {"load": "a shorter queue also changes the load behind it, which is not modelled"} if stage == "queue" else {}
    return predict_times(facts, fix, Times(old.ttft - over_before, old.e2e - over, old.tpot), method="exact", bound=bool(queue), reasons=queue)
