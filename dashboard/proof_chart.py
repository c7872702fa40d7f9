"""How is a finding shown? The chart of its deciding fact and a few facts before and now, as HTML without a chart library; and the way from the cause to the stage."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from overrun.analysis.diagnosis.causal_graph import BRINGS, NODES
from overrun.analysis.evidence.decisive_chart import Bar, Chart, Line
from overrun.analysis.evidence.fact import Fact, say_value
from overrun.analysis.front import fact_text
from overrun.analysis.front.proof_list import Proof
from overrun.analysis.front.report import Report
from overrun.dashboard import ui
from overrun.dashboard.theme import Theme, say_step, say_tick, ticks

_WIDTH, _HEIGHT = 600, 140
# Above the highest value, so that a line at the top is seen.
_HEAD: Final = 1.06
# Names of things stand in rows, ranges of numbers in columns.
_NAMED: Final = ("replica", "tenant")
# Other causes of the first step that are listed.
_MOST_OTHERS: Final = 6
_RIGHT: Final = 0.7


def render(proof: Proof, onset: datetime | None, theme: Theme) -> str:
    """The chart and the facts as safe HTML."""
    chart = proof.chart
    if chart is None:
        drawn = f'<p class="ov-muted">No chart: {ui.sentence(proof.reasons.get("chart", "nothing to draw"))}</p>'
    elif chart.kind == "course":
        drawn = course(chart, onset, theme)
    else:
        drawn = bars(chart)
    return drawn + facts(proof.facts)


def course(chart: Chart, onset: datetime | None, theme: Theme) -> str:
    """Lines over time with the onset."""
    if chart.start is None:
        return ""
    known = [value for line in chart.lines for value in line.values if value is not None]
    top = _HEAD * max([*known, chart.limit or 0.0]) or 1.0
    n = len(chart.lines[0].values)
    cells = "".join(_cell(chart, at, n) for at in range(n))
    marks = _onset(chart, n, onset) + _limit(chart, top)
    axis = "".join(
        f'<b style="bottom:{100.0 * mark / top:.2f}%">{say_tick(mark) if chart.unit == "ms" else say_value(mark, chart.unit)}</b>'
        for mark in ticks(top)
    )
    middle, end = (chart.start + timedelta(seconds=chart.step_s * part) for part in (n / 2, n))
    times = f"<span>{chart.start:%H:%M:%S}</span><span>{middle:%H:%M:%S}</span><span>{end:%H:%M:%S} UTC</span>"
    return (
        f"<h3>{ui.text(chart.title)}</h3>"
        f'<div class="ov-plot"><div class="ov-yaxis">{axis}</div><div class="ov-columns">{cells}{_picture(chart, top, theme)}{marks}</div></div>'
        f'<div class="ov-clock">{times}</div>{_legend(chart, theme)}'
    )


def _cell(chart: Chart, at: int, n: int) -> str:
    time = (chart.start or datetime.now(UTC)) + timedelta(seconds=chart.step_s * at)
    values = [
        f"&#10;{ui.text(line.name)} {say_value(value, chart.unit)}"
        for line in chart.lines
        if (value := line.values[at]) is not None
    ]
    tip = f"{time:%H:%M:%S} UTC{''.join(values) or '&#10;too few calls'}"
    return f'<span{" class=ov-late" if 2 * at > n else ""} data-tip="{tip}"></span>'


def _picture(chart: Chart, top: float, theme: Theme) -> str:
    """The lines as an image, since a page's sanitizer takes drawings out of HTML."""
    drawn = "".join(
        _path(line, top, ink) for line, ink in zip(chart.lines, _inks(theme), strict=False)
    )
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none">{drawn}</svg>'
    source = base64.b64encode(svg.encode()).decode()
    return f'<img src="data:image/svg+xml;base64,{source}" alt="{_spoken(chart)}">'


def _inks(theme: Theme) -> tuple[str, ...]:
    return theme.accent, theme.muted, theme.ink


def _path(line: Line, top: float, ink: str) -> str:
    width = _WIDTH / len(line.values)
    runs: list[list[str]] = [[]]
    for at, value in enumerate(line.values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append(f"{(at + 0.5) * width:.1f},{_HEIGHT * (1.0 - value / top):.1f}")
    style = f'fill="none" stroke="{ink}" stroke-width="2" vector-effect="non-scaling-stroke"'
    # A single step between two unknown ones is drawn as wide as it is.
    return "".join(
        f'<polyline points="{" ".join(run)}" {style}/>'
        if len(run) > 1
        else f'<polyline points="{_widened(run[0], width)}" {style}/>'
        for run in runs
        if run
    )


def _widened(point: str, width: float) -> str:
    x, y = point.split(",")
    return f"{float(x) - width / 2:.1f},{y} {float(x) + width / 2:.1f},{y}"


def _spoken(chart: Chart) -> str:
    parts = []
    for line in chart.lines:
        values = [value for value in line.values if value is not None]
        first, last, most = (say_value(v, chart.unit) for v in (values[0], values[-1], max(values)))
        parts.append(f"{line.name}: first {first}, last {last}, highest {most}")
    return ui.text(f"{chart.title} per {say_step(chart.step_s)}. {'; '.join(parts)}", 400)


def _onset(chart: Chart, n: int, onset: datetime | None) -> str:
    if onset is None or chart.start is None:
        return ""
    share = (onset - chart.start).total_seconds() / (n * chart.step_s)
    if not 0.0 <= share <= 1.0:
        return ""
    side = " ov-left" if share > _RIGHT else ""
    return f'<em class="ov-onset{side}" style="left:{100.0 * share:.2f}%"><b>onset {onset.astimezone(UTC):%H:%M:%S}</b></em>'


def _limit(chart: Chart, top: float) -> str:
    if chart.limit is None:
        return ""
    return f'<em class="ov-limit" style="bottom:{100.0 * chart.limit / top:.2f}%"><b>{ui.text(chart.limit_name)}</b></em>'


def _legend(chart: Chart, theme: Theme) -> str:
    if len(chart.lines) < 2:
        return f'<p class="ov-legend"><small>per {say_step(chart.step_s)}</small></p>'
    chips = "".join(
        f'<span><i style="background:{ink}"></i>{ui.text(line.name)}</span>'
        for line, ink in zip(chart.lines, _inks(theme), strict=False)
    )
    return f'<p class="ov-legend">{chips}<small>per {say_step(chart.step_s)}</small></p>'


def bars(chart: Chart) -> str:
    """A value before and now per replica, tenant or range."""
    if not chart.bars:
        return ""
    top = max(max(bar.now or 0.0, bar.before or 0.0) for bar in chart.bars) or 1.0
    body = (
        "".join(_row(bar, top, chart) for bar in chart.bars)
        if chart.among in _NAMED
        else _columns(chart, top)
    )
    before = any(bar.before is not None for bar in chart.bars)
    chips = '<span><i class="ov-these"></i>now</span>' + (
        '<span><i class="ov-others"></i>before</span>' if before else ""
    )
    return (
        f"<h3>{ui.text(chart.title)}</h3>{body}"
        f'<p class="ov-legend">{chips}<small>by {ui.text(chart.among)}</small></p>'
    )


def _sides(bar: Bar, top: float, edge: str) -> str:
    return "".join(
        f'<i class="{which}" style="{edge}:{100.0 * (value or 0.0) / top:.1f}%"></i>'
        for which, value in (("ov-others", bar.before), ("ov-these", bar.now))
    )


def _values(bar: Bar, chart: Chart) -> str:
    now = "unknown" if bar.now is None else say_value(bar.now, chart.unit)
    before = "" if bar.before is None else f", {say_value(bar.before, chart.unit)} before"
    return f"{now}{before}"


def _row(bar: Bar, top: float, chart: Chart) -> str:
    return (
        f'<div class="ov-value ov-named" title="{bar.n:,} calls"><span>{ui.text(bar.name)}</span>'
        f'<span class="ov-pair">{_sides(bar, top, "width")}</span><small>{_values(bar, chart)}</small></div>'
    )


def _columns(chart: Chart, top: float) -> str:
    cells = "".join(
        f'<span{" class=ov-late" if 2 * at >= len(chart.bars) else ""} data-tip="{ui.text(bar.name)} {ui.text(chart.among)}&#10;{_values(bar, chart)}&#10;'
        f'{bar.n:,} calls">{_sides(bar, top, "height")}</span>'
        for at, bar in enumerate(chart.bars)
    )
    spoken = "; ".join(f"{bar.name}: {_values(bar, chart)}" for bar in chart.bars)
    first, last = chart.bars[0].name, chart.bars[-1].name
    return (
        f'<div class="ov-histogram ov-tall" role="img" aria-label="{ui.text(f"{chart.title}. {spoken}", 600)}">{cells}</div>'
        f'<div class="ov-ends"><small><span>{ui.text(first)}</span><span>highest bar {say_value(top, chart.unit)}</span><span>{ui.text(last)}</span></small></div>'
    )


def facts(found: Sequence[Fact]) -> str:
    """Plain facts: what it was and what it is."""
    rows = "".join(
        f"<div><dt>{ui.text(fact.label, 90)}{' (slow requests)' if fact.among == 'slow requests' else ''}</dt><dd>{_change(fact)}</dd></div>"
        for fact in found
    )
    return f'<dl class="ov-plain">{rows}</dl>' if rows else ""


def _change(fact: Fact) -> str:
    if fact.now is None:
        return ""
    now = f"<b>{say_value(fact.now.value, fact.unit)}</b>"
    if fact.before is None:
        return now
    if fact.clear is False:
        return f"{now} <small>as before</small>"
    return f"{say_value(fact.before.value, fact.unit)} → {now} <small>{ui.text(fact_text.change(fact))}</small>"


def way(report: Report) -> str:
    """The causal graph around the way that was taken: its steps from the cause to the stage, and the other causes of its second step with what speaks against
    each."""
    steps = report.verdict.path
    if not steps:
        return ""
    nodes = [
        f'<li class="ov-node ov-{step.kind}{"" if step.seen else " ov-unseen"}"><b>{ui.text(step.label)}</b>'
        f"<small>{_shown(step.kind, step.fact, seen=step.seen)}</small></li>"
        for step in steps
    ]
    chain = '<li class="ov-arrow" aria-hidden="true">→</li>'.join(nodes)
    return f'<h2>From the cause to the stage</h2><ol class="ov-way">{chain}</ol>{_others(report)}'


def _shown(kind: str, fact: str | None, *, seen: bool) -> str:
    if kind == "stage":
        return "loses the time"
    if not seen:
        return "follows, not measured here"
    return (
        f"shown by {ui.text(fact.replace('_', ' ').replace('.', ' '))}"
        if fact
        else "its rule found it"
    )


def _others(report: Report) -> str:
    """What else brings about the step behind the cause, each ruled out by a figure or without a sign of it."""
    steps = report.verdict.path
    if len(steps) < 2:
        return ""
    cause, state = steps[0].node, steps[1].node
    figures = {row.what: row.figure for row in report.verdict.ruled_out}
    found = {finding.rule for finding in report.findings}
    others = [
        name
        for name, brings in BRINGS.items()
        if state in brings and name != cause and NODES[name].kind == "cause"
    ]
    known = [name for name in others if name in figures][:_MOST_OTHERS]
    if not known:
        return ""
    rows = "".join(
        f"<dt>{ui.text(NODES[name].label)}</dt><dd>{ui.sentence(figures[name])}</dd>"
        for name in known
        if name not in found
    )
    lead = f"Other causes of “{ui.text(steps[1].label)}”, ruled out"
    return f'<details class="ov-details"><summary>{lead}: {len(known)}</summary><dl class="ov-facts">{rows}</dl></details>'
