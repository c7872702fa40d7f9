"""The whole report for a terminal, the verdict first, legible without colour (`report_brief` has the answer alone).

Plain text without markup: every string that came in with telemetry is reduced to harmless characters before it is
printed.
"""

from datetime import datetime
from typing import Final

from overrun.analysis.evidence import instances, leading_indicators
from overrun.analysis.front.report import Report, seeking
from overrun.analysis.front.text_layout import cut, fitted, table, wrap
from overrun.analysis.incident.limit_fit import asked
from overrun.analysis.numbers.comparison.traffic_changes import Changed
from overrun.analysis.numbers.latency.percentiles import Percentiles
from overrun.analysis.numbers.outcomes.cost import say_cost
from overrun.analysis.numbers.stages import headroom
from overrun.analysis.numbers.stages.budget import LATER, StageRow
from overrun.analysis.numbers.stages.budget_rows import said
from overrun.analysis.numbers.stages.service_edges import say_culprit
from overrun.analysis.numbers.stages.tail import TAIL_POINTS
from overrun.analysis.words.finding import (
    FINDING_CAUSES,
    Finding,
    Fix,
    Predicted,
    printable,
    say_after,
    say_count,
    say_ms,
    say_over,
    say_rate,
    say_ratio,
    say_s,
    say_sample,
    say_trust,
)
from overrun.analysis.words.times import rfc3339

_MIN_WIDTH: Final = 72
_MOST_FINDINGS: Final = 3
_MOST_STAGES: Final = 8
_MOST_BUDGETS: Final = 4
_MOST_RULED_OUT: Final = 1
_MOST_INSTANCES: Final = 8
# A stage row must reach this share of its path's slow time to be printed; groups over budget are always printed.
_LEAST_SHARE: Final = 0.005
# A route must hold this share of the bad requests to be named; own default.
_LEAST_AFFECTED: Final = 0.05


def render(report: Report, *, width: int = 100) -> str:
    """Return the report as plain text of at most `width` (72 or more) columns, ending in a newline."""
    width = max(width, _MIN_WIDTH)
    parts = [
        [*_head(report, width), *wrap(report.verdict.sentence, width)],
        _latency(report, width),
        [
            *wrap(_goodput(report), width),
            *wrap(say_cost(report.cost), width),
            *wrap(_context(report), width),
            *wrap(_now(report), width),
            *wrap(_room(report), width, "", "  "),
            *wrap(_warning(report), width, "", "  "),
        ],
        _stages(report, width),
        _budgets(report),
        _instances(report, width),
        _findings(report, width),
        _quality(report, width),
    ]
    lines = [line for part in parts if part for line in (*part, "")]
    return "\n".join(cut(line, width) for line in lines)


def _head(report: Report, width: int) -> list[str]:
    window = report.window
    status = report.verdict.status.replace("_", " ").upper()
    if window.start is None or window.end is None:
        return [f"OVERRUN  {status}  no window"]
    seconds = (window.end - window.start).total_seconds()
    span = f"{rfc3339(window.start)} to {rfc3339(window.end)} ({say_s(seconds)})"
    first, requests = f"OVERRUN  {status}  {span},", say_count(window.requests, "request")
    whole = f"{first} {requests}"
    return [whole] if len(whole) <= width else [first, f"         {requests}"]


def _latency(report: Report, width: int) -> list[str]:
    of = "bucket edges" if report.verdict.scope == "engine_only" else "95 % interval"
    rows: list[tuple[str, ...]] = [
        ("LATENCY", "n", "P50", "P90", f"P95 ({of})", f"P99 ({of})", "max", "limit")
    ]
    limits = report.slo.limits()
    for metric in ("ttft", "itl", "tpot", "e2e"):
        stats: Percentiles = getattr(report.latency, f"{metric}_ms")
        limit = limits.get(metric)
        if stats.n == 0 and limit is None:
            continue
        rows.append((f"  {metric.upper()}", *_quantiles(stats), _time(limit)))
    for side in report.sides:
        rows.append((f"  {side.metric.upper()} gap", *_quantiles(side.gap_ms), "-"))
    for more in report.further:
        rows.append((f"  {more.metric.replace('_', ' ')}", *_quantiles(more.ms), "-"))
    sources = [
        f"{metric.upper()} {printable(stats.source, 40)}"
        for metric in ("ttft", "itl", "tpot", "e2e")
        if (stats := getattr(report.latency, f"{metric}_ms")).source
    ]
    few = " (-: too few requests)" if any("-" in row[2:6] for row in rows) else ""
    note = f"of successful requests{few}, by {'; '.join(sources) or 'nothing yet'}"
    note += "; between bucket edges interpolated" if report.verdict.scope == "engine_only" else ""
    note += "; gap: client minus engine of the same model calls" if report.sides else ""
    note += "".join(f"; {more.metric.replace('_', ' ')}: {more.what}" for more in report.further)
    return [*fitted(rows, "<>>>>>>>", width, (3, 6, 5)), *wrap(note, width, "  ", "  ")]


def _quantiles(stats: Percentiles) -> tuple[str, ...]:
    return (
        f"{stats.n:,}",
        _time(stats.p50),
        _time(stats.p90),
        _with_interval(stats.p95, stats.p95_interval),
        _with_interval(stats.p99, stats.p99_interval),
        _time(stats.max),
    )


def _goodput(report: Report) -> str:
    good, slo = report.goodput, asked(report.slo, report.unfit)
    limits = ", ".join(
        f"{metric.upper()} {say_ms(limit)}" for metric, limit in slo.limits().items()
    )
    if good.ratio is None:
        return f"GOODPUT unknown: {good.reasons.get('ratio', 'nothing to judge')} (limits {limits})"
    failed = ", ".join(
        f"{metric.upper()} {count:,}"
        for metric in ("ttft", "itl", "tpot", "e2e")
        if (count := getattr(good.failed_by, metric)) or metric in slo.limits()
    )
    rate = f" {say_rate(good.rps, 'good requests')}." if good.rps is not None else ""
    own = (
        f" {good.own_limits:,} requests carry limits of their own (x-slo headers)."
        if good.own_limits
        else ""
    )
    return (
        f"GOODPUT {say_ratio(good.ratio)} of {good.good + good.bad:,} requests meet every limit ({limits}); "
        f"the target is {say_ratio(slo.goodput_target)}. Missed: {failed}, errors {good.failed_by.error:,}. "
        f"Not measurable: {good.unmeasurable:,}.{rate}{own}"
    )


def _context(report: Report) -> str:
    verdict, parts = report.verdict, []
    if verdict.onset is not None:
        parts.append(
            f"since {_moment(verdict.onset, report)}"
            + (f", {verdict.trend}" if verdict.trend else "")
        )
    if verdict.affected is not None and verdict.affected.per_minute is not None:
        rate = verdict.affected.per_minute
        parts.append(
            f"{rate:,.0f} late or failed requests/min"
            if rate >= 10.0
            else f"{rate:.2g} late or failed requests/min"
        )
        # Of thousands of routes with a few bad requests each, none tells who is affected.
        many = [
            share
            for share in verdict.affected.routes
            if share.requests >= _LEAST_AFFECTED * verdict.affected.requests
        ]
        parts += [f"{say_ratio(share.ratio)} of route {share.name}" for share in many[:2]]
    parts += [_change(change, report) for change in verdict.changed[:2]]
    if report.baseline is not None:
        parts.append(
            f"baseline {say_count(report.baseline.requests, 'request')} ({report.baseline.choice.removeprefix('auto: ')})"
        )
    if any(check.check == "client_only" for check in report.data_quality):
        parts.append(
            "only clients send spans: there are no engine figures, and gains are exact, resampled or estimated"
        )
    if verdict.status == "over_budget" and (lost := say_culprit(report.edges)):
        parts.append(lost)
    parts += [f"not {out.what} ({out.figure})" for out in verdict.ruled_out[:_MOST_RULED_OUT]]
    return "SITUATION " + "; ".join(parts) if parts else ""


def _moment(time: datetime, report: Report) -> str:
    """A time of the window: without its date where the first line has said it."""
    start = report.window.start
    return (
        f"{time:%H:%M:%S} UTC"
        if start is not None and time.date() == start.date()
        else rfc3339(time)
    )


def _change(change: Changed, report: Report) -> str:
    at = "" if change.at == report.verdict.onset else f" at {_moment(change.at, report)}"
    return (
        f"{change.what} {change.before[0]} -> {change.after}{at}"
        if len(change.before) == 1
        else f"{change.what} {change.after} new{at}"
    )


def _warning(report: Report) -> str:
    """Which indicator warned before breaches, and how far it may be relied on."""
    return (
        f"EARLY WARNING {leading_indicators.said(report.indicators)}." if report.indicators else ""
    )


def _room(report: Report) -> str:
    """How far a service within its budget is from breaking it."""
    return (
        f"HEADROOM {headroom.said(report.headroom)}."
        if report.verdict.status in ("within_budget", "possibly_over_budget") and report.headroom
        else ""
    )


def _now(report: Report) -> str:
    """What to do in the next minutes, how to undo it, and when to look again."""
    verdict = report.verdict
    if verdict.mitigation is None:
        return ""
    undo = f" Undo: {verdict.rollback}" if verdict.rollback else ""
    again = (
        f" Look again after {verdict.recheck_after_s / 60:.0f} min."
        if verdict.recheck_after_s
        else ""
    )
    owner = f" Owner of the fix: {verdict.owner}." if verdict.owner else ""
    return f"NOW {verdict.mitigation}{undo}{again}{owner}"


def _stages(report: Report, width: int) -> list[str]:
    if not report.stages:
        return []
    metric = (report.verdict.metric or "e2e").upper()
    percentile = f"P{report.slo.percentile:g}"
    rows: list[tuple[str, ...]] = [
        ("STAGES", "budget", "typical", f"near {percentile}", "P50", "P95", "P99", "overrun", "")
    ]
    slowest = max((row.tail_ms or 0.0 for row in report.stages), default=0.0)
    for row, name in shown_stages(report.stages, slowest):
        share = say_ratio(row.breach_share) if row.breach_share is not None else "-"
        times = (row.budget_ms, row.typical_ms, row.tail_ms, row.p50_ms, row.p95_ms, row.p99_ms)
        rows.append(
            (
                name,
                *(_time(value) for value in times),
                share,
                "amber" if row.amber else "OVER" if row.over else "",
            )
        )
    whole = "to the first token" if metric == "TTFT" else "of the whole request"
    low, high = report.slo.percentile - TAIL_POINTS, min(100.0, report.slo.percentile + TAIL_POINTS)
    note = f"path {whole}; {metric} means: typical P40-P60, near {percentile} P{low:g}-P{high:g}"
    note += (
        "; amber: over its budget while requests are within the SLO"
        if any(row.amber for row in report.stages)
        else ""
    )
    named = next((row.budget for row in report.stages if row.budget is not None), None)
    note += f"; budget: {printable(named, 60)}" if named is not None else ""
    return [*fitted(rows, "<>>>>>>><", width, (4, 6, 5)), *wrap(note, width, "  ", "  ")]


def _budgets(report: Report) -> list[str]:
    if not report.budgets:
        return []
    name = f"{(report.verdict.metric or 'e2e').upper()} P{report.slo.percentile:g}"
    rows: list[tuple[str, ...]] = [("BUDGETS", "n", "over the limit", "", "over its budget")]
    for row in report.budgets[:_MOST_BUDGETS]:
        whose, *cells = said(row, name)
        rows.append((f"  {whose}", *cells))
    left = len(report.budgets) - _MOST_BUDGETS
    return [
        *table(rows, "<>>><"),
        *([f"  and {left} more: see --output json"] if left > 0 else []),
    ]


def _instances(report: Report, width: int) -> list[str]:
    """A row per engine instance, the sick ones first; of one alone beside requests, theirs says more."""
    if len(report.instances) < (1 if report.verdict.scope == "engine_only" else 2):
        return []
    since = report.verdict.onset is not None and report.verdict.status != "targets_down"
    head = ("INSTANCES" + (" since the onset" if since else ""), *instances.HEAD[1:])
    shown = report.instances[:_MOST_INSTANCES]
    left = len(report.instances) - len(shown)
    rows = [
        (f"  {name}", *cells, "SICK" if sick else "")
        for name, *cells, sick in map(instances.cells, shown)
    ]
    why = (
        instances.say_sick(report.instances, most=4)
        if report.verdict.scope != "engine_only"
        else ""
    )
    return [
        *fitted([head, *rows], "<<>>>>>><", width, (6, 7, 1)),
        *([f"  and {left} more: see --output json"] if left > 0 else []),
        *wrap(why, width, "  ", "    "),
    ]


def shown_stages(stages: list[StageRow], slowest_ms: float) -> list[tuple[StageRow, str]]:
    """The rows worth a line and their names, in order: a group of one stage is one row, and of too many rows those of the least time are left out."""
    members: dict[str, list[StageRow]] = {}
    for row in stages:
        if row.stage is not None and row.group != LATER and _worth_a_line(row, slowest_ms):
            members.setdefault(row.group, []).append(row)
    told = []
    for row in (row for row in stages if _worth_a_line(row, slowest_ms)):
        mine = members.get(row.group, [])
        if row.group == LATER:
            told.append((row, f"    {row.stage} (after it)"))
        elif row.stage is None:
            only = mine[0].stage if len(mine) == 1 else None
            told.append(
                (row, f"  {row.group}" + (f": {only}" if only not in (None, row.group) else ""))
            )
        elif len(mine) > 1 or row.budget_ms is not None:
            told.append((row, f"    {row.stage}"))
    least = sorted(
        (pair[0] for pair in told if pair[0].stage is not None and not pair[0].over),
        key=lambda row: row.tail_ms or 0.0,
    )
    left_out = [id(row) for row in least[: max(0, len(told) - _MOST_STAGES)]]
    return [pair for pair in told if id(pair[0]) not in left_out]


def _worth_a_line(row: StageRow, slowest_ms: float) -> bool:
    return row.over or max(row.tail_ms or 0.0, row.p99_ms or 0.0) > _LEAST_SHARE * slowest_ms


def _findings(report: Report, width: int) -> list[str]:
    if not report.findings:
        return [f"FINDINGS  {FINDING_CAUSES}"] if seeking(report) else []
    lines = [
        f"FINDINGS, {report.findings_age_s:,.0f} s old" if report.findings_age_s else "FINDINGS"
    ]
    for rank, finding in enumerate(report.findings[:_MOST_FINDINGS], start=1):
        lines += _finding(rank, finding, width, told=finding.rule == report.verdict.cause)
    more = len(report.findings) - _MOST_FINDINGS
    return [*lines, f"  and {more} more in the JSON report"] if more > 0 else lines


def _finding(rank: int, finding: Finding, width: int, *, told: bool) -> list[str]:
    """A finding, its fix, what that gains and where to look; on what the gain rests is not said again where the verdict's sentence has `told` it."""
    head = f"{rank}. {finding.rule} ({finding.severity}, confidence {say_ratio(finding.confidence)}): {finding.headline}"
    head += f" ({say_sample(finding)})."
    lines = wrap(head, width, "  ", "     ")
    fix, gain = finding.fix, ""
    if fix is not None and fix.predicted is not None:
        gain = _gain(fix, fix.predicted, told=told, brief=finding.severity == "info")
    if (
        finding.severity == "info"
    ):  # an opportunity, not what is wrong: two lines of it are enough here
        return [
            *lines,
            *wrap(f"FIX {fix.title}. {gain}" if fix is not None else "", width, "     ", "     "),
        ]
    traces = (
        f"TRACES {', '.join(printable(trace, 32) for trace in finding.exemplars[:2])}"
        if finding.exemplars
        else ""
    )
    for text in (
        f"FIX {fix.title}. {fix.detail}" if fix is not None else "",
        " ".join(part for part in (gain, traces) if part),
    ):
        lines += wrap(text, width, "     ", "     ")
    return lines


def _gain(fix: Fix, predicted: Predicted, *, told: bool, brief: bool) -> str:
    sure = [say_ms(edge) for edge in predicted.interval or ()]
    over = f", {say_over(predicted)}" if say_over(predicted) and not brief else ""
    return (
        f"GAIN {predicted.metric.upper()} P{100.0 * predicted.quantile:g} {say_ms(predicted.before)} -> {say_after(predicted)}"
        + (f" (90 % interval {sure[0]} to {sure[1]})" if len(set(sure)) == 2 else "")
        + ("" if told else f" if {fix.assumption}")
        + f"; {'a bound' if predicted.bound else fix.method}{over}; {say_trust(predicted)}."
    )


def _quality(report: Report, width: int) -> list[str]:
    bad = [check for check in report.data_quality if check.status != "ok"]
    said = [f"{check.status.upper()} {check.check}: {check.detail}." for check in bad]
    head = f"DATA QUALITY {len(report.data_quality) - len(bad)} checks passed"
    read = (
        [] if report.sample is None else wrap(f"SAMPLE {report.sample.sentence}", width, "", "  ")
    )
    if len(said) < 2:
        return [*read, *wrap("; ".join([head, *said]), width, "", "  ")]
    return [
        *read,
        f"{head}, {len(bad)} to look at",
        *(line for text in said for line in wrap(text, width, "  ", "       ")),
    ]


def _time(value_ms: float | None) -> str:
    return "-" if value_ms is None else say_ms(value_ms)


def _with_interval(value: float | None, interval: tuple[float, float] | None) -> str:
    if value is None:
        return "-"
    return _time(value) + (f" ({_time(interval[0])}-{_time(interval[1])})" if interval else "")
