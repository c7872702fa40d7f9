"""Which of the causes found are the causes? They are not independent: the first link of a chain is named, and what it explains is not blamed twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Final

import numpy as np

from overrun.analysis.diagnosis.causal_graph import brings, is_last, is_reaction, may_bring
from overrun.analysis.diagnosis.rule_answer import explained
from overrun.analysis.evidence.case import Case, too_few_breaches
from overrun.analysis.numbers.stages.budget import StageTimes
from overrun.analysis.numbers.stages.tail import Tail
from overrun.analysis.words.finding import (
    MIN_DOMINATED,
    MIN_NAMED,
    Diagnosis,
    NotEnoughData,
    RuledOut,
    say_ms,
    say_ratio,
)

# A cause goes before what it brings about where it explains at least this part of it: most of that would be gone without it.
MOST: Final = 0.5
# Causes that explain less than `MIN_NAMED` of the excess are named where most slow requests would keep their limit without them: by how much a request
# misses its limit is more than what made it miss it.
MIN_RESCUED: Final = 0.5
# Of the time that a cause of few requests claims, the part that must be left when the ones before it have taken theirs; own default.
MIN_LEFT: Final = 0.1


@dataclass(frozen=True)
class Ranked:
    """Causes (first is the verdict's), what was ruled out with its figure, and what rules lacked to answer.

    `consequences` are rules that found what a cause brings."""

    causes: list[Diagnosis]
    ruled_out: list[RuledOut]
    lacking: dict[str, str]
    consequences: frozenset[str] = frozenset()

    @property
    def found(self) -> frozenset[str]:
        """Every cause that a rule found, those that another one brings included."""
        return self.consequences | {one.finding.rule for one in self.causes}


def run_rules(case: Case, modules: Mapping[str, ModuleType]) -> Ranked:
    """Run every rule on the case and rank what they found.

    Below the least number of slow requests no rule of a cause is asked: the figures of so few name none and rule none out.
    """
    found: list[Diagnosis] = []
    ruled_out: list[RuledOut] = []
    lacking: dict[str, str] = {}
    few = too_few_breaches(case)
    for name, module in modules.items():
        answer = few or module.diagnose(case)
        if is_last(name) and isinstance(answer, Diagnosis) and case.not_at_random:
            answer = RuledOut(what=name, figure=case.not_at_random)
        if isinstance(answer, Diagnosis | list):
            found += answer if isinstance(answer, list) else [answer]
        elif isinstance(answer, RuledOut):
            ruled_out.append(answer)
        elif isinstance(answer, NotEnoughData):
            lacking[name] = answer.reason
    causes, followed, consequences = rank(case, found)
    return Ranked(causes, [*followed, *ruled_out], lacking, consequences)


def rank(
    case: Case, found: list[Diagnosis]
) -> tuple[list[Diagnosis], list[RuledOut], frozenset[str]]:
    """Return the causes in order and, as ruled out, those whose share of the excess others explain already; and which of these a cause brings.

    From the roots of the causal graph down: what others that were found bring about, and explain most of, stands behind the first of them. Of the roots the one
    that explains most, by itself or through what it brings, takes its time per stage, but for what another one was separated by; the next is measured on what
    remains. Where all together explain less than two fifths of the excess, and most slow requests would be slow without them as well, none is named.
    """
    left = {stage: max(0.0, ms) for stage, ms in case.tail.excess_ms.items()}
    total = case.tail.excess_total_ms
    behind = _behind(case, found)
    waiting = _from_the_roots(case, found, behind)
    causes: list[Diagnosis] = []
    followed: list[RuledOut] = []
    consequences: set[str] = set()
    together = 0.0
    for one in waiting:
        kept = {} if one.apart else _reserved(waiting, causes)
        takes = {
            stage: max(0.0, min(ms, left.get(stage, 0.0) - kept.get(stage, 0.0)))
            for stage, ms in one.claims_ms.items()
        }
        part = sum(takes.values()) / total if total > 0.0 else 0.0
        first = behind.get(one.finding.rule)
        if first in {cause.finding.rule for cause in causes}:
            figure = f"it is a consequence of {first}: {one.because}"
            followed.append(RuledOut(what=one.finding.rule, figure=figure))
            consequences.add(one.finding.rule)
            together += part  # the chain explains it, by its first link
            continue
        if causes and _told_already(one, causes, part, total):
            figure = f"it could explain {say_ms(sum(one.claims_ms.values()))}, but only {say_ratio(part)} of the excess is not already explained by "
            followed.append(RuledOut(what=one.finding.rule, figure=figure + causes[0].finding.rule))
            continue
        causes.append(one)
        together += part
        for stage, ms in takes.items():
            left[stage] = left.get(stage, 0.0) - ms
    if together < MIN_NAMED and _rescued(case, causes) < MIN_RESCUED:
        few = [
            RuledOut(
                what=one.finding.rule,
                figure=f"{say_ratio(explained(case, one.claims_ms))} of the excess",
            )
            for one in causes
        ]
        return [], [*few, *followed], frozenset(consequences)
    return causes, followed, frozenset(consequences)


def _told_already(one: Diagnosis, causes: list[Diagnosis], part: float, total: float) -> bool:
    """Return whether a cause of which this part (0..1) of the excess is left is none beside those that are named."""
    if part >= one.least:
        return False
    # What made requests slow alone was a cause of the same stage that is named, or several that leave next to nothing of it.
    named = any(cause.finding.stage == one.finding.stage for cause in causes)
    claimed = sum(max(0.0, ms) for ms in one.claims_ms.values())
    return one.dominates < MIN_DOMINATED or named or part * total <= MIN_LEFT * claimed


def _behind(case: Case, found: list[Diagnosis]) -> dict[str, str]:
    """Return, of each cause that others bring about, the first of them: where these explain most of it together or, of a reaction to slowness, are worth
    listing."""
    share = {one.finding.rule: explained(case, one.claims_ms) for one in found}
    out: dict[str, str] = {}
    for one in found:
        above = {
            other.finding.rule: share[other.finding.rule]
            for other in found
            if other is not one
            and _is_above(other, one)
            and share[other.finding.rule] >= other.least
        }
        if above and (
            is_reaction(one.finding.rule) or sum(above.values()) >= MOST * share[one.finding.rule]
        ):
            out[one.finding.rule] = max(above, key=lambda rule: above[rule])
    return {rule: _root(rule, out) for rule in out}


def _root(rule: str, behind: Mapping[str, str]) -> str:
    """Return the first link of the chain that a cause stands in."""
    passed: set[str] = set()
    while rule in behind and rule not in passed:
        passed.add(rule)
        rule = behind[rule]
    return rule


def _is_above(cause: Diagnosis, other: Diagnosis) -> bool:
    """Return whether a cause that was found brings another one about; where that one is driven, also by what it may bring."""
    one, two = cause.finding.rule, other.finding.rule
    if brings(one, two):
        return not (cause.driven and not other.driven and may_bring(two, one))
    if not other.driven or brings(two, one) or not may_bring(one, two):
        return False
    return any(
        ms > 0.0 and cause.claims_ms.get(stage, 0.0) > 0.0 for stage, ms in other.claims_ms.items()
    )


def _from_the_roots(
    case: Case, found: list[Diagnosis], behind: Mapping[str, str]
) -> list[Diagnosis]:
    """Return the causes by what they explain, themselves or by what they bring; each before what stands behind it."""
    share = {one.finding.rule: explained(case, one.claims_ms) for one in found}
    whole = dict(share)
    for rule, first in behind.items():
        whole[first] = max(whole[first], share[rule])

    def place(one: Diagnosis) -> tuple[float, bool, str]:
        rule = one.finding.rule
        first = behind.get(rule, rule)
        return -whole[first], rule != first, rule

    return sorted(found, key=place)


def without(times: StageTimes, excess: Tail, causes: list[Diagnosis]) -> StageTimes:
    """Return the stage times of every request without what causes claim: their part of each stage's excess, off what is over the reference."""
    kept = {}
    for stage, spent in times.ms.items():
        whole = excess.excess_ms.get(stage, 0.0)
        part = (
            min(1.0, sum(max(0.0, one.claims_ms.get(stage, 0.0)) for one in causes) / whole)
            if whole > 0.0
            else 0.0
        )
        kept[stage] = spent - part * np.maximum(0.0, spent - excess.usual_ms(stage))
    total = times.total_ms - sum(spent - kept[stage] for stage, spent in times.ms.items())
    return replace(times, total_ms=total, ms=kept)


def _rescued(case: Case, causes: list[Diagnosis]) -> float:
    """Return the share of the slow requests that would keep their limit without these causes: each loses of a stage's excess the part that they claim."""
    slow = case.tail.tail_index
    if not causes or not len(slow):
        return 0.0
    rest = without(case.times, case.tail, causes)
    limits = case.limits_ms if isinstance(case.limits_ms, float) else case.limits_ms[slow]
    return float((rest.total_ms[slow] <= limits).mean())


def _reserved(found: list[Diagnosis], causes: list[Diagnosis]) -> dict[str, float]:
    """Return what causes that were separated from all that is shared still wait to claim, in ms per stage."""
    out: dict[str, float] = {}
    for one in found:
        if one.apart and not one.driven and one not in causes:
            for stage, ms in one.claims_ms.items():
                out[stage] = out.get(stage, 0.0) + max(0.0, ms)
    return out
