"""model_changed: another model answers than before, and it is slower.

Detects
    A response model (name or snapshot) that answers since the onset and did not before, that serves the slow requests, and
    that is slower than the one it replaced in first token, pace or length.

Why it hurts
    An alias such as `gpt-4.1` may point to a new snapshot overnight, and a router may send traffic to a larger model: nothing
    in the application changed.

Evidence
    Models before and now with their shares, first token, time per token and output tokens of both, share of slow requests
    that the new one served.

Fix
    Pin the snapshot (name with its date), route back, or accept the new model with other limits. The gain gives its requests
    the former times: an estimate from the reference requests.

False alarms
    A new model for a new route is a change of traffic: it must have taken over requests of the former one. A fallback model
    that answers while the main one fails is the failure's consequence.

Source
    Response model or snapshot differs from the baseline at the onset: published signature. At least half of the slow requests
    and 1.2 times as slow: own defaults.
"""

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.new_model import _median, newcomer
from overrun.analysis.evidence.observed import ENGINE_STAGES
from overrun.analysis.words.finding import (
    Diagnosis,
    NotEnoughData,
    RuledOut,
    printable,
    say_ms,
    say_ratio,
)

RULE: Final = "model_changed"


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the new model with the gain of the former one, None when the same models answer or the new one is as fast."""
    found = newcomer(case)
    if found is None:
        return None
    (name, former, old, new, theirs, its), served, slower = found[:6], found.served, found.slower
    if not found.replaced:
        return RuledOut(
            what=RULE,
            figure=f"{printable(name)} takes {say_ratio(served)} of the slow requests' calls at {slower:.2f} times the time",
        )
    claims = {
        stage: served * min(ms, case.excess_ms(stage))
        for stage, ms in _added(case, theirs, its).items()
    }
    if not enough(case, claims):
        return None
    hit = case.rows["trace_key"].is_in(its["trace_key"].implode()).to_numpy()
    spent = sum(case.spent(stage) for stage in ENGINE_STAGES)
    what, was = printable(name), printable(former)
    fix = bound_fix(
        case,
        "pin_model",
        f"Pin {was}",
        f"Ask for {was} by its full name (with the snapshot's date) instead of an alias, and change it only with your own deployments.",
        f"{was} answers as it did before",
        np.where(hit, np.asarray(spent) * (1.0 - 1.0 / slower), 0.0),
    )
    figures = {
        f"{column}_{side}": _median(frame, column)
        for column in ("ttft_ms", "tpot_ms", "output_tokens")
        for side, frame in (("before", theirs), ("now", its))
    }
    return named(
        case,
        RULE,
        max(claims, key=lambda stage: claims[stage]),
        claims,
        Action("provider", f"Route back to {was}.", f"Route to {what} again.", fix),
        headline=f"{what} answers {say_ratio(new[name])} of the calls and {say_ratio(old.get(name, 0.0))} before, when {was} had {say_ratio(old[former])}; "
        f"it takes "
        f"{say_ms(_median(its, 'e2e_ms'))} where the former one took {say_ms(_median(theirs, 'e2e_ms'))}",
        because=f"{what} answers instead of {was}{_thinks(theirs, its)} and takes {slower:.1f} times as long",
        evidence={
            "model": what,
            "former_model": was,
            "share_now": new[name],
            "share_of_slow": served,
            "slower": slower,
            **figures,
        },
        among=np.flatnonzero(case.breaching & hit),
        why_no_service="the model is another",
    )


def _thinks(theirs: pl.DataFrame, its: pl.DataFrame) -> str:
    """Return how much of the new model's answers is reasoning, where the former one did not reason."""
    before, now, written = (
        _median(theirs, "reasoning_tokens"),
        _median(its, "reasoning_tokens"),
        _median(its, "output_tokens"),
    )
    if now <= 0.0 or before > 0.1 * now:
        return ""
    return f", reasons first ({now:,.0f} of its {written:,.0f} output tokens)"


def _added(case: Case, theirs: pl.DataFrame, its: pl.DataFrame) -> dict[str, float]:
    """Return what the new model adds to each stage of a slow request, in ms: its first token comes later, and what follows takes times as long."""
    (first0, rest0, whole0), (first1, rest1, whole1) = _quick(theirs), _quick(its)
    added = {stage: max(0.0, first1 - first0) for stage in ENGINE_STAGES}
    for stage, before, now in (("decode", rest0, rest1), ("generation", whole0, whole1)):
        added[stage] = max(0.0, 1.0 - before / max(now, 1e-9)) * case.tail.tail_ms.get(stage, 0.0)
    return added


def _quick(calls: pl.DataFrame) -> tuple[float, float, float]:
    """Return what three of four calls take at least until the first token, after it, and in all, in ms: what only some take longer has another reason."""
    times = calls.select(
        first="ttft_ms", rest=pl.col("e2e_ms") - pl.col("ttft_ms"), whole="e2e_ms"
    ).select(pl.all().quantile(0.25).fill_null(0.0))
    return times.row(0)
