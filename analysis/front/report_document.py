"""The whole report as a document, the verdict first: bounded for a terminal, complete for a file (`report_brief` has the answer alone)."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from overrun.analysis.evidence import instances, leading_indicators
from overrun.analysis.front import page, text_layout
from overrun.analysis.front.document import Block, Document, Figure, Items, Line, Table
from overrun.analysis.front.explanation_lines import explained
from overrun.analysis.front.report import Report, leading, seeking
from overrun.analysis.numbers.comparison.traffic_changes import Changed
from overrun.analysis.numbers.latency.percentiles import Percentiles
from overrun.analysis.numbers.outcomes.cost import say_cost
from overrun.analysis.numbers.stages import headroom
from overrun.analysis.numbers.stages.budget import LATER, StageRow
from overrun.analysis.numbers.stages.budget_rows import BudgetRow, said
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
from overrun.analysis.words.slo import METRICS
from overrun.analysis.words.times import rfc3339

BAD: Final = ("over_budget", "failing", "traffic_lost", "targets_down")
_MIN_WIDTH: Final = 72
# What a terminal shows of each list; a file has them whole.
_MOST_FINDINGS: Final = 3
_MOST_STAGES: Final = 8
_MOST_BUDGETS: Final = 4
_MOST_INSTANCES: Final = 8
# A stage row must reach this share of its path's slow time to be printed; groups over budget are always printed.
_LEAST_SHARE: Final = 0.005
# A route must hold this share of the bad requests to be named; own default.
_LEAST_AFFECTED: Final = 0.05


def render(report: Report, *, width: int = 100) -> str:
    """Return the report as plain text of at most `width` (72 or more) columns, ending in a newline."""
    return f"{text_layout.render(document(report), max(width, _MIN_WIDTH))}\n"


def to_markdown(report: Report) -> str:
    """Return the whole report as Markdown, ending in a newline."""
    return page.to_markdown(document(report, whole=True))


def to_html(report: Report) -> str:
    """Return the whole report as one HTML page."""
    return page.to_html(document(report, whole=True))


def document(report: Report, *, whole: bool = False) -> Document:
    """Return what a report says: `whole` for a file, else as much as a terminal takes."""
    status, found = report.verdict.status, leading(report)
    judged = f"{(report.verdict.metric or 'e2e').upper()} P{report.slo.percentile:g}"
    numbers = [
        Line((_goodput(report),), "GOODPUT", hang=0),
        Line((say_cost(report.cost),), hang=0),
        Line(list(situation(report, whole=whole)), "SITUATION", hang=0),
        Line(_now(report) if found is None else (), "NOW", joint=" ", hang=0),
        Line(_room(report), "HEADROOM"),
        Line(
            (f"{leading_indicators.said(report.indicators)}.",) if report.indicators else (),
            "EARLY WARNING",
        ),
    ]
    return Document(
        name="OVERRUN",
        status=status.replace("_", " ").upper(),
        tone="ok" if status == "within_budget" else "bad" if status in BAD else "soft",
        scope=_scope(report),
        lead=(found.sentence if found else "") or report.verdict.sentence,
        groups=[
            [Line((words,), label) for label, words in explained(found).items()] if found else [],
            [_latency(report, whole)],
            numbers,
            _stages(report, whole),
            budgets(report.budgets, judged, None if whole else _MOST_BUDGETS),
            instance_rows(report, whole=whole),
            _targets(report) if whole else [],
            _findings(report, whole),
            _quality(report, whole),
        ],
    )


def _scope(report: Report) -> list[str]:
    window = report.window
    if window.start is None or window.end is None:
        return ["no window"]
    seconds = (window.end - window.start).total_seconds()
    return [
        f"{rfc3339(window.start)} to {rfc3339(window.end)} ({say_s(seconds)})",
        say_count(window.requests, "request"),
    ]


def _latency(report: Report, whole: bool) -> Table:
    metrics = [
        (metric.upper(), getattr(report.latency, f"{metric}_ms"), report.slo.limits().get(metric))
        for metric in METRICS
    ]
    shown = [(name, stats, limit) for name, stats, limit in metrics if stats.n or limit is not None]
    for side in report.sides:
        name = side.metric.upper()
        if whole:
            shown += [
                (f"{name} client", side.client_ms, None),
                (f"{name} engine", side.engine_ms, None),
            ]
        shown.append((f"{name} gap", side.gap_ms, None))
    shown += [(more.metric.replace("_", " "), more.ms, None) for more in report.further]
    rows = [_quantiles(*row) for row in shown]
    few = any(cell.value is None for row in rows for cell in row[2:6] if isinstance(cell, Figure))
    edges = report.verdict.scope == "engine_only"
    of = "bucket edges" if edges else "95 % interval"
    return Table(
        ("metric", "n", "P50", "P90", f"P95 ({of})", f"P99 ({of})", "max", "limit"),
        rows,
        "<>>>>>>>",
        "LATENCY",
        spare=(3, 6, 5),
        note=_sources(report, edges=edges, few=few, whole=whole),
    )


def _sources(report: Report, *, edges: bool, few: bool, whole: bool) -> str:
    """What the latencies are of, and what measured each."""
    sources = [
        f"{metric.upper()} {printable(stats.source, 120 if whole else 40)}"
        for metric in METRICS
        if (stats := getattr(report.latency, f"{metric}_ms")).source
    ]
    note = "of successful requests" + (" (-: too few requests)" if few else "")
    note += f", by {'; '.join(sources) or 'nothing yet'}"
    note += "; between bucket edges interpolated" if edges else ""
    note += "; gap: client minus engine of the same model calls" if report.sides else ""
    for more in report.further:
        note += f"; {more.metric.replace('_', ' ')}: {more.what}"
        note += f", by {more.ms.source}" if whole and more.ms.source else ""
    return note


def _quantiles(name: str, stats: Percentiles, limit: float | None) -> tuple[str | Figure, ...]:
    return (
        f"  {name}",
        Figure(stats.n, "count"),
        Figure(stats.p50),
        Figure(stats.p90),
        Figure(stats.p95, interval=stats.p95_interval),
        Figure(stats.p99, interval=stats.p99_interval),
        Figure(stats.max),
        Figure(limit),
    )


def _goodput(report: Report) -> str:
    good, slo = report.goodput, report.slo
    limits = ", ".join(f"{name.upper()} {say_ms(limit)}" for name, limit in slo.limits().items())
    if good.ratio is None:
        return f"unknown: {good.reasons.get('ratio', 'nothing to judge')} (limits {limits})"
    missed = [(name, getattr(good.failed_by, name)) for name in METRICS]
    failed = ", ".join(f"{name.upper()} {n:,}" for name, n in missed if n or name in slo.limits())
    rate = f" {say_rate(good.rps, 'good requests')}." if good.rps is not None else ""
    own = f" {good.own_limits:,} requests carry limits of their own (x-slo headers)."
    return (
        f"{say_ratio(good.ratio)} of {good.good + good.bad:,} requests meet every limit ({limits}); "
        f"the target is {say_ratio(slo.goodput_target)}. Missed: {failed}, errors {good.failed_by.error:,}. "
        f"Not measurable: {good.unmeasurable:,}.{rate}{own if good.own_limits else ''}"
    )


def situation(report: Report, *, whole: bool) -> Iterable[str]:
    """Since when, whom it hits, what changed, with what it was compared, and what it is not."""
    verdict = report.verdict
    if verdict.onset is not None:
        yield f"since {moment(verdict.onset, report)}" + (
            f", {verdict.trend}" if verdict.trend else ""
        )
    if verdict.affected is not None:
        if (rate := verdict.affected.per_minute) is not None:
            yield f"{f'{rate:,.0f}' if rate >= 10.0 else f'{rate:.2g}'} late or failed requests/min"
        groups = [
            ("route", verdict.affected.routes),
            *([("tenant", verdict.affected.tenants)] if whole else []),
        ]
        for kind, shares in groups:
            # Of thousands of routes with a few bad requests each, none tells who is affected.
            many = [
                one for one in shares if one.requests >= _LEAST_AFFECTED * verdict.affected.requests
            ]
            yield from (f"{say_ratio(one.ratio)} of {kind} {one.name}" for one in many[:2])
    for one in verdict.changed[: None if whole else 2]:
        at = "" if one.at == verdict.onset else f" at {moment(one.at, report)}"
        yield f"{say_change(one)}{at}"
    if (base := report.baseline) is not None:
        span = (
            f", {rfc3339(base.start)} to {rfc3339(base.end)}"
            if whole and base.start and base.end
            else ""
        )
        yield f"baseline {say_count(base.requests, 'request')}{span} ({base.choice.removeprefix('auto: ')})"
    if any(check.check == "client_only" for check in report.data_quality):
        yield "only clients send spans: there are no engine figures, and gains are exact, resampled or estimated"
    if verdict.status == "over_budget" and (lost := say_culprit(report.edges)):
        yield lost
    yield from (
        f"not {out.what} ({out.figure})" for out in verdict.ruled_out[: None if whole else 1]
    )


def moment(time: datetime, report: Report) -> str:
    """Return a time of the window: without its date where the first line says it."""
    start = report.window.start
    same = start is not None and time.date() == start.date()
    return f"{time:%H:%M:%S} UTC" if same else f"{time:%Y-%m-%d %H:%M:%S} UTC"


def say_change(change: Changed) -> str:
    """Return what changed: `version 1 -> 2`, `engine 127.0.0.1:8000 new`."""
    if len(change.before) != 1:
        return f"{change.what} {change.after} new"
    return f"{change.what} {change.before[0]} -> {change.after}"


def _room(report: Report) -> list[str]:
    """How far a service within its budget is from breaking it."""
    near = report.verdict.status in ("within_budget", "possibly_over_budget") and report.headroom
    return [f"{headroom.said(report.headroom)}."] if near else []


def _now(report: Report) -> list[str]:
    """What to do in the next minutes, how to undo it, and when to look again."""
    verdict = report.verdict
    if verdict.mitigation is None:
        return []
    again = verdict.recheck_after_s
    return [
        verdict.mitigation,
        f"Undo: {verdict.rollback}" if verdict.rollback else "",
        f"Look again after {again / 60:.0f} min." if again else "",
        f"Owner of the fix: {verdict.owner}." if verdict.owner else "",
    ]


def _stages(report: Report, whole: bool) -> list[Block]:
    if not report.stages:
        return []
    metric = (report.verdict.metric or "e2e").upper()
    percentile = report.slo.percentile
    shown = (
        [(row, f"    {row.stage}" if row.stage else f"  {row.group}") for row in report.stages]
        if whole
        else shown_stages(
            report.stages, max((row.tail_ms or 0.0 for row in report.stages), default=0.0)
        )
    )
    rows = [
        (
            name,
            *map(Figure, (row.budget_ms, row.typical_ms)),
            Figure(row.tail_ms, over=row.over and not row.amber),
            *map(Figure, (row.p50_ms, row.p95_ms, row.p99_ms)),
            Figure(row.breach_share, "ratio"),
            "amber" if row.amber else "OVER" if row.over else "",
        )
        for row, name in shown
    ]
    note = f"path {'to the first token' if metric == 'TTFT' else 'of the whole request'}; {metric} means: typical P40-P60, near "
    low, high = percentile - TAIL_POINTS, min(100.0, percentile + TAIL_POINTS)
    note += f"P{percentile:g} P{low:g}-P{high:g}"
    if any(row.amber for row in report.stages):
        note += "; amber: over its budget while requests are within the SLO"
    named = next((row.budget for row in report.stages if row.budget is not None), None)
    note += f"; budget: {printable(named, 60)}" if named is not None else ""
    head = (
        "stage",
        "budget",
        "typical",
        f"near P{percentile:g}",
        "P50",
        "P95",
        "P99",
        "overrun",
        "",
    )
    return [Table(head, rows, "<>>>>>>><", "STAGES", spare=(4, 6, 5), note=note)]


def budgets(held: Sequence[BudgetRow], name: str, most: int | None = None) -> list[Block]:
    """Return a row for each budget with what its own requests did, of at most so many; `name` is the judged percentile."""
    rows = [(f"  {whose}", *cells) for whose, *cells in (said(row, name) for row in held[:most])]
    head = ("budget of", "n", "over the limit", "", "over its budget")
    shown: list[Block] = [Table(head, rows, "<>>><", "BUDGETS"), _left_out(len(held) - len(rows))]
    return shown if rows else []


def _left_out(rows: int) -> Line:
    return Line((f"and {rows} more: see --output json",) if rows > 0 else (), indent=2)


def instance_rows(report: Report, *, whole: bool) -> list[Block]:
    """A row per engine instance, the sick ones first; of one alone beside requests, theirs says more."""
    alone = report.verdict.scope == "engine_only"
    if len(report.instances) < (1 if alone or whole else 2):
        return []
    since = report.verdict.onset is not None and report.verdict.status != "targets_down"
    shown = report.instances if whole else report.instances[:_MOST_INSTANCES]
    rows = [
        (f"  {name}", *cells, sick if whole else "SICK" if sick else "")
        for name, *cells, sick in map(instances.cells, shown)
    ]
    title = "INSTANCES" + (" since the onset" if since else "")
    why = "" if alone or whole else instances.say_sick(report.instances, most=4)
    return [
        Table(instances.HEAD, rows, "<<>>>>>><", title, spare=(6, 7, 1)),
        _left_out(len(report.instances) - len(shown)),
        Line((why,), indent=2),
    ]


def _targets(report: Report) -> list[Block]:
    rows = [
        (
            printable(one.instance),
            one.state,
            printable(one.reason) if one.reason else "-",
            rfc3339(one.since),
            f"{one.answered:,} of {one.attempts:,}",
        )
        for one in report.targets
    ]
    head = ("target", "state", "why", "since", "answered")
    return [Table(head, rows, "<<<<>", "METRICS TARGETS")] if rows else []


def shown_stages(stages: list[StageRow], slowest_ms: float) -> list[tuple[StageRow, str]]:
    """The rows worth a line and their names, in order: a group of one stage is one row, and of too many rows those of the least time are left out."""
    members: dict[str, list[StageRow]] = {}
    for row in stages:
        if row.stage is not None and row.group != LATER and _worth_a_line(row, slowest_ms):
            members.setdefault(row.group, []).append(row)
    named = []
    for row in (row for row in stages if _worth_a_line(row, slowest_ms)):
        mine = members.get(row.group, [])
        if row.group == LATER:
            named.append((row, f"    {row.stage} (after it)"))
        elif row.stage is None:
            only = mine[0].stage if len(mine) == 1 else None
            named.append(
                (row, f"  {row.group}" + (f": {only}" if only not in (None, row.group) else ""))
            )
        elif len(mine) > 1 or row.budget_ms is not None:
            named.append((row, f"    {row.stage}"))
    least = sorted(
        (pair[0] for pair in named if pair[0].stage is not None and not pair[0].over),
        key=lambda row: row.tail_ms or 0.0,
    )
    left_out = [id(row) for row in least[: max(0, len(named) - _MOST_STAGES)]]
    return [pair for pair in named if id(pair[0]) not in left_out]


def _worth_a_line(row: StageRow, slowest_ms: float) -> bool:
    return row.over or max(row.tail_ms or 0.0, row.p99_ms or 0.0) > _LEAST_SHARE * slowest_ms


def _findings(report: Report, whole: bool) -> list[Block]:
    if not report.findings:
        return [Line((FINDING_CAUSES,), "FINDINGS ")] if seeking(report) else []
    title = f"FINDINGS, {report.findings_age_s:,.0f} s old" if report.findings_age_s else "FINDINGS"
    shown = report.findings if whole else report.findings[:_MOST_FINDINGS]
    more = len(report.findings) - len(shown)
    entries = [
        (_headline(finding), _advice(finding, whole, told=finding.rule == report.verdict.cause))
        for finding in shown
    ]
    return [
        Items(title, entries, mark="1"),
        Line((f"and {more} more in the JSON report",) if more else (), indent=2),
    ]


def _headline(finding: Finding) -> str:
    sure = f"{finding.severity}, confidence {say_ratio(finding.confidence)}"
    return f"{finding.rule} ({sure}): {finding.headline} ({say_sample(finding)})."


def _advice(finding: Finding, whole: bool, *, told: bool) -> list[str]:
    """The fix of a finding, what it gains and where to look. On what the gain rests is not said again where the verdict's sentence has `told` it."""
    fix, gain = finding.fix, ""
    # Information, not what is wrong: two lines of it are enough on a terminal.
    brief = finding.severity == "info" and not whole
    if fix is not None and fix.predicted is not None:
        gain = _gain(fix, fix.predicted, told=told, brief=brief)
    elif fix is not None and whole:
        gain = f"GAIN not known: {fix.reasons.get('predicted', 'it is not computed')}."
    if brief:
        return [f"FIX {fix.title}. {gain}" if fix is not None else ""]
    traces = ", ".join(printable(trace, 32) for trace in finding.exemplars[: None if whole else 2])
    first = f"FIX {fix.title}. {fix.detail}" if fix is not None else ""
    rest = [part for part in (gain, f"TRACES {traces}" if traces else "") if part]
    return [first, *rest] if whole else [first, " ".join(rest)]


def _gain(fix: Fix, predicted: Predicted, *, told: bool, brief: bool) -> str:
    sure = [say_ms(edge) for edge in predicted.interval or ()]
    over = f", {say_over(predicted)}" if say_over(predicted) and not brief else ""
    return (
        f"GAIN {predicted.metric.upper()} P{100.0 * predicted.quantile:g} {say_ms(predicted.before)} -> {say_after(predicted)}"
        + (f" (90 % interval {sure[0]} to {sure[1]})" if len(set(sure)) == 2 else "")
        + ("" if told else f" if {fix.assumption}")
        + f"; {'a bound' if predicted.bound else fix.method}{over}; {say_trust(predicted)}."
    )


def _quality(report: Report, whole: bool) -> list[Block]:
    bad = [check for check in report.data_quality if check.status != "ok"]
    passed = f"{len(report.data_quality) - len(bad)} checks passed"
    sample = Line(() if report.sample is None else (report.sample.sentence,), "SAMPLE")
    title = f"DATA QUALITY {passed}, {len(bad)} to look at"
    if whole:
        checks = sorted(report.data_quality, key=lambda check: check.status == "ok")
        quality = [(one.check, one.status, one.detail) for one in checks]
        steps = [(one.step, one.status, one.detail) for one in report.checklist]
        head = ("", "status", "detail")
        return [
            *([Table(head, steps, "<<<", "CHECKLIST")] if steps else []),
            sample,
            Table(head, quality, "<<<", title),
        ]
    doubts = [f"{check.status.upper()} {check.check}: {check.detail}." for check in bad]
    if len(doubts) < 2:
        return [sample, Line((passed, *doubts), "DATA QUALITY")]
    return [sample, Items(title, [(doubt, ()) for doubt in doubts], hang=5)]
