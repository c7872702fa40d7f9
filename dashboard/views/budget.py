"""Which stage, and what do slow requests do that typical ones don't? Stage budgets, the waterfall between the two, and latency over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import streamlit as st

from overrun.analysis.front import question_table as questions
from overrun.analysis.front.report import Report
from overrun.analysis.front.report_document import budgets
from overrun.analysis.front.stage_waterfall import Stages
from overrun.analysis.numbers.stages.budget import LATER
from overrun.dashboard import charts, data, empty_states, heatmap, nav, state, ui
from overrun.dashboard.heatmap_box import Box
from overrun.dashboard.theme import Theme, say_added, say_ms, theme_of

# Below it a difference is written as 0 ms.
_LEAST_GAP_MS: Final = 0.05
# Verdicts that hold no latency against a budget.
_UNJUDGED: Final = ("failing", "traffic_lost", "targets_down", "not_enough_data", "no_data")


def draw() -> None:
    """The page."""
    report = empty_states.report_or_state()
    if report is None:
        return
    theme, asked = theme_of(state.mode()), data.asked(state.filters())
    metric = state.metric(list(report.slo.limits()), report.verdict.metric)
    data.ahead(*needs(asked, report, {"metric": metric}))
    found = data.stages(asked, metric, report)
    ui.put(_box(found, report))
    nav.links_with(
        ("verdict", "Back to the verdict", {}), ("findings", "Why", {}), nav.requests_of(report)
    )
    if found.parts:
        left, right = st.columns(2, gap="large")
        with left:
            _budgets(found, theme)
        with right:
            _gap(found, theme)
    if found.budgets:
        ui.put(_by_budget(found))
    box = heatmap.draw(asked, metric, theme)
    if box is not None:
        heatmap.chosen(box, metric)
    heatmap.shared(asked, metric, box, "budget", theme)
    page, label, more = (
        ("traces", "Requests in the box", {"box": box.text()}) if box else nav.requests_of(report)
    )
    nav.links_with((page, label, {"metric": metric.upper()} | more))
    ui.put(empty_states.footer(report))


def first(asked: data.Asked, report: Report, query: Mapping[str, str]) -> str:
    """The page's first box, before the rest is there."""
    return _box(
        data.stages(
            asked, state.metric_of(query, list(report.slo.limits()), report.verdict.metric), report
        ),
        report,
    )


def needs(
    asked: data.Asked, report: Report, query: Mapping[str, str]
) -> list[Callable[[], object]]:
    """What the page asks for beside the report."""
    metric = state.metric_of(query, list(report.slo.limits()), report.verdict.metric)
    return [
        lambda: data.stages(asked, metric, report),
        lambda: data.ask(questions.HEATMAP, asked, metric=metric),
        lambda: data.ask(questions.SERIES, asked, metric=metric),
        lambda: heatmap.others(
            asked, metric, Box.read(query.get("box", "")), state.narrowed(query)
        ),
    ]


def headline(found: Stages, report: Report) -> tuple[str, list[str]]:
    """What the page finds, as safe HTML: a headline and what stands below it."""
    if not found.parts or found.slow_ms is None or found.typical_ms is None:
        unjudged = report.verdict.status in _UNJUDGED
        return "No stage can be judged", [
            ui.sentence(report.verdict.sentence)
            if unjudged
            else ui.stated(found.reasons.get("parts"))
        ]
    metric, groups = (
        (found.metric or "").upper(),
        [row for row in found.stages if row.stage is None and row.budget_ms is not None],
    )
    over, amber = [row for row in groups if row.over], any(row.amber for row in groups)
    names = ", ".join(
        f"{ui.text(row.group)} {say_ms(row.tail_ms)} of {say_ms(row.budget_ms)}" for row in over
    )
    mark, within = ("◐", ", while requests are within the SLO") if amber else ("▲", "")
    none = f"✓ None of {len(groups)} groups is over its {metric} budget"
    first = (
        f"{mark} {len(over)} of {len(groups)} groups over budget{within}: {names}" if over else none
    )
    if not groups:
        first = f"{metric} has no stage budgets"
    largest = max(found.parts, key=lambda part: part.added_ms)
    gap = found.slow_ms - found.typical_ms
    if abs(gap) < _LEAST_GAP_MS:
        return first, [f"A slow request takes as long as a typical one, {say_ms(found.slow_ms)}."]
    second = (
        f"A slow request takes {say_ms(found.slow_ms)}, a typical one {say_ms(found.typical_ms)}; "
        f"of the {say_added(gap)}, {ui.text(largest.stage)} adds {say_added(largest.added_ms)}."
    )
    return first, [second]


def _box(found: Stages, report: Report) -> str:
    return ui.box(
        *headline(found, report), bad=any(row.over and not row.amber for row in found.stages)
    )


def _budgets(found: Stages, theme: Theme) -> None:
    rows = charts.shown_rows(found.stages)
    idle = [
        row.group
        for row in found.stages
        if row.stage is None and row.budget_ms is not None and row not in rows
    ]
    ui.put(
        f"<h2>Stage times against their budgets, {'up to the first token' if found.path == 'ttft' else 'whole request'}</h2>"
    )
    spoken = ", ".join(
        f"{row.stage or row.group} {say_ms(row.tail_ms)}"
        + (f" of {say_ms(row.budget_ms)}" if row.budget_ms else "")
        for row in rows
    )
    ui.chart(charts.bullets(found, theme), "bullets", alt=f"Stage budgets: {ui.text(spoken, 400)}")
    later = [row for row in found.stages if row.group == LATER and (row.p95_ms or 0.0) > 0.05]
    behind = (
        "; after the first token: "
        + ", ".join(f"{row.stage} P95 {say_ms(row.p95_ms)}" for row in later)
        if later
        else ""
    )
    ui.put(
        f"<small>n {found.n:,}; ● P50, ◆ P95, ○ P99, log scale; upright line = budget; right: slow mean / budget. Percentiles of "
        f"stages do not add up; their means do. {'No time in ' + ', '.join(idle) + '. ' if idle else ''}Source /api/v1/stages{behind}</small>"
    )


def _by_budget(found: Stages) -> str:
    """The budgets of routes and models with what their own requests did, as safe HTML."""
    return (
        f"<h2>Each request against the budget of its route, else of its model</h2>{ui.blocks([budgets(found.budgets, f'P{found.percentile:g}')])}"
        "<small>n per row; over its budget: mean of the requests within 2 points of their own percentile; above: the mean of several budgets; "
        "source /api/v1/stages</small>"
    )


def _gap(found: Stages, theme: Theme) -> None:
    typical, slow = found.typical_ms or 0.0, found.slow_ms or 0.0
    ui.put("<h2>From a typical to a slow request</h2>")
    spoken = ", ".join(f"{part.stage} {say_added(part.added_ms)}" for part in found.parts)
    ui.chart(
        charts.waterfall(found, theme),
        "waterfall",
        alt=f"Waterfall from {say_ms(typical)} to {say_ms(slow)}: {ui.text(spoken, 400)}",
    )
    ui.put(
        f"<small>Mean of {found.slow_n:,} requests within 2 points of P{found.percentile:g} minus mean of {found.typical_n:,} between P40 and P60 of "
        f"{(found.metric or '').upper()}, n {found.n:,}. Stages add up to the difference exactly: "
        f"{say_ms(typical)} {say_added(slow - typical)} = {say_ms(slow)}. Source /api/v1/stages</small>"
    )
