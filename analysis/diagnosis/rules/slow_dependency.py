"""slow_dependency: a stage beside the model is over its budget and explains most of the excess.

Detects
    Retrieval, tool, guardrail, prompt, post-processing or network time that is over its budget at the SLO percentile.

Why it hurts
    The model cannot start before its inputs are there, and the user cannot read before the answer is checked and
    sent: exclusive time of these stages on the critical path is added to every answer one to one.

Evidence
    Share of the excess (slow against reference requests) that the stage explains, with a bootstrap interval; the
    stage's mean among slow and among reference requests; budget; the service and operation that spent it in the
    exemplar traces.

Fix
    Find the slow operation, give it a timeout with a partial result, then an index, a cache, a pool or a smaller
    model. The gain shown holds the stage to its budget in every recorded request and leaves all else as it was.

False alarms
    A stage that waits for something else (a pool, a rate limit) is slow without being the cause. Time of a call that
    runs beside the critical path is not counted, but speeding the stage up may uncover it. Too tight a configured
    budget.

Source
    Exclusive critical-path time over its budget, at least a quarter of the excess: own default. Comparing slow with typical
    requests stage by stage: Google "Critical Path Tracing" (CACM 66(1), 2023) and CRISP (USENIX ATC 2022).
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, clipped, dominated, enough, named
from overrun.analysis.evidence.case import Case, too_few_breaches
from overrun.analysis.numbers.budget import GROUP_OF
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import (
    MIN_DOMINATED,
    Diagnosis,
    Fix,
    NotEnoughData,
    Owner,
    printable,
    say_limits,
    say_ms,
)

RULE: Final = "slow_dependency"
# What to change, per stage this rule may name.
_ADVICE: Final = {
    "retrieval": "Give the search a timeout and answer with what has come; then fix its index (HNSW ef_search, top_k) "
    "and cache repeated queries.",
    "tool": "Give the tool a timeout with a fallback result and a circuit breaker; cache answers that repeat.",
    "guardrail": "Run the check on a small local model (1-3 ms on a CPU, not a remote call), or beside the model call.",
    "prompt": "Move tokenising and templating off the request loop and keep the parts that do not change.",
    "post": "Send the answer first and do storing and logging after it.",
    "network": "Keep connections open (pooling, HTTP/2) and place caller and model in one region.",
}
_OWNER: Final[dict[str, Owner]] = {"network": "platform"}


def diagnose(case: Case) -> list[Diagnosis] | NotEnoughData | None:
    """Return the slow stages with their gain, None when no such stage explains enough of the excess."""
    stages = [
        stage
        for stage in _ADVICE
        if enough(case, {stage: case.excess_ms(stage)}) or dominated(case, stage) >= MIN_DOMINATED
    ]
    stages = [
        stage
        for stage in stages
        if case.excess_ms(stage) > 0.0
        and (case.tail.reference == "baseline" or _over_budget(case, stage))
    ]
    if not stages:
        return None
    few = too_few_breaches(case)
    if few is not None:
        return few
    return [_diagnosis(case, stage) for stage in stages]


def _diagnosis(case: Case, stage: str) -> Diagnosis:
    spender = case.lookups.spender(case.exemplars(stage), stage)
    limits_ms = case.stage_limits_ms(stage)
    tail_ms, usual_ms = case.tail.tail_ms.get(stage, 0.0), case.tail.reference_ms.get(stage, 0.0)
    always, meant_ms = usual_ms > case.tail.usual_ms(stage), case.tail.usual_ms(stage)
    operation = f"{printable(spender[1])} in {printable(spender[0])}" if spender else "it"
    who = f"{stage} ({printable(spender[1])} in {printable(spender[0])})" if spender else stage
    return named(
        case,
        RULE,
        stage,
        {stage: case.excess_ms(stage)},
        Action(
            _OWNER.get(stage, "app"),
            f"Set a timeout of {say_limits(limits_ms)} on {stage} and go on without its result.",
            "Remove the timeout again; nothing is stored.",
            _fix(case, stage, who, limits_ms),
        ),
        headline=f"{who} takes {say_ms(tail_ms)} in slow and {say_ms(usual_ms)} in {case.tail.reference} requests"
        + (f", where its budget is {say_ms(meant_ms)}" if always else ""),
        because=f"{operation} takes {say_ms(tail_ms)} where "
        + (
            f"its budget is {say_ms(meant_ms)}"
            if always
            else f"{case.tail.reference} requests need {say_ms(usual_ms)}"
        ),
        evidence={
            "tail_ms": tail_ms,
            "reference_ms": usual_ms,
            "budget_ms": float(
                np.broadcast_to(limits_ms, len(case.values))[case.tail.tail_index].mean()
            ),
            "operation": printable(spender[1]) if spender else None,
        },
        # What is slow for a reason that another rule knows (its calls in a row, its new model) is named by that rule.
        weight=0.75,
        dominates=dominated(case, stage),
        service=printable(spender[0]) if spender else None,
        why_no_service=f"no span of stage {stage} was found in the exemplar traces",
    )


def _over_budget(case: Case, stage: str) -> bool:
    """Say whether the stage's own budget, or else its group's, is exceeded by the means around the SLO percentile."""
    own_ms = case.budget_ms(stage)
    if own_ms is not None:
        return case.tail.tail_ms.get(stage, 0.0) > own_ms
    group = GROUP_OF[stage]
    group_ms = case.budget_ms(group)
    spent = sum(value for name, value in case.tail.tail_ms.items() if GROUP_OF[name] == group)
    return group_ms is not None and spent > group_ms


def _fix(case: Case, stage: str, who: str, limits_ms: float | FloatArray) -> Fix:
    predicted = clipped(case, stage, limits_ms)
    return Fix(
        id="clip",
        title=f"Hold {stage} to {say_limits(limits_ms)}",
        detail=f"{_ADVICE[stage]} Look at {who} first.",
        assumption=f"{stage} never takes longer than {say_limits(limits_ms)}",
        method="exact",
        predicted=predicted,
        whatif="clip" if isinstance(limits_ms, float) else None,
        parameters={"stage": stage, "limit_ms": round(limits_ms, 3)}
        if isinstance(limits_ms, float)
        else {},
    )
