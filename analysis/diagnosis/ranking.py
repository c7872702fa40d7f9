"""Which of the causes found are the causes? They are not independent: the first link of a chain is named, and what it explains is not blamed twice."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import explained
from overrun.analysis.evidence.case import Case, too_few_breaches
from overrun.analysis.incident.no_baseline import WORTH_ANYWAY
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

# Retries, a full cache or a packed batch follow from something else more often than not: they come first only if nothing else explains half
# as much; own default.
AMPLIFIER_WEIGHT: Final = 0.5
# Causes that explain less than `MIN_NAMED` of the excess are named where most slow requests would keep their limit without them: by how much a request
# misses its limit is more than what made it miss it.
MIN_RESCUED: Final = 0.5
# What brings another cause along explains its time as well: it comes first where it explains nearly as much (this part of the other's); own default.
NEARLY: Final = 0.8
# Of the time that a cause of few requests claims, the part that must be left when the ones before it have taken theirs; own default.
MIN_LEFT: Final = 0.1
# Chance, the endpoint and the load are what is left if nothing shows it slow calls from others: they are concluded last.
CONCLUDED_LAST: Final = frozenset(
    {"provider_spikes", "provider_queueing", "token_rate_sag", "under_capacity"}
)
# As good as equal, and behind.
_BEHIND: Final = 1e-9


@dataclass(frozen=True)
class Ranked:
    """Causes (first is the verdict's), opportunities, what was ruled out with its figure, and what rules lacked to answer.

    `consequences` are rules that found what a cause brings."""

    causes: list[Diagnosis]
    opportunities: list[Diagnosis]
    ruled_out: list[RuledOut]
    lacking: dict[str, str]
    consequences: frozenset[str] = frozenset()

    @property
    def findings(self) -> list[Diagnosis]:
        """Everything worth listing, causes first."""
        return [*self.causes, *self.opportunities]


def run_rules(case: Case, modules: Mapping[str, ModuleType], told: Collection[str] = ()) -> Ranked:
    """Run every rule on the case and rank what they found; the rules `told` before come first whatever they explain.

    Below the least number of slow requests no cause is named, and none is ruled out: the figures of so few say neither.
    """
    found: list[Diagnosis] = []
    ruled_out: list[RuledOut] = []
    lacking: dict[str, str] = {}
    few = too_few_breaches(case)
    for name, module in modules.items():
        answer = module.diagnose(case)
        if few is not None and name not in WORTH_ANYWAY and not isinstance(answer, NotEnoughData):
            answer = few
        if name in CONCLUDED_LAST and isinstance(answer, Diagnosis) and case.not_at_random:
            answer = RuledOut(what=name, figure=case.not_at_random)
        if isinstance(answer, Diagnosis | list):
            found += answer if isinstance(answer, list) else [answer]
        elif isinstance(answer, RuledOut):
            ruled_out.append(answer)
        elif isinstance(answer, NotEnoughData):
            lacking[name] = answer.reason
    causes, followed, consequences = rank(case, [one for one in found if not one.opportunity], told)
    gains = sorted(
        (one for one in found if one.opportunity),
        key=lambda one: (-_saved_ms(one), one.finding.rule),
    )
    return Ranked(causes, gains, [*followed, *ruled_out], lacking, consequences)


def rank(
    case: Case, found: list[Diagnosis], told: Collection[str] = ()
) -> tuple[list[Diagnosis], list[RuledOut], frozenset[str]]:
    """Return the causes in order and, as ruled out, those whose share of the excess others explain already; and which of these a cause brings.

    Greedy: the cause with the largest claim (times its weight) takes its time per stage, but for what another one was separated by; the next is
    measured on what remains. A cause that brings others goes before them unless it explains clearly less.
    Where all together explain less than two fifths of the excess, and most slow requests would be slow without them as well, none is named.
    """
    left = {stage: max(0.0, ms) for stage, ms in case.tail.excess_ms.items()}
    total = case.tail.excess_total_ms
    scores = _scores(case, found)
    waiting = sorted(
        found,
        key=lambda one: (one.finding.rule not in told, *_place(one, scores), one.finding.rule),
    )
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
        behind = next(
            (
                cause
                for cause in causes
                if one.finding.rule in cause.brings or (one.amplifier and _feeds(cause, one))
            ),
            None,
        )
        if behind is not None:
            followed.append(
                RuledOut(
                    what=one.finding.rule,
                    figure=f"it is a consequence of {behind.finding.rule}: {one.because}",
                )
            )
            consequences.add(one.finding.rule)
            together += part  # the chain explains it, by its first link
            continue
        # What made requests slow alone was a cause of the same stage that is named, or several that leave next to nothing of it.
        named = any(cause.finding.stage == one.finding.stage for cause in causes)
        told_already = named or part * total <= MIN_LEFT * sum(
            max(0.0, ms) for ms in one.claims_ms.values()
        )
        if causes and part < one.least and (one.dominates < MIN_DOMINATED or told_already):
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
        if one.apart and not one.amplifier and one not in causes:
            for stage, ms in one.claims_ms.items():
                out[stage] = out.get(stage, 0.0) + max(0.0, ms)
    return out


def _place(one: Diagnosis, scores: Mapping[str, float]) -> tuple[float, bool]:
    """Sort key: the score, or that of what the cause brings where its own is nearly as high; of two equal ones the bringing one first."""
    own = scores[one.finding.rule]
    brought = [scores[rule] for rule in one.brings & scores.keys() if own >= NEARLY * scores[rule]]
    return -max([own, *brought]), not brought


def _feeds(cause: Diagnosis, amplifier: Diagnosis) -> bool:
    """Return whether a cause adds to a stage that the amplifier makes worse."""
    return any(
        ms > 0.0 and cause.claims_ms.get(stage, 0.0) > 0.0
        for stage, ms in amplifier.claims_ms.items()
    )


def _scores(case: Case, found: list[Diagnosis]) -> dict[str, float]:
    """How much each cause explains, times its weight, by rule. Behind the first of those that feed it comes an amplifier that explains no more than they
    do together: more requests and longer prompts share one load, and neither is half of it alone."""
    scores = {one.finding.rule: _score(case, one) for one in found}
    for one in found:
        if one.amplifier:
            fed = [
                scores[other.finding.rule]
                for other in found
                if not other.amplifier
                and _feeds(other, one)
                and explained(case, other.claims_ms) >= other.least
            ]
            if sum(fed) > scores[one.finding.rule]:
                scores[one.finding.rule] = min(scores[one.finding.rule], max(fed) - _BEHIND)
    return scores


def _score(case: Case, one: Diagnosis) -> float:
    return (
        explained(case, one.claims_ms) * one.weight * (AMPLIFIER_WEIGHT if one.amplifier else 1.0)
    )


def _saved_ms(one: Diagnosis) -> float:
    """Milliseconds saved times the share of requests touched times how sure it is: what an opportunity is worth."""
    fix = one.finding.fix
    if fix is None or fix.predicted is None:
        return 0.0
    return (
        (fix.predicted.before - fix.predicted.after)
        * fix.predicted.touched_ratio
        * one.finding.confidence
    )
