"""How does a report over hourly files read in a terminal?"""

from __future__ import annotations

from overrun.analysis.front.batch.period import Period, StagePath
from overrun.analysis.front.batch.report import BatchReport
from overrun.analysis.front.text_layout import table
from overrun.analysis.words.finding import say_count, say_ms, say_ratio
from overrun.analysis.words.slo import METRICS
from overrun.analysis.words.times import rfc3339

_PERCENTILES = ("p50", "p90", "p95", "p99")


def render(report: BatchReport) -> str:
    """Return a report as text: counts, percentiles, stages, and what differs from the other period."""
    lines = _of_period(report.period)
    for path in report.period.paths:
        lines += ["", *_of_path(path, report.slo.percentile)]
    if report.before is not None:
        lines += ["", *_of_changes(report, report.before)]
    return "\n".join(lines)


def _of_period(period: Period) -> list[str]:
    good, errors = period.goodput, period.errors
    share = "not known" if good.ratio is None else say_ratio(good.ratio)
    rate = "" if good.rps is None else f" ({good.rps:,.4g} requests/s)"
    rows = [("", "n", *(name.upper() for name in _PERCENTILES))]
    for metric in METRICS:
        stats = getattr(period.latency, f"{metric}_ms")
        if stats.n:
            rows.append(
                (metric.upper(), f"{stats.n:,}", *(_ms(getattr(stats, p)) for p in _PERCENTILES))
            )
    return [
        f"{rfc3339(period.start)} to {rfc3339(period.end)}: {say_count(period.requests, 'request')}, {say_count(period.llm_calls, 'model call')}",
        f"goodput {share}{rate}; failed {say_ratio(errors.ratio or 0.0)}; incomplete and left out {period.incomplete:,}",
        "",
        *table(rows, "<>" + ">" * len(_PERCENTILES)),
    ]


def _of_path(path: StagePath, percentile: float) -> list[str]:
    rows = [
        (
            "stage",
            *(name.upper() for name in _PERCENTILES),
            "typical",
            f"around P{percentile:g}",
            "of overrun",
        )
    ]
    for row in path.stages:
        values = (row.p50_ms, row.p90_ms, row.p95_ms, row.p99_ms, row.typical_ms, row.tail_ms)
        share = "-" if row.breach_share is None else say_ratio(row.breach_share)
        name = row.group if row.stage is None else f"  {row.stage}"
        rows.append((name, *map(_ms, values), share))
    over = "" if path.breaching is None else f", {path.breaching:,} over the limit"
    return [
        f"Stages of {path.metric.upper()} in {say_count(path.n, 'successful request')}{over}",
        *table(rows, "<" + ">" * 7),
    ]


def _of_changes(report: BatchReport, before: Period) -> list[str]:
    rows: list[tuple[str, ...]] = [("", "before", "after", "difference", "")]
    rows += [
        (
            f"{one.metric.upper()} P{one.percentile:g}",
            say_ms(one.before_ms),
            say_ms(one.after_ms),
            _signed(one.difference_ms),
            "" if one.apart else "within chance",
        )
        for one in report.changes
    ]
    stages: list[tuple[str, ...]] = [
        (
            "stage",
            "before",
            "after",
            f"around P{report.slo.percentile:g}, before",
            "after",
            "difference",
        )
    ]
    stages += [
        (
            one.stage,
            say_ms(one.before_ms),
            say_ms(one.after_ms),
            say_ms(one.tail_before_ms),
            say_ms(one.tail_after_ms),
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
    return [
        f"Compared with {rfc3339(before.start)} to {rfc3339(before.end)}: {say_count(before.requests, 'request')}",
        *([", ".join(shares)] if shares else []),
        *table(rows, "<>>><"),
        "",
        *table(stages, "<>>>>>"),
    ]


def _ms(value: float | None) -> str:
    return "-" if value is None else say_ms(value)


def _signed(value_ms: float) -> str:
    return f"{'-' if value_ms < 0.0 else '+'}{say_ms(abs(value_ms))}"
