"""What if one stage never took more than a limit? Exact arithmetic on the recorded stage times of each request.

Without a limit each request gets the stage budget of its own route or model. Other stages keep their times. That is true for a dependency that answers
faster, and a bound for a queue, because a shorter queue also changes the load on later stages. If engines report their times, calls that arrive earlier
run in other batches: the effect on the percentile is simulated.
"""

from typing import Annotated

import numpy as np
from msgspec import Meta

from overrun.analysis.numbers.stages.budget import (
    GROUP_OF,
    STAGES,
    StageTimes,
    budgets_for,
    path_of,
    stage_times,
)
from overrun.analysis.numbers.stages.tail import TYPICAL, band
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import (
    Fix,
    Prediction,
    Times,
    WhatIfError,
    predict_times,
    recorded,
)
from overrun.analysis.whatif.quantile_gain import effect
from overrun.analysis.whatif.shifted_calls import batches, sooner_ms
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.errors import nearest
from overrun.analysis.words.finding import Predicted, say_limits


def clip(
    times: StageTimes,
    stage: str,
    limit_ms: float | FloatArray,
    *,
    metric: str,
    percentile: float,
    rng: np.random.Generator,
    over_ms: float | FloatArray | None = None,
) -> Predicted:
    """Return the percentile (0..100) of the path's total with `stage` held to at most `limit_ms` in every request: one number, or one per request.

    `times` has at least one request; a stage that took no time changes nothing. The fix itself costs no answers. `over_ms` is the limit of the metric.
    """
    spent = times.ms.get(stage, np.zeros(len(times.total_ms)))
    after = times.total_ms - np.maximum(spent - limit_ms, 0.0)
    return effect(
        times.total_ms,
        after,
        metric=metric,
        percentile=percentile,
        cost={},
        rng=rng,
        limits_ms=over_ms,
    )


def predict(
    facts: Facts,
    *,
    stage: Annotated[str, Meta(description="the stage, such as retrieval, tool, queue or network")],
    limit_ms: Annotated[
        Annotated[float, Meta(ge=0, lt=1e9)] | None,
        Meta(
            description="the longest time of the stage, in ms; by default the budget of each request's route or model"
        ),
    ] = None,
) -> Prediction:
    """Return the answer for a stage held to `limit_ms`, or to its budgets.

    Raises:
        WhatIfError: there is no such stage, or it has no budget and no limit is given.
    """
    if stage not in STAGES:
        raise WhatIfError(f"stage {stage[:64]!r} is unknown: {nearest(stage, STAGES)}")
    limits = _budget_ms(facts, stage) if limit_ms is None else limit_ms
    said = say_limits(limits)
    fix = Fix(
        "clip",
        f"Limit {stage} to {said}",
        f"{stage} never takes longer than {said} and nothing else changes",
        {"stage": stage, **({} if limit_ms is None else {"limit_ms": limit_ms})},
    )
    old = recorded(facts)
    over = np.maximum(np.nan_to_num(facts.ms(f"{stage}_ms")) - limits, 0.0)
    # Of a stage that stands on both sides of the first token, the saving before it is what its share there exceeds the limit by.
    over_before = np.maximum(np.nan_to_num(facts.ms(f"ttft_{stage}_ms")) - limits, 0.0)
    queue = (
        {"load": "a shorter queue also changes the load on later stages; that is not modelled"}
        if stage == "queue"
        else {}
    )
    after = Times(old.ttft - over_before, old.e2e - over, old.tpot)
    met = (
        None
        if GROUP_OF[stage] == "model"
        else batches(facts, after, sooner_ms(facts, over_before, over))
    )
    return predict_times(
        facts, fix, after, method="exact", bound=bool(queue), reasons=queue, batches=met
    )


def _budget_ms(facts: Facts, stage: str) -> float | FloatArray:
    """What each request may spend on the stage: its budget, or what its group's leaves beside the usual time of the other members."""
    budgets, metric = budgets_for(facts.slo, facts.metric, facts.budgets), facts.metric
    if GROUP_OF[stage] not in budgets.group_ms and all(
        stage not in one.stage_ms for one in (budgets, *budgets.own)
    ):
        raise WhatIfError(f"{stage} has no budget where {metric.upper()} is judged: give limit_ms")
    rows = facts.requests.filter(facts.requests[f"{path_of(metric)}_ms"].is_not_null())
    times = stage_times(rows, path_of(metric))
    typical = band(times.total_ms, *TYPICAL)
    usual_ms = (
        {name: float(spent[typical].mean()) for name, spent in times.ms.items()}
        if len(typical)
        else {}
    )
    return budgets.held_ms(stage, budgets.whose(facts.requests), usual_ms)
