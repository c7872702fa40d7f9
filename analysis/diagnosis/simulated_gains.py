"""What do the fixes of a report's findings buy on a simulated engine? Figures of calibrated what-ifs in place of the exact bounds of the rules.

Asked over the requests since the onset: what came before ran without the fault. Where the engine cannot be simulated (no engine data, too few calls,
a replay that does not give the recording back) the bound stays, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final

import duckdb
import msgspec

from overrun.analysis.diagnosis.background import Later
from overrun.analysis.incident.period import Period
from overrun.analysis.numbers.window import Window
from overrun.analysis.whatif import catalogue
from overrun.analysis.whatif.facts import Facts, load_facts
from overrun.analysis.whatif.fewest_replicas import REPLICAS, fewest_for
from overrun.analysis.whatif.prediction import METRICS, Prediction
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.finding import SIMULATING, Diagnosis, Finding
from overrun.analysis.words.finding import Fix as FoundFix
from overrun.analysis.words.slo import Slo
from overrun.collector.process import compiled

Ask = Callable[[Facts, str, Mapping[str, str | None]], Prediction]
# Findings of a report whose fixes are simulated: the verdict's and the one behind it.
MOST_SIMULATED: Final = 2
# Requests that a report's what-ifs look at, the latest ones: enough for a P99 with its interval, few enough for seconds.
MOST_REQUESTS: Final = 5000
# Part of a what-if's own effort that calibration may take here.
EFFORT: Final = 0.2
# What-ifs that a finding names for its reader alone: exact by their class, so that the finding's own figure stands.
AS_SAID: Final = (
    *("clip", "co_location", "connection_pooling", "fan_out", "hedging", "reasoning_effort"),
    *("response_cache", "step_cap", "streaming", "timeout_fallback", "warm_pool"),
)
# A simulated figure is shown for so long before it is made again.
FRESH_S: Final = 600.0


def inline(
    con: duckdb.DuckDBPyConnection,
    window: Window,
    slo: Slo,
    metric: str,
    causes: list[Diagnosis],
    period: Period,
) -> list[Diagnosis]:
    """Return the causes with simulated fixes, computed now (seconds of one core); a note instead where the simulator is not compiled: no report waits for that."""
    if metric not in METRICS or not any(_asks(one) for one in causes[:MOST_SIMULATED]):
        return causes
    ask = catalogue.ask if compiled.is_kept("simulator") else _uncompiled
    facts = _facts(con, window, slo, metric, period)
    return [
        _with(one, _asked(ask, facts, one.finding, slo))
        if _asks(one) and at < MOST_SIMULATED
        else one
        for at, one in enumerate(causes)
    ]


class Background:
    """Simulated fixes for reports of a server: computed by the what-if's worker one after the other, told once they are there."""

    def __init__(
        self, reading: Callable[[], AbstractContextManager[duckdb.DuckDBPyConnection]], ask: Ask
    ) -> None:
        self._reading, self._ask = reading, ask
        self._fixes: Later[FoundFix] = Later("overrun-fixes", FRESH_S)

    @property
    def made(self) -> int:
        """How many fixes have been simulated so far, or could not be."""
        return self._fixes.made

    def __call__(
        self,
        con: duckdb.DuckDBPyConnection,
        window: Window,
        slo: Slo,
        metric: str,
        causes: list[Diagnosis],
        period: Period,
    ) -> list[Diagnosis]:
        """Return the causes with the simulated fixes that are known, and begin to simulate the others."""
        if metric not in METRICS:
            return causes
        return [
            self._told(one, window, slo, metric, period)
            if _asks(one) and at < MOST_SIMULATED
            else one
            for at, one in enumerate(causes)
        ]

    def _told(
        self, one: Diagnosis, window: Window, slo: Slo, metric: str, period: Period
    ) -> Diagnosis:
        fix = one.finding.fix
        if fix is None:
            return one
        # The window moves with the clock and the figures with each request: the same cause since the same onset is the same question.
        key = (
            replace(window, start=None, end=None),
            slo,
            metric,
            period.start.replace(microsecond=0),
            one.finding.rule,
            fix.whatif,
        )
        known = self._fixes.get(
            key, lambda: self._simulated(one.finding, window, slo, metric, period)
        )
        return _with(one, _noted(fix, SIMULATING) if known is None else known[1])

    def _simulated(
        self, finding: Finding, window: Window, slo: Slo, metric: str, period: Period
    ) -> FoundFix:
        with self._reading() as con:
            facts = _facts(con, window, slo, metric, period)
        return _asked(self._ask, facts, finding, slo)


def _asks(one: Diagnosis) -> bool:
    """Whether a what-if can tell more than the finding itself does, which is the same arithmetic where no engine need be simulated."""
    return one.finding.fix is not None and one.finding.fix.whatif not in (None, *AS_SAID)


def _facts(
    con: duckdb.DuckDBPyConnection, window: Window, slo: Slo, metric: str, period: Period
) -> Facts:
    facts = load_facts(
        con,
        replace(window, start=period.start, end=period.end, baseline="none"),
        slo,
        metric,
        most=MOST_REQUESTS,
    )
    facts.effort = EFFORT
    return facts


def _uncompiled(*asked: object) -> Prediction:
    raise AnalysisError(
        "the simulator is not compiled here yet: `overrun whatif` compiles it, once"
    )


def _asked(ask: Ask, facts: Facts, finding: Finding, slo: Slo) -> FoundFix:
    """The finding's fix with the what-if's figures where it is simulated, else as it was with the reason."""
    fix = finding.fix
    if fix is None or fix.whatif is None:
        raise ValueError(f"{finding.rule} has no fix to ask for")
    try:
        given = {name: str(value) for name, value in fix.parameters.items()}
        answer = ask(facts, fix.whatif, given)
        fix, answer = _fewest(ask, facts, fix, answer, slo)
    except AnalysisError as error:
        return _noted(fix, str(error))
    reasons = answer.reasons
    if answer.predicted is None or not (answer.method == "simulated" or "client_only" in reasons):
        why = reasons.get("simulated") or reasons.get("predicted") or "no engine to simulate"
        return _noted(fix, why)
    return msgspec.structs.replace(
        fix,
        method=answer.method,
        assumption=answer.assumption,
        predicted=answer.predicted,
        reasons={"window": "over the requests since the onset"}
        | {name: why for name, why in answer.reasons.items() if name == "client_only"},
    )


def _fewest(
    ask: Ask, facts: Facts, fix: FoundFix, answer: Prediction, slo: Slo
) -> tuple[FoundFix, Prediction]:
    """A fix that adds replicas with the fewest that meet every limit, as a plan has them; as it is where none do or it adds none."""
    seen = max((pool.replicas for pool in answer.engine), default=0)
    if fix.whatif != REPLICAS or not seen or answer.predicted is None:
        return fix, answer
    proposed = int(fix.parameters[REPLICAS])
    found = fewest_for(facts, ask, slo.limits(), seen, {proposed: answer})
    if found is None:
        return fix, answer
    many, told = found
    told_fix = msgspec.structs.replace(
        fix,
        title=f"Run {many} replicas instead of {seen}",
        detail=f"{many} replicas are the fewest that meet every limit in a replay of the recorded load. {fix.detail}",
        parameters={**fix.parameters, REPLICAS: many},
    )
    return told_fix, told


def _noted(fix: FoundFix, why: str) -> FoundFix:
    return msgspec.structs.replace(fix, reasons=fix.reasons | {"simulated": why})


def _with(one: Diagnosis, fix: FoundFix) -> Diagnosis:
    return replace(one, finding=msgspec.structs.replace(one.finding, fix=fix))
