"""Do rules agree with the open diagnosis? A cause that speaks of another place, or that a test of the same mechanism excludes, is no more than likely."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any, Final

import msgspec
import numpy as np
import polars as pl

from overrun.analysis.contrast.explain import Window, window_of
from overrun.analysis.contrast.mechanisms import entries
from overrun.analysis.diagnosis.causal_graph import is_last
from overrun.analysis.diagnosis.ranking import Ranked
from overrun.analysis.incident.breach import Breach
from overrun.analysis.numbers.outcomes.goodput import limits_of
from overrun.analysis.numbers.stages.budget import GROUP_OF
from overrun.analysis.words.explanation import Explanation
from overrun.analysis.words.finding import Diagnosis, Finding, begun, say_ratio

# A cause that the open diagnosis contradicts is rather not than it is.
CONTRADICTED: Final = 0.45
# A place leads where it is at least so sure; a cause speaks of the groups that take such a part of its claims; own defaults.
LEADS: Final = 0.3
SPEAKS: Final = 0.25
# Rules that say which call is slow, and not why; and those that are a step and no cause.
ONLY_A_PLACE: Final = ("slow_dependency", "unattributed_time")
GENERAL: Final = (
    "slower_since",
    "one_kind",
    "size_of_input",
    "at_random",
    "more_calls",
    "new_step",
)
# What load brings about as well: it excludes no cause.
OF_LOAD: Final = ("slower_tokens",)
# Of what a sure rule advises, a cut of a whole class of calls is held against it: its answers would be gone for good. How many others it cuts is in the fix's own
# figures (`touched_ratio`); that time follows load, or that something changed, the rule has shown by figures of its own.
COUNTED: Final = ("time-out: it would cut all",)
# A mechanism is named in the verdict from this confidence on.
NAMED: Final = 0.5


@dataclass(frozen=True)
class Agreed:
    """Ranked causes, those that are contradicted with less confidence, and why: by rule. `refuted` rules speak of another place or are excluded by a sign."""

    ranked: Ranked
    doubts: dict[str, str] = field(default_factory=dict)
    refuted: Collection[str] = frozenset()


def judged(breach: Breach) -> list[Window]:
    """The judged requests of a breach and those before the window that they are compared with; where no limit is broken, by each limited latency."""
    names = list(breach.slo.limits()) if not breach.over else []
    return [_by(breach, name) for name in dict.fromkeys([breach.metric, *names])]


def _by(breach: Breach, metric: str) -> Window:
    """The requests by one latency: those that the breach judges, or all answered ones that have another."""
    slo, rows = breach.slo, breach.ok
    if metric != breach.metric:
        rows = breach.frame.rows.filter(~pl.col("error") & pl.col(f"{metric}_ms").is_not_null())
    parts = [rows]
    if breach.base is not None and _apart(breach):
        parts.insert(0, breach.base.filter(pl.col(f"{metric}_ms").is_not_null()))
    columns = [name for name in rows.columns if all(name in part.columns for part in parts)]
    limits = []
    for part in parts:
        own = limits_of(part, slo, metric)
        limits.append(np.broadcast_to(slo.limits()[metric] if own is None else own, part.height))
    every = pl.concat([part.select(columns) for part in parts], how="vertical_relaxed")
    return window_of(every, metric, np.concatenate(limits).astype(np.float64), slo.percentile)


def _apart(breach: Breach) -> bool:
    """Whether the baseline lies before the window."""
    start = breach.frame.start
    return breach.baseline is not None and start is not None and breach.baseline.end <= start


def agreed(ranked: Ranked, found: Explanation | None) -> Agreed:
    """Return the causes with no more than `CONTRADICTED` for those that the open diagnosis contradicts."""
    if found is None or (found.place_confidence or 0.0) < LEADS:
        return Agreed(ranked)
    doubts, refuted = {}, set[str]()
    for one in ranked.causes:
        rule = one.finding.rule
        wrong = _elsewhere(one, found) or _outside(rule, found) or found.excluded.get(rule)
        why = wrong or _only_a_place(rule, found)
        if why is not None:
            doubts[rule] = why
        if wrong is not None:
            refuted.add(rule)
    causes = [_doubted(one) if one.finding.rule in doubts else one for one in ranked.causes]
    causes.sort(key=lambda one: one.finding.rule in doubts)
    return Agreed(replace(ranked, causes=causes), doubts, refuted)


def _elsewhere(one: Diagnosis, found: Explanation) -> str | None:
    """Why a cause speaks of another place than the one that holds the time, None where it does not."""
    claimed = {stage: max(0.0, ms) for stage, ms in one.claims_ms.items()}
    whole = sum(claimed.values())
    speaks = {one.finding.stage} | {
        stage for stage, ms in claimed.items() if whole and ms >= SPEAKS * whole
    }
    groups = {GROUP_OF.get(stage, stage) for stage in speaks}
    holding = {GROUP_OF.get(place.stage or "", place.stage) for place in found.places}
    if groups & holding:
        return None
    return f"it speaks of {one.finding.stage}, which holds less than 12 % of the difference"


def _outside(rule: str, found: Explanation) -> str | None:
    """Why a cause that lies inside of what answers cannot hold the time, None where it can: the time passes before that begins to answer."""
    first = next(iter(found.places), None)
    if first is None or first.where != "edge" or rule not in inside():
        return None
    return "the time passes on the way to what answers, and not in it"


def _only_a_place(rule: str, found: Explanation) -> str | None:
    """Why a rule that names a call and no cause, or what remains where nothing distinguishes late calls, stands back behind a mechanism that fits; None where it
    does not."""
    fits = found.mechanism
    if fits is None or fits.confidence < NAMED or fits.id in (*GENERAL, *OF_LOAD):
        return None
    if rule in ONLY_A_PLACE:
        return "that is which call is slow, and not why"
    entry = next((one for one in entries() if one.id == fits.id), None)
    if entry is None:
        return None
    if rule in entry.over or (is_last(rule) and rule not in entry.claimed):
        return f"what distinguishes late calls is known: {fits.words}"
    return None


def _doubted(one: Diagnosis) -> Diagnosis:
    finding = msgspec.structs.replace(
        one.finding, confidence=min(one.finding.confidence, CONTRADICTED)
    )
    return replace(one, finding=finding)


def words(found: Explanation, doubts: Mapping[str, str], main: Diagnosis | None) -> str:
    """The open diagnosis as sentences: place, what distinguishes late ones, what changed, what fits, and what does not."""
    said = [found.sentence]
    if found.regularities and found.regularities[0].carried >= SPEAKS:
        said.append(f"{begun(found.regularities[0].words)}.")
    if found.changed:
        first = found.changed[0]
        said.append(
            f"Changed at the onset: {first.what} "
            + " -> ".join(one for one in (first.before or "absent", first.after or "gone"))
            + "."
        )
    fits = found.mechanism
    if fits is not None:
        said.append(f"What fits: {fits.words} ({say_ratio(fits.confidence)}).")
    if main is not None and not opens(main, found):
        why = doubts.get(main.finding.rule)
        against = f", but {why}" if why else f" or {main.rather}" if main.rather else ""
        said.append(
            f"The cause is not known: {main.finding.rule} ({say_ratio(main.finding.confidence)}) would be that {main.because}{against}."
        )
    elif fits is None:
        said.append("No known cause explains it.")
    return " ".join(said)


@functools.cache
def _tables() -> dict[str, Any]:
    text = resources.files("overrun.analysis.diagnosis").joinpath("advice_gates.toml")
    return tomllib.loads(text.read_text("utf-8"))


@functools.cache
def inside() -> frozenset[str]:
    """Rules whose cause lies inside of what answers a call."""
    return frozenset(_tables()["inside"]["rules"])


@functools.cache
def _gates() -> dict[str, re.Pattern[str]]:
    return {name: re.compile(pattern, re.I) for name, pattern in _tables()["gate"].items()}


def allowed(step: str | None, found: Explanation | None, only: Collection[str] = ()) -> bool:
    """Whether a step passes the arithmetic of the window: none of what the open diagnosis advises against is in it.

    With `only`, of the entries that begin with one of these.
    """
    if step is None or found is None:
        return True
    entries = [one for one in found.advice.avoid if not only or one.startswith(tuple(only))]
    against = {one.partition(":")[0] for one in entries}
    return not any(_gates()[name].search(step) for name in against if name in _gates())


def step_of(found: Explanation, other: str | None) -> str | None:
    """What to do first by the open diagnosis: undo what changed, else what helps against the mechanism, else another step that nothing speaks against, else what to
    look at; None where it says nothing."""
    advice = found.advice
    if advice.undo is not None:
        return f"{advice.undo}."
    steps = advice.do if found.mechanism is not None and found.mechanism.confidence >= NAMED else []
    harmless = [other] if other is not None and allowed(other, found) else []
    return next(iter([*steps, *harmless, *advice.look]), None)


def undone(
    step: str | None, reasons: dict[str, str], found: Explanation
) -> tuple[str | None, dict[str, str]]:
    """How to undo a step of the open diagnosis, with the reasons of a verdict's nulls."""
    if step is not None and found.advice.undo is not None and step.startswith(found.advice.undo):
        return "Deploy the change again once it is cleared.", reasons
    against = f"not advised: {'; '.join(found.advice.avoid)}"
    why = "there is nothing to undo" if step is not None else against
    return None, reasons | {"mitigation": against, "rollback": why}


def opens(main: Diagnosis, found: Explanation | None) -> bool:
    """Return whether a cause is the mechanism of the open diagnosis, which is said with all that it rests on."""
    fits = None if found is None else found.mechanism
    return fits is not None and fits.id == main.finding.rule


def told(why: str, found: Explanation, main: Diagnosis) -> str:
    """What a rule says that names a place and no cause, with what distinguishes the late ones of it."""
    if main.finding.rule not in ONLY_A_PLACE:
        return why
    known = [one for one in found.regularities[:1] if one.carried >= SPEAKS]
    more = [f"{begun(one.words)}." for one in known]
    if known and found.mechanism is not None:
        more.append(
            f"What fits: {found.mechanism.words} ({say_ratio(found.mechanism.confidence)})."
        )
    return " ".join([why, *more])


def without_harm(
    findings: list[Finding], found: Explanation | None, agreement: Agreed
) -> list[Finding]:
    """Return findings without fixes that the arithmetic of the window speaks against, and without those of refuted causes."""
    if found is None:
        return findings
    out = []
    for one in findings:
        only = () if one.rule in agreement.doubts else COUNTED
        refuted = one.rule in agreement.refuted
        if one.fix is None or (
            not refuted and allowed(f"{one.fix.title} {one.fix.detail}", found, only)
        ):
            out.append(one)
        else:
            against = [agreement.doubts[one.rule]] if refuted else found.advice.avoid
            why = f"not advised: {'; '.join(against)}"
            reasons = one.reasons | {"fix": why}
            out.append(msgspec.structs.replace(one, fix=None, reasons=reasons))
    return out
