"""How does a rule put its answer together? The parts that every finding has, so that a rule is its signature, its statistic and its words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np

from overrun.analysis.diagnosis.causal_graph import is_change
from overrun.analysis.diagnosis.confidence import confidence, sight, unlike_before
from overrun.analysis.evidence.case import Case
from overrun.analysis.whatif.quantile_gain import effect
from overrun.analysis.whatif.time_saved import saved
from overrun.analysis.words.arrays import FloatArray, IndexArray
from overrun.analysis.words.finding import (
    MIN_BREACHING,
    MIN_LISTED,
    SEED,
    Diagnosis,
    Finding,
    Fix,
    Method,
    Owner,
    Predicted,
    say_ratio,
)

RECHECK_S: Final = 300
# Metrics that are a time per token: what is saved of an answer is spread over its tokens.
PER_TOKEN: Final = ("tpot", "itl")
# What-ifs whose arithmetic leaves out no load: they take time off each request, and what its engine does is the same.
WITHOUT_LOAD: Final = frozenset(
    {"clip", "co_location", "fan_out", "hedging", "response_cache", "streaming", "timeout_fallback"}
)


@dataclass(frozen=True)
class Action:
    """What to do: who, at once, how to undo it, and what to change for good (`fix`)."""

    owner: Owner
    mitigation: str
    rollback: str
    fix: Fix
    recheck_after_s: int = RECHECK_S


def explained(case: Case, claims_ms: Mapping[str, float]) -> float:
    """Return the part (0..1) of the excess that these times per stage are; a stage is never claimed beyond its own excess."""
    whole = case.tail.excess_total_ms
    if whole <= 0.0:
        return 0.0
    part = sum(min(max(ms, 0.0), case.excess_ms(stage)) for stage, ms in claims_ms.items())
    return min(1.0, part / whole)


def enough(case: Case, claims_ms: Mapping[str, float], least: float = MIN_LISTED) -> bool:
    """Say whether these times are a part of the excess worth naming."""
    return explained(case, claims_ms) >= least


def dominated(case: Case, stage: str) -> float:
    """Return the share of slow requests of which this stage's time over its reference mean is most of what they are over theirs; see `made_slow`."""
    return made_slow(case, case.spent(stage)[case.tail.tail_index] - case.tail.usual_ms(stage))


def made_slow(case: Case, added_ms: FloatArray) -> float:
    """Return the share of slow requests of which the time that something added (shape of `tail_index`) is most of what they are over the reference.

    0 where they are fewer than a cause needs.
    """
    over = case.times.total_ms[case.tail.tail_index] - sum(
        map(case.tail.usual_ms, case.tail.tail_ms)
    )
    hits = added_ms > np.maximum(0.5 * over, 0.5 * case.tail.excess_total_ms)
    return float(hits.mean()) if int(hits.sum()) >= MIN_BREACHING else 0.0


def named(  # noqa: PLR0913
    case: Case,
    rule: str,
    stage: str,
    claims_ms: Mapping[str, float],
    action: Action,
    *,
    headline: str,
    because: str,
    evidence: Mapping[str, Any],
    service: str | None = None,
    why_no_service: str = "no single service causes it",
    among: IndexArray | None = None,
    driven: bool = False,
    dominates: float = 0.0,
    rather: str = "",
) -> Diagnosis:
    """Return the diagnosis: the rule's own evidence with sample sizes, share of the excess and exemplars added.

    The confidence follows from the share explained and from what could be seen (`confidence.py`), for every rule alike. `rather` is another explanation that the
    figures fit as well: then each of the two is half as sure. That a thing has always been so fits what only a time before shows.
    """
    share = explained(case, claims_ms)
    rather = rather or (unlike_before(case, rule) if is_change(rule) else "")
    seen = sight(case, rule, share, fits=2 if rather else 1)
    finding = Finding(
        rule=rule,
        stage=stage,
        service=service,
        severity=case.severity(),
        confidence=confidence(seen),
        headline=f"{headline}; that is {say_ratio(share)} of the excess",
        evidence={
            "n": len(case.values),
            "n_breaching": int(case.breaching.sum()),
            "n_tail": len(case.tail.tail_index),
            "n_reference": case.tail.reference_n,
            "reference": case.tail.reference,
            "share_of_excess": share,
            "seen": seen._asdict(),
            "claims_ms": {name: ms for name, ms in claims_ms.items() if ms > 0.0},
            "stage_share_of_excess": case.tail.share(stage),
            "stage_share_of_excess_interval": case.share_interval(stage),
            **evidence,
        },
        exemplars=case.exemplars(stage, among),
        fix=_reaching(case, action.fix),
        reasons={} if service else {"service": why_no_service},
    )
    return Diagnosis(
        finding,
        dict(claims_ms),
        because,
        action.owner,
        action.mitigation,
        action.rollback,
        action.recheck_after_s,
        driven,
        dominates,
        rather=rather,
    )


def in_stage(answer: Diagnosis, stage: str) -> Diagnosis:
    """Return an answer whose time is lost in another stage than the one that recorded it; its claims stay with that one."""
    return replace(answer, finding=msgspec.structs.replace(answer.finding, stage=stage))


def bound_fix(  # noqa: PLR0913
    case: Case,
    id_: str,
    title: str,
    detail: str,
    assumption: str,
    saved_ms: FloatArray,
    *,
    cost: dict[str, float] | None = None,
    whatif: str | None = None,
    parameters: Mapping[str, float | str] | None = None,
) -> Fix:
    """Return a fix whose gain is exact arithmetic: `saved_ms` (shape (n,)) off each request, its effect on the load of others left out.

    `whatif` with its parameters is the simulation that can tell more.
    """
    return Fix(
        id=id_,
        title=title,
        detail=detail,
        assumption=assumption,
        method="exact",
        predicted=gain(case, saved_ms, cost=cost),
        whatif=whatif,
        parameters=dict(parameters or {}),
    )


def _reaching(case: Case, fix: Fix | None) -> Fix | None:
    """Return a fix by arithmetic as a bound, with an interval down to the baseline's percentile where a what-if could simulate it: the work that it takes off
    an engine speeds up the others as well."""
    if fix is None or fix.method != "exact" or fix.whatif in WITHOUT_LOAD or fix.predicted is None:
        return fix
    told = msgspec.structs.replace(fix.predicted, bound=True)
    fix = msgspec.structs.replace(fix, predicted=told)
    if (
        fix.whatif is None
        or told.interval is None
        or case.usual_ms is None
        or case.usual_ms >= told.interval[0]
    ):
        return fix
    why = "down to the baseline's percentile at most: the gain of other requests from the saved work is not computed"
    return msgspec.structs.replace(
        fix,
        predicted=msgspec.structs.replace(told, interval=(case.usual_ms, told.interval[1])),
        reasons={**fix.reasons, "interval": why},
    )


def gain(case: Case, saved_ms: FloatArray, *, cost: dict[str, float] | None = None) -> Predicted:
    """Return the judged percentile of the successful requests with `saved_ms` (shape (n,)) taken off each; of a time per token, off what its tokens take."""
    some, limits_ms = case.answered, np.broadcast_to(case.limits_ms, len(case.values))
    if case.metric in PER_TOKEN:
        writing = np.maximum(case.spent("decode") + case.spent("generation"), 1e-9)
        kept = 1.0 - np.clip(np.maximum(saved_ms, 0.0) / writing, 0.0, 1.0)
        return effect(
            case.values[some],
            (case.values * kept)[some],
            metric=case.metric,
            percentile=case.slo.percentile,
            cost=cost or {},
            rng=np.random.default_rng(SEED),
            limits_ms=limits_ms[some],
        )
    return saved(
        case.times.take(some),
        saved_ms[some],
        metric=case.metric,
        percentile=case.slo.percentile,
        rng=np.random.default_rng(SEED),
        cost=cost,
        limits_ms=limits_ms[some],
    )


def clipped(case: Case, stage: str, limits_ms: float | FloatArray) -> Predicted:
    """Return the judged percentile of the successful requests with a stage held to `limits_ms` (one number, or one per request)."""
    return gain(case, np.maximum(case.spent(stage) - limits_ms, 0.0))


def open_fix(
    id_: str, title: str, detail: str, assumption: str, why: str, method: Method = "estimate"
) -> Fix:
    """Return a fix whose gain these data cannot give, and why."""
    return Fix(
        id=id_,
        title=title,
        detail=detail,
        assumption=assumption,
        method=method,
        predicted=None,
        reasons={"predicted": why},
    )
