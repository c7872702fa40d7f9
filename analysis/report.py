"""The whole answer for one window as one typed object: the JSON contract `overrun.report/1`.

Built from a cursor on the collector's database; the same bytes go out on the command line and over HTTP, and are
decoded into the same types by whoever asked.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal

import duckdb
import msgspec
import polars as pl

from analysis.budget import StageRow
from analysis.diagnose import Baseline, Diagnosed, Lookups, Step, Verdict, diagnose
from analysis.errors import AnalysisError
from analysis.finding import Finding
from analysis.goodput import Goodput
from analysis.latency import Latency, latency
from analysis.quality import Check, checks
from analysis.slo import Slo
from analysis.window import RequestFrame, Window, load, load_baseline, load_stage_spans, load_trace_ids

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


class Errors(msgspec.Struct, kw_only=True):
    """Ratios 0..1 of all requests: failed, abandoned by the client, cut at max_tokens (of those where it is known)."""

    ratio: float | None
    abandoned_ratio: float | None
    truncated_ratio: float | None
    reasons: dict[str, str] = {}


class Retries(msgspec.Struct, kw_only=True):
    """Attempts over all requests where they are recorded, and what the superfluous ones cost."""

    attempts: int | None
    wasted_ms: float | None
    wasted_tokens: int | None
    on_slow: int | None
    on_error: int | None
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
    )
    found = diagnose(
        frame, slo, lookups, baseline=load_baseline(con, frame), budgets=budgets, with_findings=with_findings
    )
    return Report(
        window=_window_facts(frame),
        baseline=found.baseline,
        slo=slo,
        latency=latency(frame.rows),
        goodput=found.goodput,
        stages=found.stages,
        errors=_errors(frame.rows),
        retries=_retries(frame.rows),
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


def _errors(rows: pl.DataFrame) -> Errors:
    reasons = {"abandoned_ratio": "client cancellations are not told apart from other errors"}
    cut = rows["truncated"].drop_nulls()
    if cut.is_empty():
        reasons["truncated_ratio"] = "no request carries a finish reason"
    if rows.is_empty():
        reasons["ratio"] = "no request in the window"
    return Errors(
        ratio=float(rows["error"].sum()) / rows.height if rows.height else None,
        abandoned_ratio=None,
        truncated_ratio=float(cut.sum()) / len(cut) if len(cut) else None,
        reasons=reasons,
    )


def _retries(rows: pl.DataFrame) -> Retries:
    known = rows["attempts"].drop_nulls()
    reasons = dict.fromkeys(("wasted_ms", "wasted_tokens", "on_slow", "on_error"), "retry accounts are not computed")
    if known.is_empty():
        reasons["attempts"] = "attempts are not recorded: retries inside a client are hidden"
    return Retries(
        attempts=int(known.sum()) if len(known) else None,
        wasted_ms=None,
        wasted_tokens=None,
        on_slow=None,
        on_error=None,
        reasons=reasons,
    )


def _reasons(frame: RequestFrame, found: Diagnosed, *, with_findings: bool) -> dict[str, str]:
    reasons = {"indicators": "leading indicators are not learned from this data"}
    if found.baseline is None:
        asked = frame.window.baseline
        reasons["baseline"] = (
            "none was asked for"
            if asked == "none"
            else "no healthy stretch before an onset in this window"
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
