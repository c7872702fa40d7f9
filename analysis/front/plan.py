"""Which fixes together meet the SLO at the lowest price, and what does each step gain? Joint what-ifs over the requests since the onset.

Candidates are the fixes of the report's findings and, where the engines can be simulated, more replicas, a cap on answers and a limit on admission. Each is
asked alone first. Then sets of two and three are asked in the order of their price, until one meets every limit: it is the cheapest of those that were asked.
The price is in the cost of serving today's traffic: a replica more in two is 0.5, a call sent twice 1, and an answer that is cut, refused or replaced
`LOST_PRICE`. A step costs a little by itself, so that of two equal sets the shorter one wins.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import duckdb
import msgspec
import numpy as np

from overrun.analysis.diagnosis.verdict import Verdict
from overrun.analysis.front.report import Report, build
from overrun.analysis.numbers.outcomes.cost import Prices
from overrun.analysis.numbers.stages.budget import Configured
from overrun.analysis.numbers.window import Window
from overrun.analysis.whatif import catalogue
from overrun.analysis.whatif.facts import Facts, load_facts
from overrun.analysis.whatif.fewest_replicas import REPLICAS, effect_of, fewest_for, meets
from overrun.analysis.whatif.fixes import together
from overrun.analysis.whatif.prediction import METRICS, Effect, Prediction
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.finding import Finding, Predicted
from overrun.analysis.words.slo import Slo

Ask = Callable[[Facts, str, Mapping[str, str | None]], Prediction]
Reading = Callable[[], AbstractContextManager[duckdb.DuckDBPyConnection]]
# Requests that are asked about, the latest ones, as for the fixes of a report; joint questions are many.
MOST_REQUESTS: Final = 5000
# Part of a what-if's own effort that calibration may take, as for the fixes of a report.
EFFORT: Final = 0.2
# Answers that are lost to one user cost as much as ten that are served; a step costs as much as 2 % of today's serving. Own defaults, stated beside the plan.
LOST_PRICE: Final = 10.0
STEP_PRICE: Final = 0.02
# Joint questions of one plan, and fixes of one set: a few seconds each.
MOST_ASKED: Final = 14
MOST_STEPS: Final = 3
MOST_CANDIDATES: Final = 9
# Shares of answers that a cap would cut, and parts of the capacity that admission keeps spare, that are tried; own defaults.
_CUT: Final = (0.01, 0.05)
_SPARE: Final = ("0.25",)
# Replicas that are tried, over those there are: the first that helps is enough.
_MORE: Final = (1.5, 2.0, 3.0)
# What a fix costs by name: lost answers, and calls beside those of the users.
_LOST: Final = ("truncated_ratio", "rejected_ratio", "fallback_ratio", "trimmed_ratio")
_EXTRA: Final = ("duplicate_ratio", "moved_ratio")


class PlanStep(msgspec.Struct, kw_only=True):
    """One fix of the plan, in the order in which they are made. `predicted` is the judged metric with this and all steps before it, its `before` without
    this one; `price` is what the step adds, `whatif` and `parameters` ask for it alone."""

    whatif: str
    title: str
    parameters: dict[str, str]
    method: str
    predicted: Predicted
    price: float
    cost: dict[str, float]


class Considered(msgspec.Struct, kw_only=True):
    """A set of fixes that was asked: the judged metric after it (ms, null where it cannot be predicted), its price, and whether it meets every limit."""

    fixes: list[str]
    titles: list[str]
    after_ms: float | None
    price: float
    meets: bool
    reasons: dict[str, str] = {}


class Plan(msgspec.Struct, kw_only=True):
    """The cheapest set of fixes that meets every limit of the SLO, `steps` empty where none is needed or none helps.

    `meets`: the prediction of every limited metric that could be predicted is within its limit; `certain`: so is the upper end of its 90 % interval.
    `before_ms` and `after_ms` are the judged metric at the SLO's percentile, over the `requests` of [start, end). `fixes` asks for all steps as one what-if
    (`together`). Null has its reason in `reasons`.
    """

    metric: str
    percentile: float
    limit_ms: float | None
    start: datetime | None
    end: datetime | None
    requests: int
    before_ms: float | None = None
    after_ms: float | None = None
    interval: tuple[float, float] | None = None
    meets: bool = False
    certain: bool = False
    goodput_before: float | None = None
    goodput_after: float | None = None
    price: float = 0.0
    steps: list[PlanStep] = []
    fixes: str | None = None
    considered: list[Considered] = []
    reasons: dict[str, str] = {}


@dataclass(frozen=True)
class _Fix:
    """A fix that may be a step: what asks for it, and the finding that proposes it."""

    name: str
    texts: tuple[tuple[str, str], ...]

    @property
    def asked(self) -> tuple[str, dict[str, str]]:
        return self.name, dict(self.texts)


def plan(
    reading: Reading,
    window: Window,
    slo: Slo,
    budgets: Configured | None,
    prices: Prices | None,
    ask: Ask = catalogue.ask,
) -> Plan:
    """Return the plan of a window; `ask` computes what-ifs, once the database is not held any more.

    Raises:
        AnalysisError: as the report.
    """
    with reading() as con:
        report = build(con, window, slo, budgets, prices=prices)
        answer = _empty(report)
        if answer.reasons:
            return answer
        since = report.verdict.onset or report.window.start
        facts = load_facts(
            con,
            replace(window, start=since, end=report.window.end, baseline="none"),
            slo,
            answer.metric,
            most=MOST_REQUESTS,
            budgets=budgets,
        )
    facts.effort = EFFORT
    answer.start, answer.requests = since, len(facts)
    limits = _limits(slo)
    _Search(facts, ask, answer, limits).fill(_candidates(report.findings, facts, ask, limits))
    return answer


def _limits(slo: Slo) -> dict[str, float]:
    return {metric: limit for metric, limit in slo.limits().items() if metric in METRICS}


def _empty(report: Report) -> Plan:
    """The plan before anything was asked, with the reason where nothing has to be."""
    verdict, slo = report.verdict, report.slo
    metric = verdict.metric if verdict.metric in METRICS else "e2e"
    made = Plan(
        metric=metric,
        percentile=slo.percentile,
        limit_ms=slo.limits().get(metric),
        start=report.window.start,
        end=report.window.end,
        requests=report.window.requests,
    )
    why = _no_plan(verdict)
    if why:
        made.reasons = dict.fromkeys(("steps", "before_ms", "after_ms", "fixes"), why)
        made.meets = verdict.status == "within_budget"
    return made


def _no_plan(verdict: Verdict) -> str:
    if verdict.status in ("over_budget", "possibly_over_budget") and verdict.metric in METRICS:
        return ""
    if verdict.status == "within_budget":
        return "every limit is met: no fix is needed"
    return f"no latency can be planned for: {verdict.sentence}"


def _candidates(
    findings: Sequence[Finding], facts: Facts, ask: Ask, limits: Mapping[str, float]
) -> list[_Fix]:
    """Fixes that may be steps: what the findings propose first, then what helps any engine."""
    known = catalogue.fixes()
    found = []
    for finding in findings:
        fix = finding.fix
        name = next(
            (name for name in (fix.whatif, fix.id) if name in known)
            if fix is not None
            else iter(()),
            None,
        )
        if fix is not None and name is not None and name != "together":
            texts = tuple(
                (key, value if isinstance(value, str) else f"{value:.10g}")
                for key, value in fix.parameters.items()
            )
            if name != REPLICAS:  # how many is sought below, as for the finding itself
                found.append(_Fix(name, texts))
    tokens = facts.call("output_tokens")
    written = tokens[~np.isnan(tokens) & (facts.request_of >= 0)]
    if len(written):
        for share in _CUT:
            most = int(np.quantile(written, 1.0 - share))
            if most >= 1:
                found.append(_Fix("cap", (("max_tokens", str(most)),)))
    seen = _replicas(facts, ask)
    if seen:
        found += [
            _Fix(REPLICAS, ((REPLICAS, str(many)),)) for many in _more(seen, facts, ask, limits)
        ]
        found += [_Fix("admission", (("spare_ratio", spare),)) for spare in _SPARE]
    return list(dict.fromkeys(found))[:MOST_CANDIDATES]


def _more(seen: int, facts: Facts, ask: Ask, limits: Mapping[str, float]) -> list[int]:
    """Numbers of replicas to try: the fewest that meet every limit, as a report proposes, and fewer beside other fixes; without such a number a few."""
    try:
        fewest = fewest_for(facts, ask, limits, seen, {})
    except AnalysisError:
        fewest = None
    tried = dict.fromkeys(max(seen + 1, round(seen * times)) for times in _MORE)
    if fewest is None:
        return list(tried)
    return [fewest[0], *(many for many in tried if many < fewest[0])]


def _replicas(facts: Facts, ask: Ask) -> int:
    """How many replicas serve the calls, 0 where the engines cannot be simulated."""
    try:
        told = ask(facts, "replicas", {"replicas": "1"})
    except AnalysisError:
        return 0
    if not any(effect.after is not None for effect in told.effects) or not told.engine:
        return 0
    return max(pool.replicas for pool in told.engine)


class _Search:
    """Asks sets of fixes and keeps every answer."""

    def __init__(self, facts: Facts, ask: Ask, answer: Plan, limits: Mapping[str, float]) -> None:
        self._facts, self._ask, self._plan, self._limits = facts, ask, answer, limits
        self._known: dict[frozenset[_Fix], Prediction] = {}
        self._asked = 0

    def fill(self, candidates: Sequence[_Fix]) -> None:
        """Put the cheapest set that meets the limits into the plan, else the one that comes nearest."""
        useful = [
            one for one in candidates if (told := self._of([one])) is not None and self._gains(told)
        ]
        best = self._cheapest([one] for one in useful)
        dearest = self._price(best) if best is not None else float("inf")
        for size in range(2, MOST_STEPS + 1):
            sets = [
                list(some)
                for some in itertools.combinations(useful, size)
                if len({one.name for one in some}) == size
            ]
            sets = [some for some in sets if self._sum(some) < dearest]
            found = self._cheapest(iter(sorted(sets, key=self._sum)), first=True)
            if found is not None and self._price(found) < dearest:
                best, dearest = found, self._price(found)
        if best is None:
            best = self._nearest()
        self._fill(best)

    def _of(self, some: Sequence[_Fix]) -> Prediction | None:
        """The joint prediction of a set, None where it is refused or enough has been asked."""
        key = frozenset(some)
        if key in self._known:
            return self._known[key]
        if self._asked >= MOST_ASKED:
            return None
        self._asked += 1
        text = together.written([one.asked for one in some])
        try:
            told = self._ask(self._facts, "together", {"fixes": text})
        except AnalysisError as error:
            self._note(some, None, {"after_ms": str(error)})
            return None
        self._known[key] = told
        self._note(some, told, told.reasons if self._judged(told) is None else {})
        return told

    def _note(
        self, some: Sequence[_Fix], told: Prediction | None, reasons: Mapping[str, str]
    ) -> None:
        judged = self._judged(told) if told is not None else None
        self._plan.considered.append(
            Considered(
                fixes=[together.written([one.asked]) for one in some],
                titles=[self._title(one) for one in some],
                after_ms=judged.after if judged is not None else None,
                price=price_of(told.cost, len(some)) if told is not None else 0.0,
                meets=told is not None and self._meets(told),
                reasons=dict(reasons),
            )
        )

    def _title(self, one: _Fix) -> str:
        alone = self._known.get(frozenset([one]))
        return alone.title if alone is not None else one.name

    def _judged(self, told: Prediction) -> Effect | None:
        return effect_of(told, self._plan.metric, self._plan.percentile)

    def _gains(self, told: Prediction) -> bool:
        judged = self._judged(told)
        return (
            judged is not None
            and judged.before is not None
            and judged.after is not None
            and judged.after < judged.before
        )

    def _helps(self, told: Prediction) -> bool:
        """Whether more requests are within the limits, as far as that shows in the answer; the judged metric alone where nothing is known of that."""
        before, after = told.goodput_before, told.goodput_after
        more = before is None or after is None or float(f"{after - before:.3f}") > 0.0
        return more and self._gains(told)

    def _meets(self, told: Prediction, *, surely: bool = False) -> bool:
        plan = self._plan
        return meets(told, plan.metric, plan.percentile, self._limits, surely=surely)

    def _price(self, some: Sequence[_Fix]) -> float:
        told = self._known[frozenset(some)]
        return price_of(told.cost, len(some))

    def _preferred(self, some: Sequence[_Fix]) -> tuple[float, float]:
        """The price of a set; of equal ones, what is left of the judged metric."""
        judged = self._judged(self._known[frozenset(some)])
        left = judged.after if judged is not None and judged.after is not None else float("inf")
        return self._price(some), left

    def _sum(self, some: Sequence[_Fix]) -> float:
        return sum(self._price([one]) for one in some)

    def _cheapest(self, sets: Iterator[list[_Fix]], *, first: bool = False) -> list[_Fix] | None:
        """The cheapest of the sets that meets the limits; with `first` the first one, for sets in the order of their price."""
        met: list[list[_Fix]] = []
        for some in sets:
            told = self._of(some)
            if told is not None and self._meets(told):
                met.append(some)
                if first:
                    break
        return min(met, key=self._preferred, default=None)

    def _nearest(self) -> list[_Fix] | None:
        """The set whose judged metric comes nearest to its limit, the fewest steps of equal ones."""
        near: list[tuple[float, int, list[_Fix]]] = []
        for some, told in self._known.items():
            judged = self._judged(told)
            if judged is not None and judged.after is not None and self._helps(told):
                near.append((judged.after, len(some), sorted(some, key=lambda one: one.name)))
        return min(near, key=lambda one: one[:2])[2] if near else None

    def _fill(self, some: Sequence[_Fix] | None) -> None:
        answer = self._plan
        if some is None:
            why = "no fix that can be computed here brings more requests within the limits: record engine spans or metrics, or look at the findings"
            answer.reasons |= dict.fromkeys(("steps", "fixes", "after_ms", "before_ms"), why)
            return
        self._asked = 0  # the steps of the chosen set are asked whatever was asked before
        ordered = sorted(some, key=lambda one: (self._price([one]), one.name))
        before: float | None = None
        for last in range(1, len(ordered) + 1):
            told = self._of(ordered[:last])
            if told is None or told.predicted is None:
                answer.reasons["steps"] = "a step of the plan cannot be predicted by itself"
                continue
            answer.steps.append(self._step(ordered[last - 1], told, before))
            before = told.predicted.after
        whole = self._known[frozenset(ordered)]
        judged = self._judged(whole)
        if judged is not None:
            answer.before_ms, answer.after_ms, answer.interval = (
                judged.before,
                judged.after,
                judged.interval,
            )
        answer.meets, answer.certain = self._meets(whole), self._meets(whole, surely=True)
        answer.goodput_before, answer.goodput_after = whole.goodput_before, whole.goodput_after
        answer.price = price_of(whole.cost, len(ordered))
        answer.fixes = together.written([one.asked for one in ordered])
        if not answer.meets:
            answer.reasons["meets"] = (
                f"none of {len(answer.considered)} sets of fixes that were asked meets every limit; this one comes nearest"
            )

    def _step(self, one: _Fix, told: Prediction, before: float | None) -> PlanStep:
        predicted = told.predicted
        if predicted is None:
            raise ValueError("a step needs a prediction")
        alone = self._known[frozenset([one])]
        return PlanStep(
            whatif=one.name,
            title=alone.title,
            parameters=dict(one.texts),
            method=told.method,
            predicted=predicted
            if before is None
            else msgspec.structs.replace(predicted, before=before),
            price=price_of(alone.cost, 1),
            cost=alone.cost,
        )


def price_of(cost: Mapping[str, float], steps: int) -> float:
    """Return a price in the cost of serving today's traffic, from costs by name (ratios of requests or calls, `replicas_factor`)."""
    lost = sum(cost.get(name, 0.0) for name in _LOST)
    extra = sum(cost.get(name, 0.0) for name in _EXTRA)
    more = max(0.0, cost.get("replicas_factor", 1.0) - 1.0)
    return more + extra + LOST_PRICE * lost + STEP_PRICE * steps
