"""The whole answer for one window as one typed object: the JSON contract `overrun.report/1`.

Built from a cursor on the collector's database; the same bytes go out on the command line and over HTTP, and are
decoded into the same types by whoever asked.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal

import duckdb
import msgspec

from analysis.accounts import Errors, Retries, errors, retries
from analysis.baseline import choose
from analysis.budget import StageRow
from analysis.case import Lookups
from analysis.checklist import Step
from analysis.diagnose import Baseline, Diagnosed, Verdict, diagnose
from analysis.errors import AnalysisError
from analysis.finding import Finding
from analysis.goodput import Goodput
from analysis.latency import Latency, latency
from analysis.quality import Check, checks
from analysis.slo import Slo
from analysis.window import RequestFrame, Window, load, load_evidence_calls, load_evidence_spans, load_stage_spans, load_trace_ids

SCHEMA: Final = "overrun.report/1"


class WindowFacts(msgspec.Struct, kw_only=True):
    """The window's bounds in UTC (null without requests) and what it holds.

    `incomplete` requests are not in `requests`.
    """

    start: datetime | None
    end: datetime | None
    requests: int
    llm_calls: int
    spans: int
    incomplete: int
    reasons: dict[str, str] = {}


class Indicator(msgspec.Struct, kw_only=True):
    """How well one engine indicator warned of breaches on this data."""

    indicator: str
    threshold: float
    precision: float
    recall: float
    lead_s_median: float | None
    events: int


class Report(msgspec.Struct, kw_only=True):
    """One window judged against one SLO. Times in milliseconds, ratios 0..1; null has its reason in the same object."""

    schema: Literal["overrun.report/1"] = SCHEMA
    window: WindowFacts
    baseline: Baseline | None
    slo: Slo
    latency: Latency
    goodput: Goodput
    stages: list[StageRow]
    errors: Errors
    retries: Retries
    checklist: list[Step]
    verdict: Verdict
    findings: list[Finding]
    indicators: list[Indicator]
    data_quality: list[Check]
    reasons: dict[str, str] = {}


def build(
    con: duckdb.DuckDBPyConnection,
    window: Window,
    slo: Slo,
    budgets: Mapping[str, float] | None = None,
    *,
    with_findings: bool = True,
) -> Report:
    """Report on the requests of a window.

    Args:
        con: a cursor on a database with the collector's views; only read from.
        window: which requests.
        slo: limits per request.
        budgets: configured budgets in milliseconds by stage or group name; scaled defaults where not given.
        with_findings: False leaves out causes and fixes, which cost more than all the numbers.

    Raises:
        BudgetError: an unknown stage or group in `budgets`.
    """
    frame = load(con, window)
    lookups = Lookups(
        trace_ids=lambda rows: load_trace_ids(con, rows),
        spender=lambda traces, stage: _spender(con, traces, stage),
        calls=lambda period, origin: load_evidence_calls(con, period.start, period.end, origin),
        spans=lambda period, origin, n: load_evidence_spans(con, period.start, period.end, origin, n),
    )
    found = diagnose(
        frame, slo, lookups, baseline=choose(con, frame, slo), budgets=budgets, with_findings=with_findings
    )
    return Report(
        window=_window_facts(frame),
        baseline=found.baseline,
        slo=slo,
        latency=latency(frame.rows),
        goodput=found.goodput,
        stages=found.stages,
        errors=errors(frame.rows),
        retries=retries(con, window),
        checklist=found.checklist,
        verdict=found.verdict,
        findings=found.findings,
        indicators=[],
        data_quality=checks(frame, slo),
        reasons=_reasons(frame, found, with_findings=with_findings),
    )


def to_json(report: Report) -> bytes:
    """Encode a report as UTF-8 JSON; times as RFC 3339 in UTC, no NaN."""
    return msgspec.json.encode(report)


def from_json(data: bytes) -> Report:
    """Decode a report that `to_json` wrote.

    Raises:
        AnalysisError: other JSON, or a report of another schema version.
    """
    try:
        return msgspec.json.decode(data, type=Report)
    except msgspec.MsgspecError as error:
        raise AnalysisError(f"not a report of schema {SCHEMA}: {error}; use the same version on both sides") from error


def _window_facts(frame: RequestFrame) -> WindowFacts:
    rows = frame.rows
    return WindowFacts(
        start=frame.start,
        end=frame.end,
        requests=rows.height,
        llm_calls=int(rows["llm_calls"].sum()),
        spans=int(rows["spans"].sum()),
        incomplete=frame.incomplete,
        reasons={} if frame.start and frame.end else dict.fromkeys(("start", "end"), "no request and no bound given"),
    )


def _reasons(frame: RequestFrame, found: Diagnosed, *, with_findings: bool) -> dict[str, str]:
    reasons = {"indicators": "leading indicators are not learned from this data"}
    if found.baseline is None:
        asked = frame.window.baseline
        reasons["baseline"] = (
            "none was asked for"
            if asked == "none"
            else "no healthy window of the same hours, and no healthy stretch before an onset"
            if asked == "auto"
            else "the baseline holds no request"
        )
    if found.verdict.status != "over_budget":
        reasons["findings"] = f"the verdict is {found.verdict.status}: causes are sought for latency over budget"
    elif not with_findings:
        reasons["findings"] = "not asked for"
    if not found.stages:
        reasons["stages"] = f"the verdict is {found.verdict.status}"
    return reasons | {f"findings.{rule}": why for rule, why in found.skipped.items()}


def _spender(con: duckdb.DuckDBPyConnection, trace_ids: list[str], stage: str) -> tuple[str, str] | None:
    spans = load_stage_spans(con, trace_ids, stage)
    return None if spans.is_empty() else (str(spans["service"][0]), str(spans["name"][0]))
