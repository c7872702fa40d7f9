"""Which facts does a diagnosis rest on? The table of facts of one window: every factor before and now, and the part of the excess that goes with it."""

from __future__ import annotations

from datetime import datetime

import duckdb
import msgspec

from overrun.analysis.diagnosis.diagnose import case_of
from overrun.analysis.diagnosis.sampled_causes import sampled_requests
from overrun.analysis.diagnosis.verdict import Verdict
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.fact import NO_BASELINE, Fact
from overrun.analysis.incident.breach import PACES
from overrun.analysis.incident.limit_fit import usual
from overrun.analysis.incident.onset import Onset, dated
from overrun.analysis.incident.period import Period
from overrun.analysis.numbers.outcomes.percentile_limits import most_missed
from overrun.analysis.numbers.requests.stored_names import outside, refuse_unstored
from overrun.analysis.numbers.stages.budget import Configured
from overrun.analysis.numbers.window import Window, count
from overrun.analysis.words.slo import Slo
from overrun.analysis.words.timestamps import to_us


class Stretch(msgspec.Struct, kw_only=True):
    """A stretch of time in UTC."""

    start: datetime
    end: datetime


class FactList(msgspec.Struct, kw_only=True):
    """The facts of a window, judged by `metric` and its limit, in milliseconds.

    `onset` is when the metric changed, whether or not its limit was kept before. `period` is what is judged (since the onset, where there is one) and
    `baseline` what it is compared with. `slow` requests take `excess_ms` longer than the `reference` ones on average (`reference`: baseline, typical or
    healthy). Null has its reason in `reasons`.
    """

    metric: str | None = None
    limit_ms: float | None = None
    onset: Onset | None = None
    period: Stretch | None = None
    baseline: Stretch | None = None
    slow: int = 0
    reference: str | None = None
    excess_ms: float | None = None
    facts: list[Fact] = []
    reasons: dict[str, str] = {}


def facts(
    con: duckdb.DuckDBPyConnection, window: Window, slo: Slo, budgets: Configured | None
) -> FactList:
    """Return the facts of a window's requests, of at most 200,000 of them.

    Raises:
        BudgetError: an unknown stage or group in `budgets`. WindowError: a filter names what is stored nowhere.
    """
    case = case_in(con, window, slo, budgets)
    return _none(case) if isinstance(case, str) else _listed(case)


def case_in(
    con: duckdb.DuckDBPyConnection, window: Window, slo: Slo, budgets: Configured | None
) -> Case | str:
    """Return what rules look at in a window, or why its latency cannot be judged.

    Raises:
        as `facts`.
    """
    slo = most_missed(con, window, slo) if slo.also else slo
    requests = count(con, window)
    if not requests:
        refuse_unstored(con, window)
        return outside(con, window) or "no request is stored in this window"
    stored = sampled_requests(con, window, slo, requests)
    if stored.sampled.refused or stored.even.rows.is_empty():
        return f"the stored requests do not stand for all: {stored.sampled.detail}"
    slo = slo if slo.given else usual(stored.even, slo)
    case = case_of(
        stored.even,
        slo,
        stored.lookups(con, slo),
        baseline=stored.baseline,
        budgets=budgets,
        coverage=stored.sampled.coverage_of(stored.even),
    )
    return case.sentence if isinstance(case, Verdict) else case


def _listed(case: Case) -> FactList:
    onset = _onset(case)
    reasons = {} if case.baseline is not None else {"baseline": NO_BASELINE}
    if onset is None:
        reasons["onset"] = "the metric changes at no single moment of the window"
    return FactList(
        metric=case.metric,
        limit_ms=case.slo.limits()[case.metric],
        onset=onset,
        period=_stretch(case.period),
        baseline=_stretch(case.baseline) if case.baseline is not None else None,
        slow=len(case.tail.tail_index),
        reference=case.tail.reference,
        excess_ms=case.tail.excess_total_ms,
        facts=list(case.facts),
        reasons=reasons,
    )


def _onset(case: Case) -> Onset | None:
    """The onset that the verdict gives, where the window has one, else when the judged metric changed."""
    starts = case.rows["start_us"].to_numpy()
    begins, ends = to_us(case.period.start), to_us(case.period.end)
    inside = starts < ends
    known = begins if len(starts) and begins > int(starts.min()) else None
    return dated(starts[inside], case.values[inside], known, shared=case.metric in PACES)


def _stretch(period: Period) -> Stretch:
    return Stretch(start=period.start, end=period.end)


def _none(why: str) -> FactList:
    nulls = ("metric", "limit_ms", "onset", "period", "baseline", "reference", "excess_ms", "facts")
    return FactList(reasons=dict.fromkeys(nulls, why))
