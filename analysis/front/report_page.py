"""The report as one file: a self-contained HTML page that opens without a network, and Markdown for tickets and chats.

Every string that came in with telemetry is escaped; the page loads nothing and runs nothing.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Final

from overrun.analysis.evidence import instances, leading_indicators
from overrun.analysis.front.report import Report, seeking
from overrun.analysis.incident.limit_fit import asked
from overrun.analysis.numbers.latency.percentiles import Percentiles
from overrun.analysis.numbers.outcomes.cost import say_cost
from overrun.analysis.numbers.quality.targets import Target
from overrun.analysis.numbers.stages import headroom
from overrun.analysis.numbers.stages.budget import StageRow
from overrun.analysis.numbers.stages.budget_rows import said
from overrun.analysis.numbers.stages.service_edges import say_culprit
from overrun.analysis.words.finding import (
    FINDING_CAUSES,
    Finding,
    printable,
    say_after,
    say_count,
    say_ms,
    say_over,
    say_rate,
    say_ratio,
    say_sample,
    say_trust,
)
from overrun.analysis.words.slo import METRICS
from overrun.analysis.words.times import rfc3339

_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1a1a1a;--soft:#5c5c5c;--line:#d9d9d9;--bad:#b3261e;--ok:#1b6e3a;--bar:#c9d6e8;--over:#e8b4b0}
@media(prefers-color-scheme:dark){:root{--ink:#ececec;--soft:#a8a8a8;--line:#3d3d3d;--bad:#ff8a80;--ok:#7bd69a;--bar:#33475f;--over:#6b2f2b}body{background:#161616}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);max-width:62rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.1rem;letter-spacing:.04em}h2{font-size:1rem;margin:2rem 0 .5rem}.lead{font-size:1.25rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}td,th{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:right}
td:first-child,th:first-child{text-align:left}small,.soft{color:var(--soft)}.bad{color:var(--bad)}.ok{color:var(--ok)}.wide{overflow-x:auto}
.bar{display:inline-block;height:.7rem;background:var(--bar)}.bar.over{background:var(--over)}pre{white-space:pre-wrap}
@media print{body{margin:0;max-width:none}}
"""
_HEAD: Final = ("", "n", "P50", "P90", "P95", "95 % interval", "P99", "max", "limit", "source")
_EDGES: Final = tuple("bucket edges of P95" if name == "95 % interval" else name for name in _HEAD)

_BUDGETS: Final = (
    "budget of",
    "n",
    "over the limit",
    "",
    "over its budget (means of slow requests)",
)
_FURTHER: Final = ("", "n", "P50", "P90", "P95", "P99", "max", "measured by")
_TARGETS: Final = ("target", "state", "why", "since", "answered")
_SIDES: Final = ("", "n", "P50", "P90", "P95", "P99", "max")


def to_html(report: Report) -> str:
    """Return the report as one HTML document without scripts, links to other hosts or external styles."""
    verdict = report.verdict
    status = verdict.status.replace("_", " ")
    tone = (
        "ok"
        if verdict.status == "within_budget"
        else "bad"
        if verdict.status in ("over_budget", "failing", "traffic_lost", "targets_down")
        else "soft"
    )
    parts = [
        f"<h1><span class={tone}>{_esc(status.upper())}</span> <small>{_esc(_window(report))}</small></h1>",
        f"<p class=lead>{_esc(verdict.sentence)}</p>",
        "".join(f"<p>{_esc(line)}</p>" for line in _situation(report)),
        "<h2>Latency of successful requests</h2>",
        _table(_head(report), _latency_rows(report)),
        f"<p>{_esc(_goodput(report))}</p>",
        f"<p>{_esc(say_cost(report.cost))}</p>" if say_cost(report.cost) else "",
        "<h2>Further latencies without a limit</h2>" + _table(_FURTHER, _further_rows(report))
        if report.further
        else "",
        "<h2>Client and engine, the same model calls</h2>" + _table(_SIDES, _side_rows(report))
        if report.sides
        else "",
        "<h2>Stages</h2>" + _stage_table(report) if report.stages else "",
        "<h2>Budgets</h2>" + _table(_BUDGETS, _budget_rows(report)) if report.budgets else "",
        "<h2>Engine instances</h2>" + _table(instances.HEAD, map(instances.cells, report.instances))
        if report.instances
        else "",
        "<h2>Metrics targets</h2>" + _table(_TARGETS, map(_target_cells, report.targets))
        if report.targets
        else "",
        f"<h2>{_heading(report)}</h2>" + "".join(_finding(finding) for finding in report.findings)
        if report.findings or seeking(report)
        else "",
        f"<h2>Headroom</h2><p>{_esc(headroom.said(report.headroom))}.</p>"
        if report.headroom
        else "",
        f"<h2>Early warning</h2><p>{_esc(_warning(report))}</p>" if report.indicators else "",
        "<h2>Checklist</h2>",
        _table(
            ("step", "status", "detail"), [(s.step, s.status, s.detail) for s in report.checklist]
        )
        if report.checklist
        else "",
        "<h2>Data quality</h2>",
        f"<p>{_esc(report.sample.sentence)}</p>" if report.sample is not None else "",
        _table(
            ("check", "status", "detail"),
            [(c.check, c.status, c.detail) for c in report.data_quality],
        ),
    ]
    title = _esc(f"Overrun: {status}")
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><title>{title}</title><style>{_STYLE}</style></head>\n<body>\n'
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def to_markdown(report: Report) -> str:
    """Return the report as GitHub-flavoured Markdown, ending in a newline."""
    verdict = report.verdict
    lines = [
        f"## {verdict.status.replace('_', ' ').upper()} ({_window(report)})",
        "",
        _md(verdict.sentence),
        "",
    ]
    lines += [f"- {_md(line)}" for line in _situation(report)]
    spent = say_cost(report.cost)
    lines += [
        "",
        *_md_table(_head(report), _latency_rows(report)),
        "",
        _md(_goodput(report)),
        *(["", _md(spent)] if spent else []),
    ]
    if report.further:
        lines += [
            "",
            "### Further latencies without a limit",
            "",
            *_md_table(_FURTHER, _further_rows(report)),
        ]
    if report.sides:
        lines += [
            "",
            "### Client and engine, the same model calls",
            "",
            *_md_table(_SIDES, _side_rows(report)),
        ]
    if report.stages:
        lines += [
            "",
            "### Stages",
            "",
            *_md_table(
                ("stage", "budget", "typical", "slow", "P95", "overrun", ""),
                [_stage_cells(row) for row in report.stages],
            ),
        ]
    if report.budgets:
        lines += ["", "### Budgets", "", *_md_table(_BUDGETS, _budget_rows(report))]
    if report.instances:
        lines += [
            "",
            "### Engine instances",
            "",
            *_md_table(instances.HEAD, map(instances.cells, report.instances)),
        ]
    if report.targets:
        lines += [
            "",
            "### Metrics targets",
            "",
            *_md_table(_TARGETS, map(_target_cells, report.targets)),
        ]
    if report.findings or seeking(report):
        lines += ["", f"### {_heading(report)}", ""]
        lines += [
            f"{rank}. {_md(_headline(finding))}"
            + "".join(f"\n   - {_md(text)}" for text in _advice(finding))
            for rank, finding in enumerate(report.findings, 1)
        ]
    if report.headroom:
        lines += ["", "### Headroom", "", f"{_md(headroom.said(report.headroom))}."]
    if report.indicators:
        lines += ["", "### Early warning", "", _md(_warning(report))]
    doubts = [check for check in report.data_quality if check.status != "ok"]
    lines += [
        "",
        f"### Data quality: {len(doubts)} to look at, {len(report.data_quality) - len(doubts)} passed",
        "",
    ]
    lines += [_md(report.sample.sentence), ""] if report.sample is not None else []
    lines += [f"- **{check.status}** {_md(check.check)}: {_md(check.detail)}" for check in doubts]
    return "\n".join(lines).rstrip() + "\n"


def _window(report: Report) -> str:
    window = report.window
    if window.start is None or window.end is None:
        return "no window"
    return (
        f"{rfc3339(window.start)} to {rfc3339(window.end)}, {say_count(window.requests, 'request')}"
    )


def _situation(report: Report) -> list[str]:
    verdict, lines = report.verdict, []
    if verdict.onset is not None:
        lines.append(
            f"Since {rfc3339(verdict.onset)}" + (f", {verdict.trend}." if verdict.trend else ".")
        )
    if report.baseline is not None:
        span = f"{rfc3339(report.baseline.start)} to {rfc3339(report.baseline.end)}"
        lines.append(
            f"Baseline: {say_count(report.baseline.requests, 'request')}, {span} ({report.baseline.choice})."
        )
    if verdict.affected is not None:
        who = (("route", verdict.affected.routes), ("tenant", verdict.affected.tenants))
        shares = [
            f"{kind} {share.name} {say_ratio(share.ratio)} bad"
            for kind, values in who
            for share in values[:2]
        ]
        lines.append(
            f"Affected: {say_count(verdict.affected.requests, 'request')}"
            + (f"; {', '.join(shares)}." if shares else ".")
        )
    lines += [
        f"Changed: {change.what} {f'{old} -> ' if (old := ', '.join(change.before)) else ''}{change.after} at {rfc3339(change.at)}."
        for change in verdict.changed[:4]
    ]
    lines += [
        f"Client-only: {check.detail}."
        for check in report.data_quality
        if check.check == "client_only"
    ]
    if verdict.status == "over_budget" and (lost := say_culprit(report.edges)):
        lines.append(f"Between services: {lost}.")
    if verdict.ruled_out:
        lines.append(
            f"Ruled out: {'; '.join(f'{out.what} ({out.figure})' for out in verdict.ruled_out)}."
        )
    lines += [f"Do now: {verdict.mitigation}"] if verdict.mitigation else []
    lines += [f"Undo: {verdict.rollback}"] if verdict.rollback else []
    again = (
        f"Look again after {verdict.recheck_after_s / 60:.0f} min."
        if verdict.recheck_after_s
        else ""
    )
    owner = f"Owner of the fix: {verdict.owner}." if verdict.owner else ""
    lines += [" ".join(part for part in (again, owner) if part)] if again or owner else []
    return lines


def _head(report: Report) -> tuple[str, ...]:
    return _EDGES if report.verdict.scope == "engine_only" else _HEAD


def _latency_rows(report: Report) -> list[tuple[str, ...]]:
    rows = []
    for metric in METRICS:
        stats: Percentiles = getattr(report.latency, f"{metric}_ms")
        limit = report.slo.limits().get(metric)
        if stats.n or limit is not None:
            interval = (
                f"{_ms(stats.p95_interval[0])} to {_ms(stats.p95_interval[1])}"
                if stats.p95_interval
                else "-"
            )
            cells = (_ms(value) for value in (stats.p50, stats.p90, stats.p95))
            rows.append(
                (
                    metric.upper(),
                    f"{stats.n:,}",
                    *cells,
                    interval,
                    _ms(stats.p99),
                    _ms(stats.max),
                    _ms(limit),
                    printable(stats.source or "-", 120),
                )
            )
    return rows


def _further_rows(report: Report) -> list[tuple[str, ...]]:
    return [
        (
            more.what,
            f"{more.ms.n:,}",
            *(
                _ms(value)
                for value in (more.ms.p50, more.ms.p90, more.ms.p95, more.ms.p99, more.ms.max)
            ),
            more.ms.source or "-",
        )
        for more in report.further
    ]


def _side_rows(report: Report) -> list[tuple[str, ...]]:
    return [
        (
            f"{side.metric.upper()} {name}",
            f"{stats.n:,}",
            *(_ms(value) for value in (stats.p50, stats.p90, stats.p95, stats.p99, stats.max)),
        )
        for side in report.sides
        for name, stats in (
            ("client", side.client_ms),
            ("engine", side.engine_ms),
            ("gap", side.gap_ms),
        )
    ]


def _target_cells(target: Target) -> tuple[str, ...]:
    answered = f"{target.answered:,} of {target.attempts:,}"
    return (
        printable(target.instance),
        target.state,
        printable(target.reason) if target.reason else "-",
        rfc3339(target.since),
        answered,
    )


def _goodput(report: Report) -> str:
    good = report.goodput
    limits = ", ".join(
        f"{name.upper()} {say_ms(limit)}"
        for name, limit in asked(report.slo, report.unfit).limits().items()
    )
    if good.ratio is None:
        return (
            f"Goodput unknown: {good.reasons.get('ratio', 'nothing to judge')} (limits {limits})."
        )
    rate = f", {say_rate(good.rps, 'good requests')}" if good.rps is not None else ""
    return (
        f"Goodput {say_ratio(good.ratio)} of {good.good + good.bad:,} requests meet every limit: {limits} (target "
        f"{say_ratio(report.slo.goodput_target)}){rate}; errors {good.failed_by.error:,}, not measurable {good.unmeasurable:,}"
        + (
            f"; {good.own_limits:,} carry limits of their own (x-slo headers)."
            if good.own_limits
            else "."
        )
    )


def _budget_rows(report: Report) -> list[tuple[str, ...]]:
    return [
        said(row, f"{(report.verdict.metric or 'e2e').upper()} P{report.slo.percentile:g}")
        for row in report.budgets
    ]


def _stage_cells(row: StageRow) -> tuple[str, ...]:
    share = say_ratio(row.breach_share) if row.breach_share is not None else "-"
    told = "amber" if row.amber else "OVER" if row.over else ""
    return (
        row.stage or row.group,
        *(_ms(value) for value in (row.budget_ms, row.typical_ms, row.tail_ms, row.p95_ms)),
        share,
        told,
    )


def _stage_table(report: Report) -> str:
    widest = max((row.tail_ms or 0.0 for row in report.stages), default=0.0) or 1.0
    body = []
    for row in report.stages:
        name, *cells, over = _stage_cells(row)
        width = 16.0 * (row.tail_ms or 0.0) / widest
        bar = f'<span class="bar{" over" if row.over and not row.amber else ""}" style="width:{width:.2f}rem"></span>'
        label = f"&emsp;{_esc(name)}" if row.stage else f"<b>{_esc(name)}</b>"
        body.append(
            f"<tr><td>{label}</td>"
            + "".join(f"<td>{_esc(cell)}</td>" for cell in cells)
            + f"<td style=text-align:left>{bar} {_esc(over)}</td></tr>"
        )
    head = "".join(
        f"<th>{_esc(cell)}</th>"
        for cell in (
            "stage",
            "budget",
            "typical",
            f"near P{report.slo.percentile:g}",
            "P95",
            "share of overrun",
            "",
        )
    )
    return f"<div class=wide><table><tr>{head}</tr>{''.join(body)}</table></div>"


def _heading(report: Report) -> str:
    if seeking(report):
        return f"Findings: {FINDING_CAUSES}"
    return f"Findings, {report.findings_age_s:,.0f} s old" if report.findings_age_s else "Findings"


def _headline(finding: Finding) -> str:
    return f"{finding.rule} ({finding.severity}, confidence {say_ratio(finding.confidence)}): {finding.headline}"


def _advice(finding: Finding) -> list[str]:
    lines = [say_sample(finding)]
    if finding.fix is not None:
        lines.append(f"Fix: {finding.fix.title}. {finding.fix.detail}")
        gain = finding.fix.predicted
        if gain is not None:
            interval = (
                f" (90 % interval {say_ms(gain.interval[0])} to {say_ms(gain.interval[1])})"
                if gain.interval
                else ""
            )
            lines.append(
                f"Gain: {gain.metric.upper()} P{100.0 * gain.quantile:g} {say_ms(gain.before)} -> {say_after(gain)}{interval}, "
                f"if {finding.fix.assumption}; {'a bound' if gain.bound else finding.fix.method}"
                + (f"; {over}" if (over := say_over(gain)) else "")
                + f"; {say_trust(gain)}."
            )
        else:
            lines.append(
                f"Gain: not known: {finding.fix.reasons.get('predicted', 'it is not computed')}."
            )
    if finding.exemplars:
        lines.append(f"Traces: {', '.join(printable(trace, 32) for trace in finding.exemplars)}")
    return lines


def _finding(finding: Finding) -> str:
    return f"<p><b>{_esc(_headline(finding))}</b></p><ul>{''.join(f'<li>{_esc(text)}</li>' for text in _advice(finding))}</ul>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = "".join(f"<th>{_esc(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{_esc(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<div class=wide><table><tr>{cells}</tr>{body}</table></div>"


def _md_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        "|" + "---|" * len(head),
        *(f"| {' | '.join(_md(cell) for cell in row)} |" for row in rows),
    ]


def _ms(value: float | None) -> str:
    return "-" if value is None else say_ms(value)


def _esc(text: str) -> str:
    return html.escape(printable(text, 2000))


def _md(text: str) -> str:
    """Text that Markdown shows as it is: no links, no images, no raw HTML, no table breaks."""
    kept = printable(text, 2000) if text else ""
    kept = "".join(f"\\{char}" if char in "\\`*_|#!~" else char for char in kept)
    return kept.replace("<", "&lt;").replace(">", "&gt;").replace("://", "&#58;//")


def _warning(report: Report) -> str:
    text = leading_indicators.said(report.indicators)
    return f"{text[:1].upper()}{text[1:]}."
