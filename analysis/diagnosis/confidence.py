"""How sure is a named cause? As often as causes that explained as much, and were seen as well, were right in windows that taught no rule.

A logistic curve over the share of the excess that a cause explains, lowered by what could not be seen. A cause that is concluded because nothing else is seen
(`last` in the graph) rests on all that excludes others: a healthy time to compare with, token counts, and no other fact that changed as much.
`python -m tests.benchmarks.calibration` fits the weights on windows with known causes; docs/results/confidence.json holds them against the worlds that they
were not fitted on.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final, NamedTuple

from overrun.analysis.diagnosis.causal_graph import NODES, brings, is_change, is_last
from overrun.analysis.evidence.calls import known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.fact import standard_errors


class Sight(NamedTuple):
    """What a cause was concluded from, each as a part of 1."""

    share: float
    """Of the excess, what the cause explains."""
    baseline: float
    """Whether a time is stored to compare with, from which the cause's facts differ by more than chance."""
    tokens: float
    """Of the slow calls, those whose output was counted."""
    rival: float
    """Of the excess, the most that goes with a fact that changed clearly and that the cause does not bring."""
    last: bool
    """Whether the cause is what remains where nothing distinguishes slow calls."""
    health: float = 1.0
    """How far that time stands for a healthy one: what it misses itself is in the comparison as well."""
    fits: int = 1
    """How many explanations the same figures fit equally well."""


# A cause that explains less than this is as unlikely as one that explains so much.
LEAST_SHARE: Final = 0.05


class Weights(NamedTuple):
    """Log odds of a cause that explains all, and what is taken off them: for each e-th part of the share, for a cause that remains, for one that remains and of whose
    rivals nothing was seen, and for any other that was seen without a baseline or token counts."""

    base: float
    share: float
    last: float
    last_unseen: float
    unseen: float


# Fitted on 326 causes on 2026-11-26; see docs/results/confidence.json.
WEIGHTS: Final = Weights(3.54, 3.14, 0.4, 2.52, 0.99)


def terms(seen: Sight) -> tuple[float, ...]:
    """Return what each weight is multiplied by, in their order."""
    sight = seen.baseline * seen.tokens
    last, other = float(seen.last), float(not seen.last)
    return (
        1.0,
        math.log(max(seen.share, LEAST_SHARE)),
        -last,
        -last * (1.0 - sight * (1.0 - seen.rival)),
        -other * (1.0 - sight),
    )


def confidence(seen: Sight) -> float:
    """Return how sure a cause is (0..1) that was concluded from this."""
    odds = sum(weight * term for weight, term in zip(WEIGHTS, terms(seen), strict=True))
    return round(seen.health / seen.fits / (1.0 + math.exp(-odds)), 2)


def sight(case: Case, rule: str, share: float, fits: int = 1) -> Sight:
    """Return what a cause that explains this share (0..1) of the excess was concluded from; `fits` as of `Sight`."""
    counted = known(case.slow_calls.of("output_tokens"))
    return Sight(
        share=share,
        baseline=float(not unlike_before(case, rule)),
        tokens=float(counted.mean()) if len(counted) else 1.0,
        rival=_rival(case, rule),
        last=is_last(rule),
        health=case.health,
        fits=fits,
    )


def unlike_before(case: Case, rule: str) -> str:
    """Return what a cause may be instead where no time before is known from which its facts differ by more than chance, as the end of "or ..."; else ""."""
    if case.baseline is None:
        return "it has always been so (no healthy time is stored)"
    if _by_chance(case, rule):
        return "chance (other stretches of the window differ as much)"
    return ""


def _by_chance(case: Case, rule: str) -> bool:
    """Return whether what a cause rests on may have changed by chance: the baseline is a stretch of the window itself, and another stretch as long shows as much.

    Both stretches were chosen where the window looks best and worst. So a fact of the cause that accounts for the excess must be clear at the level of one of as
    many stretches as the window holds (Bonferroni). A cause that other calls of its time show, or whose facts have no interval, is not judged by this.
    """
    if case.baseline is None or not is_change(rule) or not case.onset_inside:
        return False
    shortest = max(min(case.baseline.seconds, case.period.seconds), 1e-3)
    stretches = max(1.0, (case.baseline.seconds + case.period.seconds) / shortest)
    least = NormalDist().inv_cdf(1.0 - 0.025 / stretches)
    told = (case.facts[name] for name in NODES[rule].facts if name in case.table.rows)
    errors = [standard_errors(fact) for fact in told if fact.excess_total_ms]
    known = [one for one in errors if one is not None]
    return bool(known) and max(known) < least


def _rival(case: Case, rule: str) -> float:
    """Return the largest part (0..1) of the excess that a clear fact of another cause accounts for."""
    own = NODES[rule].fact if rule in NODES else None
    others = {
        str(node.fact)
        for name, node in NODES.items()
        if node.kind == "cause" and node.fact != own and not brings(rule, name)
    }
    whole = max(case.tail.excess_total_ms, 1e-9)
    facts = [
        case.facts[name] for name, row in case.table.rows.items() if name in others and row.accounts
    ]
    parts = (fact.excess_total_ms or 0.0 for fact in facts if fact.clear)
    return min(1.0, max(parts, default=0.0) / whole)
