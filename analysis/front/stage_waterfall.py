"""How does a typical request become a slow one? The report's stage rows, arranged as the parts of a waterfall that sums exactly."""

from __future__ import annotations

import duckdb
import msgspec
import numpy as np

from overrun.analysis.front.report import Report, build
from overrun.analysis.numbers.stages.budget import Configured, StageRow, path_of
from overrun.analysis.numbers.stages.budget_rows import BudgetRow
from overrun.analysis.numbers.stages.tail import TAIL_POINTS, TYPICAL, band
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.slo import Slo


class Part(msgspec.Struct, kw_only=True):
    """What one stage takes in a typical and in a slow request, in ms; `added_ms` = slow - typical, negative where it gave time back."""

    stage: str
    typical_ms: float
    slow_ms: float
    added_ms: float


class Stages(msgspec.Struct, kw_only=True):
    """The report's stage rows, and how a typical request becomes a slow one.

    `parts` sum to `typical_ms` and `slow_ms`, and their `added_ms` to the difference, exactly. Typical is the mean of `typical_n` requests
    between P40 and P60 of the metric, slow that of `slow_n` requests within 2 points of the SLO percentile. `path` is what the
    stages stand on: `ttft` (up to the first token) or `e2e`. Null without enough requests; see `reasons`.
    """

    metric: str | None
    path: str | None
    percentile: float
    limit_ms: float | None
    n: int
    typical_n: int
    slow_n: int
    typical_ms: float | None
    slow_ms: float | None
    stages: list[StageRow]
    parts: list[Part]
    budgets: list[BudgetRow] = []
    reasons: dict[str, str] = {}


def stages(
    con: duckdb.DuckDBPyConnection,
    window: Window,
    slo: Slo,
    budgets: Configured | None,
    metric: str | None,
) -> Stages:
    """Return the stages on the path of `metric`, by default of the one that the report judges.

    Raises:
        AnalysisError: the SLO has no limit for the metric.
    """
    slo = slo if metric is None else _only(slo, metric)
    return stages_of(build(con, window, slo, budgets, with_findings=False))


def _only(slo: Slo, metric: str) -> Slo:
    limit = slo.limits().get(metric)
    if limit is None:
        raise AnalysisError(
            f"the SLO has no {metric} limit: ask for {' or '.join(slo.limits())}, or add one such as {metric}:1000 to slo"
        )
    cleared = dict.fromkeys((f"{name}_ms" for name in slo.limits()), None)
    return msgspec.structs.replace(slo, **(cleared | {f"{metric}_ms": limit}))


def stages_of(report: Report) -> Stages:
    """Arrange a report's stage rows as a waterfall from a typical to a slow request."""
    metric = report.verdict.metric if report.stages and report.verdict.metric != "errors" else None
    rows = [
        row
        for row in report.stages
        if row.stage is not None and row.typical_ms is not None and row.tail_ms is not None
    ]
    parts = [
        Part(
            stage=row.stage or "",
            typical_ms=row.typical_ms or 0.0,
            slow_ms=row.tail_ms or 0.0,
            added_ms=(row.tail_ms or 0.0) - (row.typical_ms or 0.0),
        )
        for row in rows
    ]
    n = getattr(report.latency, f"{metric}_ms").n if metric else 0
    values, percentile = np.zeros(n), report.slo.percentile
    return Stages(
        metric=metric,
        path=path_of(metric) if metric else None,
        percentile=percentile,
        limit_ms=report.slo.limits().get(metric or ""),
        n=n,
        typical_n=len(band(values, *TYPICAL)) if parts else 0,
        slow_n=len(band(values, percentile - TAIL_POINTS, percentile + TAIL_POINTS))
        if parts
        else 0,
        typical_ms=sum(part.typical_ms for part in parts) if parts else None,
        slow_ms=sum(part.slow_ms for part in parts) if parts else None,
        stages=report.stages,
        parts=parts,
        budgets=report.budgets,
        reasons={} if parts else {"parts": report.reasons.get("stages", report.verdict.sentence)},
    )
