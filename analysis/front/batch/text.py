"""How does a report over hourly files read in a terminal?"""

from __future__ import annotations

from overrun.analysis.front import text_layout
from overrun.analysis.front.batch.period import Period, StagePath
from overrun.analysis.front.batch.report import BatchReport
from overrun.analysis.front.document import Block, Cell, Document, Figure, Line, Table
from overrun.analysis.words.finding import say_count, say_ms, say_ratio
from overrun.analysis.words.slo import METRICS
from overrun.analysis.words.times import rfc3339

_PERCENTILES = ("p50", "p90", "p95", "p99")


def render(report: BatchReport, width: int = 100) -> str:
    """Return a report as text."""
    return text_layout.render(document(report), width)


def document(report: BatchReport) -> Document:
    """Return counts, percentiles, stages, and what differs from the other period."""
    groups = _of_period(report.period)
    groups += [[_of_path(path, report.slo.percentile)] for path in report.period.paths]
    return Document([*groups, *(_of_changes(report, report.before) if report.before else [])])


def _of_period(period: Period) -> list[list[Block]]:
    good, errors = period.goodput, period.errors
    share = "not known" if good.ratio is None else say_ratio(good.ratio)
    rate = "" if good.rps is None else f" ({good.rps:,.4g} requests/s)"
    measured = [(name, getattr(period.latency, f"{name}_ms")) for name in METRICS]
    rows: list[tuple[Cell, ...]] = [
        (name.upper(), Figure(stats.n, "count"), *(Figure(getattr(stats, p)) for p in _PERCENTILES))
        for name, stats in measured
        if stats.n
    ]
    span = f"{rfc3339(period.start)} to {rfc3339(period.end)}"
    counted = (
        f"{say_count(period.requests, 'request')}, {say_count(period.llm_calls, 'model call')}"
    )
    left_out = f"incomplete and left out {period.incomplete:,}"
    return [
        [
            Line((f"{span}: {counted}",)),
            Line((f"goodput {share}{rate}", f"failed {say_ratio(errors.ratio or 0.0)}", left_out)),
        ],
        [Table(("", "n", *(name.upper() for name in _PERCENTILES)), rows, "<>>>>>")],
    ]


def _of_path(path: StagePath, percentile: float) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            row.group if row.stage is None else f"  {row.stage}",
            *map(
                Figure,
                (row.p50_ms, row.p90_ms, row.p95_ms, row.p99_ms, row.typical_ms, row.tail_ms),
            ),
            Figure(row.breach_share, "ratio"),
        )
        for row in path.stages
    ]
    over = "" if path.breaching is None else f", {path.breaching:,} over the limit"
    quantiles = (name.upper() for name in _PERCENTILES)
    head = ("stage", *quantiles, "typical", f"around P{percentile:g}", "of overrun")
    note = f"stages of {path.metric.upper()} in {say_count(path.n, 'successful request')}{over}"
    return Table(head, rows, "<>>>>>>>", note=note)


def _of_changes(report: BatchReport, before: Period) -> list[list[Block]]:
    rows: list[tuple[Cell, ...]] = [
        (
            f"{one.metric.upper()} P{one.percentile:g}",
            Figure(one.before_ms),
            Figure(one.after_ms),
            _signed(one.difference_ms),
            "" if one.apart else "within chance",
        )
        for one in report.changes
    ]
    stages: list[tuple[Cell, ...]] = [
        (
            one.stage,
            *map(Figure, (one.before_ms, one.after_ms, one.tail_before_ms, one.tail_after_ms)),
            _signed(one.tail_difference_ms),
        )
        for one in report.stages
    ]
    shares = [
        f"{name} {100.0 * value:+.2f} points"
        for name, value in (
            ("goodput", report.goodput_difference),
            ("failed", report.error_difference),
        )
        if value is not None
    ]
    near = f"around P{report.slo.percentile:g}, before"
    span = f"{rfc3339(before.start)} to {rfc3339(before.end)}"
    return [
        [
            Line((f"Compared with {span}: {say_count(before.requests, 'request')}",)),
            Line(shares, joint=", "),
            Table(("", "before", "after", "difference", ""), rows, "<>>><"),
        ],
        [Table(("stage", "before", "after", near, "after", "difference"), stages, "<>>>>>")],
    ]


def _signed(value_ms: float) -> str:
    return f"{'-' if value_ms < 0.0 else '+'}{say_ms(abs(value_ms))}"
