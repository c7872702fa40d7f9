"""slow_dependency: a stage beside the model is over its budget and explains most of the excess.

Detects
    Retrieval, tool, guardrail, prompt, post-processing, network or KV transfer time that is over its budget at the SLO
    percentile; also time in spans inside a gateway, or of a kind that no vocabulary knows, if they hold no other span.

Why it hurts
    The model cannot start before its inputs are there, and the user cannot read before the answer is checked
    and sent. Exclusive time of these stages on the critical path is added to every answer.

Evidence
    Share of the excess (slow against reference requests) that the stage explains, with a bootstrap interval; the
    stage's mean among slow and among reference requests; budget; the operations that spend it (service, method or
    span name, host, path or collection): their own time without that of their children, calls a request, and how
    many of these calls are long.

Fix
    It depends on the operation. Telemetry leaves the request path. Writes come after the answer or in one
    batch. Key and quota checks are cached for seconds. A search gets a timeout and an index. An advised timeout
    is above the P95 of healthy calls. The gain shown limits the stage to its budget, or to the P95 of healthy
    requests if that is more, and changes nothing else.

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

from overrun.analysis.diagnosis.rule_answer import Action, dominated, enough, gain, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.operations import LONG, MIN_CALLS, MOST_TOLD, Operation
from overrun.analysis.evidence.shared_tenant import shared_tenant
from overrun.analysis.evidence.thresholds import MOST
from overrun.analysis.numbers.stages.budget import GROUP_OF, OTHER
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
STAGES: Final = ("retrieval", "tool", "guardrail", "prompt", "post", "network", "kv_transfer")
# Of these only what spans without others inside take: the rest is nobody's, or waits in a proxy.
NAMED_ONLY: Final = ("gateway", OTHER)
# What to change, per purpose of the operation that spends the time (`overrun.analysis.evidence.operations`).
_SEARCH: Final = "Give the search a timeout and answer with the results that arrived; then fix its index (HNSW ef_search, top_k) and cache repeated queries."
_HOP: Final = (
    "Keep connections and sessions open (pooling, HTTP/2) instead of opening one per call, look at what the caller waits for before the other side begins, "
    "and place both in one region."
)
_ADVICE: Final = {
    "vendor": "Send telemetry in the background: in batches, after the answer, from a bounded queue that drops the overflow. No request then waits for its receiver.",
    "write": "Write in one batch or transaction after the answer, or beside the next step; then look at locks, commits and the connection pool of the "
    "database.",
    "pool": "Release connections earlier: close the session before the model is called, and open another one to store the answer, so that no stream holds one for as "
    "long as it lasts. Then raise the pool (pool_size, max_overflow; maximumPoolSize) as far as the database allows.",
    "read": "Query once instead of row by row, add the index that the statement lacks, and cache rows that repeat; then look at the database's pool and locks.",
    "check": "Keep the result of the check (key, quota, permission) in the process for some seconds, and check beside the next step instead of before it.",
    "search": _SEARCH,
    "embedding": "Separate embeddings of questions from those of imports (another deployment or quota), and cache the vectors of repeated questions.",
    "rerank": "Rerank fewer candidates or with a smaller model, with a timeout after which the search's own order is used.",
    "guardrail": "Run the check on a small local model (1-3 ms on a CPU, not a remote call), or beside the model call.",
    "tool": "Give the tool a timeout with a fallback result and a circuit breaker; cache repeated answers.",
    "prompt": "Move tokenising and templating off the request loop and keep the parts that do not change.",
    "http": "Look into that service: why does it answer late? Cache repeated answers, and give it a timeout with a fallback and a circuit breaker.",
    "hop": _HOP,
}
# Where calls are as long as ever and their number grew.
_FEWER: Final = "Find what repeats it (a loop, a retry, a check for each piece), keep what it gave, or ask for all at once."
# Where no span says who spends the time, and of a service's own code: by the stage alone.
_OF_STAGE: Final = {
    "retrieval": _SEARCH,
    "tool": _ADVICE["tool"],
    "guardrail": _ADVICE["guardrail"],
    "prompt": _ADVICE["prompt"],
    "post": "Send the answer first, then store and log.",
    "network": _HOP,
    "kv_transfer": "Look at the connection between the engines (NIXL, Mooncake, RDMA) and at how many transfers share it; read and write on one engine until it is mended.",
    "gateway": "Keep what it asks for in the process for some seconds, and ask once for all.",
    OTHER: "Ask for it less often, beside the next step, or keep what it gives for some seconds.",
}
_OWNER: Final[dict[str, Owner]] = {
    "network": "platform",
    "kv_transfer": "platform",
    "gateway": "platform",
}
# A time-out stands this much above what 95 % of the healthy calls take, so that one of their slower ones is not cut off; own default.
TIMEOUT_OVER_P95: Final = 1.2
# Purposes of a call that an answer can do without.
_SPARED: Final = ("vendor", "search", "rerank", "tool", "http", "guardrail")


def diagnose(case: Case) -> list[Diagnosis] | NotEnoughData | None:
    """Return the slow stages with their gain, None when no such stage explains enough of the excess."""
    stages = [
        stage
        for stage in STAGES
        if enough(case, {stage: case.excess_ms(stage)}) or dominated(case, stage) >= MIN_DOMINATED
    ]
    stages += [
        stage
        for stage in NAMED_ONLY
        if enough(case, {stage: case.excess_ms(stage)})
        and enough(case, {stage: _excess_ms(case, stage)})
    ]
    stages = [
        stage
        for stage in stages
        if case.excess_ms(stage) > 0.0
        and (case.tail.reference == "baseline" or _over_budget(case, stage))
    ]
    if not stages:
        return None
    told: list[Diagnosis] = []
    taken: set[str] = set()
    for stage in sorted(stages, key=lambda one: -case.excess_ms(one)):
        if stage not in taken:
            also = _also(case, stage)
            taken |= {stage, *also}
            told.append(_diagnosis(case, stage, also))
    return told


def _excess_ms(case: Case, stage: str) -> float:
    """Return what slow requests take longer in a stage, as far as it is a dependency's."""
    whole_ms = case.excess_ms(stage)
    return (
        min(whole_ms, case.operations.named_excess_ms(stage)) if stage in NAMED_ONLY else whole_ms
    )


def _spender(case: Case, stage: str) -> Operation | None:
    return case.operations.most(stage, leaves=stage in NAMED_ONLY)


def _also(case: Case, stage: str) -> list[str]:
    """Return the other stages that the same operation makes slow: one host may serve searches and tools."""
    spender = _spender(case, stage)
    return [
        other
        for other in STAGES
        if other != stage
        and spender is not None
        and case.excess_ms(other) > 0.0
        and spender.same(case.operations.most(other))
    ]


def _diagnosis(case: Case, stage: str, also: list[str]) -> Diagnosis:
    spender = _spender(case, stage)
    stages = [stage, *also]
    limits_ms, asked_ms = _limits(case, stage, spender)
    tail_ms, usual_ms, meant_ms = (
        sum(found)
        for found in zip(
            *(
                (
                    case.tail.tail_ms.get(one, 0.0),
                    case.tail.reference_ms.get(one, 0.0),
                    case.tail.usual_ms(one),
                )
                for one in stages
            ),
            strict=True,
        )
    )
    always = usual_ms > meant_ms
    what = f"{' and '.join(stages)} ({spender.label})" if spender else stage
    needed = (
        f"its budget is {say_ms(meant_ms)}"
        if always
        else f"{case.tail.reference} requests need {say_ms(usual_ms)}"
    )
    # Calls are counted over all stages that they stand in.
    shape = case.operations.whole(spender).shape if spender else ""
    mitigation, rollback = _at_once(stage, spender, asked_ms)
    tenant = shared_tenant(case)
    return named(
        case,
        RULE,
        stage,
        {one: _excess_ms(case, one) for one in stages},
        Action(_owner(stage, spender), mitigation, rollback, _fix(case, stages, what, spender)),
        headline=f"{what} takes {say_ms(tail_ms)} in slow and {say_ms(usual_ms)} in {case.tail.reference} requests"
        + (f"; its budget is {say_ms(meant_ms)}" if always else "")
        + (f": {shape}" if shape else ""),
        because=_because(case, stages, spender, f"{say_ms(tail_ms)}, but {needed}")
        + (f" ({shape})" if shape else "")
        + (f"; {tenant.said}" if tenant else ""),
        evidence={
            "tail_ms": tail_ms,
            "reference_ms": usual_ms,
            "budget_ms": float(
                np.broadcast_to(limits_ms, len(case.values))[case.tail.tail_index].mean()
            ),
            "operation": spender.name if spender else None,
            "tenant": tenant.name if tenant else None,
            "operations": [
                one.told() for part in stages for one in case.operations.of_stage(part)[:MOST_TOLD]
            ],
        },
        # What is slow for a reason that another rule knows (its calls in a row, its new model) is named by that rule.
        dominates=dominated(case, stage),
        service=printable(spender.service) if spender else None,
        why_no_service=f"no span of stage {stage} was found in the slow requests",
    )


def _because(case: Case, stages: list[str], spender: Operation | None, took: str) -> str:
    """Who takes so long, as a clause: the operation that spends it where that is most of the stage's excess."""
    if spender is None:
        return f"it takes {took}"
    after = " after the answer" if spender.after_answer and spender.purpose == "vendor" else ""
    others = [
        one.label
        for stage in stages
        for one in case.operations.of_stage(stage)
        if not one.same(spender) and one.excess_ms > MOST * max(spender.excess_ms, 0.0)
    ]
    if others and spender.excess_ms > 0.0:
        return f"{spender.label} and {' and '.join(others[:2])} take {took}"
    waits = ": a free connection is waited for" if spender.purpose == "pool" else ""
    return f"{spender.label}{after} takes {took}{waits}"


def _owner(stage: str, spender: Operation | None) -> Owner:
    """Whose it is: the way to another service is the platform's, what an application asks for on it is its own."""
    return (
        "app"
        if spender is not None and spender.purpose not in ("hop", "own", "model")
        else _OWNER.get(stage, "app")
    )


def _limits(
    case: Case, stage: str, spender: Operation | None
) -> tuple[float | FloatArray, float | None]:
    """Return what a request may spend on the stage if it is mended, and the time-out of one call that does not cut healthy ones, None where there is none.

    Neither lies below what 95 % of the healthy requests, and of their calls, need.
    """
    limits_ms = case.stage_limits_ms(stage)
    if spender is None or spender.healthy_p95_ms is None:
        return limits_ms, None
    spent = np.sort(case.operations.spent(stage))
    least = float(np.percentile(spent, 95.0)) if len(spent) >= MIN_CALLS else 0.0
    if least < case.tail.tail_ms.get(stage, 0.0) / LONG:
        limits_ms = np.maximum(limits_ms, least)
        limits_ms = float(limits_ms) if np.ndim(limits_ms) == 0 else limits_ms
    allowed = float(np.min(limits_ms)) / max(spender.calls, 1.0)
    asked_ms = max(allowed, TIMEOUT_OVER_P95 * spender.healthy_p95_ms)
    cuts = len(spender.took_ms) > 0 and float(spender.took_ms.max()) > asked_ms
    return limits_ms, asked_ms if cuts else None


def _at_once(stage: str, spender: Operation | None, asked_ms: float | None) -> tuple[str, str]:
    """What to do now and how to undo it. A call that the answer needs is never cut off."""
    if spender is None:
        return (
            f"Set a timeout on {stage} above its time in healthy requests, and continue without its result.",
            "Remove the timeout again; nothing is stored.",
        )
    if spender.purpose == "vendor":
        timeout = f", or give it a timeout of {say_ms(asked_ms)}" if asked_ms else ""
        return (
            f"Switch off {spender.name} in {printable(spender.service)}{timeout}: no answer needs it.",
            "Switch it on again. Telemetry of the meantime is lost.",
        )
    if spender.purpose == "pool":
        return (
            f"Raise the pool of database connections of {printable(spender.service)}, or start another instance of it: requests wait for a free one.",
            "Lower the pool again when connections are released earlier.",
        )
    if spender.repeats and spender.usual_calls:
        return (
            f"Call {spender.label} as seldom as before, {spender.usual_calls:.2g} a request instead of {spender.calls:.2g}: "
            "one call takes no longer than before, so a timeout would not help.",
            "Let it be called as often again.",
        )
    if spender.repeats:
        return (
            f"Roll back what brought {spender.label}: no request called it before.",
            "Bring it back when it is quick or seldom.",
        )
    if spender.purpose in _SPARED and asked_ms is not None:
        return (
            f"Set a timeout of {say_ms(asked_ms)} on {spender.label} and continue without its result.",
            "Remove the timeout again; nothing is stored.",
        )
    return (
        f"Roll back what changed around {spender.label}, or reduce the load on the service that answers it.",
        "Restore it when it is as quick as before.",
    )


def _title(spender: Operation | None, said: str) -> str:
    purpose = None if spender is None else spender.purpose
    if spender is not None and purpose in ("vendor", "write"):
        return f"Move {spender.name} out of the request path"
    return "Release database connections earlier" if purpose == "pool" else f"Limit {said}"


def _over_budget(case: Case, stage: str) -> bool:
    """Return whether the stage's own budget, or else its group's, is exceeded by the means around the SLO percentile."""
    own_ms = case.budget_ms(stage)
    if own_ms is not None:
        return case.tail.tail_ms.get(stage, 0.0) > own_ms
    group = GROUP_OF[stage]
    group_ms = case.budget_ms(group)
    spent = sum(value for name, value in case.tail.tail_ms.items() if GROUP_OF[name] == group)
    return group_ms is not None and spent > group_ms


def _fix(case: Case, stages: list[str], what: str, spender: Operation | None) -> Fix:
    held = {stage: _limits(case, stage, spender)[0] for stage in stages}
    saved_ms = sum(np.maximum(case.spent(stage) - limit, 0.0) for stage, limit in held.items())
    advice = (_ADVICE.get(spender.purpose) if spender else None) or _OF_STAGE[stages[0]]
    if spender is not None and spender.repeats and spender.usual_calls:
        advice = _FEWER
    said = " and ".join(f"{stage} to {say_limits(limit)}" for stage, limit in held.items())
    never = " and ".join(
        f"{stage} never takes longer than {say_limits(limit)}" for stage, limit in held.items()
    )
    limit_ms = held[stages[0]]
    alone = len(stages) == 1 and isinstance(limit_ms, float)
    return Fix(
        id="clip",
        title=_title(spender, said),
        detail=f"{advice} Look at {what} first.",
        assumption=never,
        method="exact",
        predicted=gain(case, np.asarray(saved_ms)),
        whatif="clip" if alone else None,
        parameters={"stage": stages[0], "limit_ms": round(float(limit_ms), 3)}
        if alone and isinstance(limit_ms, float)
        else {},
    )
