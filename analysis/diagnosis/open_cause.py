"""What does a mechanism of the open diagnosis look like as a cause? The finding that outputs list, with the gain of the place's fix, where no rule knows a cause that
stands."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from overrun.analysis.contrast.mechanisms import entries
from overrun.analysis.diagnosis.agreement import GENERAL, LEADS, NAMED, ONLY_A_PLACE
from overrun.analysis.diagnosis.mitigation import owner_of_stage
from overrun.analysis.diagnosis.ranking import Ranked
from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.words.explanation import Explanation, Mechanism
from overrun.analysis.words.finding import Diagnosis, Fix, begun, printable, say_ms


def with_mechanism(case: Case, ranked: Ranked, found: Explanation | None) -> Ranked:
    """Return the causes with the mechanism that fits, before the first one that is less sure; a cause at 50 % and more, and one that names the place or the same, lead."""
    fits = None if found is None else found.mechanism
    if found is None or fits is None or fits.id in GENERAL or found.metric != case.metric:
        return ranked
    sure = any(one.finding.confidence >= NAMED for one in ranked.causes)
    same = {rule for one in entries() if one.id == fits.id for rule in one.rules}
    leads = any(one.finding.rule in (*ONLY_A_PLACE, *same) for one in ranked.causes[:1])
    if sure or leads or (found.place_confidence or 0.0) < LEADS:
        return ranked
    stages = {
        place.stage: case.excess_ms(place.stage)
        for place in found.places
        if place.stage is not None and place.stage in case.times.ms
    }
    if not stages:
        return ranked
    cause = _cause(case, found, fits, stages)
    others = [one for one in ranked.causes if one.finding.confidence > fits.confidence]
    return replace(ranked, causes=[*others, cause, *ranked.causes[len(others) :]])


def _cause(
    case: Case, found: Explanation, fits: Mechanism, claims_ms: dict[str, float]
) -> Diagnosis:
    place, stage = found.places[0], next(iter(claims_ms))
    said = [one.words for one in found.regularities[:1]]
    made = named(
        case,
        fits.id,
        stage,
        claims_ms,
        Action(
            owner_of_stage(case.times, stage),
            "",
            "",
            _fix(case, found, stage),
        ),
        headline=f"{begun(place.words)}: {fits.words}" + "".join(f" ({one})" for one in said),
        because=fits.words,
        evidence={
            "operation": place.operation,
            "excess_ms": place.excess_ms,
            "regularity": said[0] if said else None,
            "refuted": fits.refuted,
            "untested": fits.untested,
        },
        service=None if place.service is None else printable(place.service),
        why_no_service="the place is of several services",
    )
    sure = msgspec.structs.replace(made.finding, confidence=fits.confidence)
    return replace(made, finding=sure)


def _fix(case: Case, found: Explanation, stage: str) -> Fix:
    """The place brought back to its usual time: exact for a dependency, a bound where others wait for it as well."""
    usual_ms = case.tail.usual_ms(stage)
    return bound_fix(
        case,
        "clip",
        f"Bring {stage} back to {say_ms(usual_ms)}",
        next(
            iter([*found.advice.do, *found.advice.look]), "Look at the slow requests of that stage."
        ),
        f"{stage} never takes longer than {say_ms(usual_ms)}",
        np.maximum(case.spent(stage) - usual_ms, 0.0),
        whatif="clip",
        parameters={"stage": stage, "limit_ms": round(usual_ms, 3)},
    )
