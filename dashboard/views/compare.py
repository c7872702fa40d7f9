"""What is different between A and B, beyond chance and beyond other traffic? Two windows picked on the course of latency, or two versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import streamlit as st

from overrun.analysis.front import compare_text
from overrun.analysis.front import question_table as questions
from overrun.analysis.front.report import Report
from overrun.analysis.numbers.comparison.compare import Comparison
from overrun.analysis.words.times import rfc3339
from overrun.dashboard import charts_compare, data, downloads, empty_states, nav, plot, state, ui
from overrun.dashboard.theme import (
    Theme,
    say_ms,
    say_step,
    say_time,
    theme_of,
)

_GLYPH = {"regressed": "▲", "improved": "✓", "mixed": "↕", "unchanged": "=", "not_enough_data": "◔"}


def draw() -> None:
    """The page."""
    report = empty_states.report_or_state()
    if report is None:
        return
    theme, asked = theme_of(state.mode()), data.asked(state.filters())
    metric = state.metric(list(report.slo.limits()), report.verdict.metric)
    heading = st.container()
    before, after = state.sides(*default_sides(report))
    if before and after:
        data.ahead(lambda: data.ask(questions.COMPARE, asked, before=before, after=after))
    _pick(asked, metric, before, after, theme)
    with heading:
        ui.put(_box(report, asked, before, after))
        if not before or not after:
            return
        found = data.ask(questions.COMPARE, asked, before=before, after=after)
        nav.links(
            ("verdict", "Back to the verdict"), ("budget", "Which stage"), ("findings", "Why")
        )
    _details(found, theme)
    ui.put(empty_states.footer(report))


def first(asked: data.Asked, report: Report, query: Mapping[str, str]) -> str:
    """The page's first box, before the rest is there."""
    return _box(report, asked, *_wanted(report, query))


def needs(
    asked: data.Asked, report: Report, query: Mapping[str, str]
) -> list[Callable[[], object]]:
    """What the page asks for beside the report."""
    metric, (before, after) = (
        state.metric_of(query, list(report.slo.limits()), report.verdict.metric),
        _wanted(report, query),
    )
    return [
        lambda: data.ask(questions.SERIES, asked, metric=metric),
        *(
            [lambda: data.ask(questions.COMPARE, asked, before=before, after=after)]
            if before and after
            else []
        ),
    ]


def _wanted(report: Report, query: Mapping[str, str]) -> tuple[str, str]:
    """The two windows that an address asks for."""
    before, after = default_sides(report)
    return query.get("before", "").strip() or before, query.get("after", "").strip() or after


def _box(report: Report, asked: data.Asked, before: str, after: str) -> str:
    if not before or not after:
        return ui.box(
            "Two windows are needed",
            [
                "Choose A and B by dragging over the chart below, or enter them: FROM..TO, or version=NAME."
            ],
        )
    found = data.ask(questions.COMPARE, asked, before=before, after=after)
    onset = report.verdict.onset if after == default_sides(report)[1] else None
    return ui.box(*headline(found, onset))


def default_sides(report: Report) -> tuple[str, str]:
    """The two windows that answer "what changed": the baseline against what came since the onset, else the two halves of the window."""
    window, baseline, onset = report.window, report.baseline, report.verdict.onset
    if window.start is None or window.end is None:
        return "", ""
    if baseline is not None and onset is not None and baseline.start and baseline.end:
        return range_text(baseline.start, baseline.end), range_text(onset, window.end)
    middle = window.start + (window.end - window.start) / 2
    return range_text(window.start, middle), range_text(middle, window.end)


def range_text(start: datetime, end: datetime) -> str:
    """A RANGE as the API reads it."""
    return f"{rfc3339(start)}..{rfc3339(end)}"


def headline(found: Comparison, onset: datetime | None = None) -> tuple[str, list[str]]:
    """The comparison's own sentence, as safe HTML. Where the windows were split at the verdict's `onset`, that is when the change began."""
    at = "" if found.outcome == "not_enough_data" else ui.stated(found.reasons.get("change_at"))
    if found.change_at:
        at = f"The change began at {say_time(onset or found.change_at, date=True)}."
    new = "; ".join(
        f"{ui.text(change.what)} <b>{ui.text(change.after)}</b>" for change in found.changed
    )
    return f"{_GLYPH[found.outcome]} {ui.sentence(found.sentence)}", [
        at,
        f"New at that time: {new}" if new else "",
    ]


def _pick(asked: data.Asked, metric: str, before: str, after: str, theme: Theme) -> None:
    course = data.ask(questions.SERIES, asked, metric=metric)
    if not course.points:
        return
    side = state.picked_side()
    key = f"pick-{metric}"
    ui.chart(
        charts_compare.picker(course, _span(before), _span(after), theme),
        key,
        selection_mode=["box"],
        on_select=lambda: _chosen(key, side),
        alt=f"{metric.upper()} P50 and P95 per {say_step(course.step_s)} with windows A and B marked",
    )
    ui.put(
        f"<small>Drag over the chart to set {'A' if side == 'before' else 'B'}; {metric.upper()} per {say_step(course.step_s)}, n {course.n:,}, "
        f"dashed = {ui.limit_words(course.own_limits)}, times in UTC; source /api/v1/series</small>"
    )


def _chosen(key: str, side: str) -> None:
    span = plot.stretch_of(st.session_state[key]["selection"])
    if span is not None:
        state.choose_side(
            side,
            range_text(
                span[0].replace(microsecond=0),
                span[1].replace(microsecond=0) + timedelta(seconds=1),
            ),
        )


def _span(text: str) -> tuple[datetime, datetime] | None:
    start, dots, end = text.partition("..")
    try:
        return (datetime.fromisoformat(start), datetime.fromisoformat(end)) if dots else None
    except ValueError:
        return None  # relative times and versions are not marked


def _details(found: Comparison, theme: Theme) -> None:
    if any(
        change.difference_ms is not None for metric in found.metrics for change in metric.quantiles
    ):
        left, right = st.columns(2, gap="large")
        with left:
            ui.put("<h2>Change of each quantile</h2>")
            ui.chart(
                charts_compare.shift(found.metrics, theme),
                "shift",
                alt=f"Quantile differences with 95 % intervals: {ui.text(found.sentence, 300)}",
            )
            taken = (
                f"; adjusted for traffic: {ui.text(', '.join(found.adjusted_for), 200)}"
                if found.adjusted_for
                else ""
            )
            ui.put(
                f"<small>B − A in per cent of A, 95 % block-bootstrap intervals; right of zero = slower{taken}; "
                f"▶ = by more than {charts_compare.BEYOND:,.0f} %; source /api/v1/compare</small>"
            )
        with right:
            ui.put("<h2>Change of each stage</h2>")
            if charts_compare.moved(found.stages):
                ui.chart(
                    charts_compare.stage_changes(found.stages, theme),
                    "stage-changes",
                    alt="Stage differences: "
                    + ui.text(
                        ", ".join(
                            f"{row.stage} {say_ms(row.difference_ms)}" for row in found.stages
                        ),
                        300,
                    ),
                )
            else:
                ui.put("<p>No stage takes more or less time than before.</p>")
            total = sum(row.difference_ms for row in found.stages)
            ui.put(
                "<small>Solid = mean of all requests, hatched = around the SLO percentile; stages add up to "
                f"{say_ms(total)}, the difference of mean E2E</small>"
            )
    ui.put(ui.blocks(compare_text.document(found).groups))
    downloads.as_json("This comparison", "compare", found)
