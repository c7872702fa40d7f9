"""Did the inference server warn us, and how early? The judged metric above the engine's indicators on one time axis, alerts with their lead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

import streamlit as st

from overrun.analysis.evidence import leading_indicators
from overrun.analysis.evidence.engine_overview import EngineView
from overrun.analysis.evidence.engine_timeline import (
    HELD_SAMPLES,
    HELD_STEPS,
    EngineCourse,
    IndicatorCourse,
)
from overrun.analysis.evidence.leading_indicators import Indicator
from overrun.analysis.front import question_table as questions
from overrun.analysis.front.report import Report
from overrun.analysis.numbers.stages.headroom import say_own
from overrun.dashboard import charts_engine, data, downloads, empty_states, nav, plot, state, ui
from overrun.dashboard.charts_engine import name_of, say_threshold
from overrun.dashboard.evidence import plain
from overrun.dashboard.theme import (
    say_age,
    say_count,
    say_ms,
    say_number,
    say_ratio,
    say_step,
    say_time,
    theme_of,
)


def draw() -> None:
    """The page."""
    report = empty_states.report_or_state(of_metrics=True)
    if report is None:
        return
    theme, asked = theme_of(state.mode()), data.asked(state.filters())
    limits = list(report.slo.limits())
    # Without a request there is nothing to choose: no metric of requests is drawn.
    metric = (
        state.metric_of({}, limits, report.verdict.metric)
        if empty_states.by_metrics(report)
        else state.metric(limits, report.verdict.metric)
    )
    data.ahead(*needs(asked, report, {"metric": metric}))
    found, view = (
        data.ask(questions.ENGINE, asked, **_course_of(report, metric)),
        data.ask(questions.INDICATORS, asked),
    )
    ui.put(ui.box(*headline(found)))
    nav.links(
        ("verdict", "Back to the verdict"),
        ("findings", "Why"),
        ("health", "What is missing"),
        ("traces", "Slowest requests"),
    )
    if found.indicators:
        left, right = st.columns([2.6, 1], gap="large")
        with left:
            ui.chart(
                charts_engine.rows(found, theme),
                "engine",
                alt=words(found),
                selection_mode=["box"],
                on_select=lambda: _zoom(plot.stretch_of(st.session_state["engine"]["selection"])),
            )
            ui.put(
                f"<small>Steps of {say_step(found.step_s)}; {effect(found)}; each server's "
                "mean per step, servers combined as named on the right; "
                f"dashed = {ui.limit_words(found.own_limits)} or default threshold; times in UTC; drag to zoom the window; source /api/v1/engine</small>"
            )
            downloads.as_json("These series", "engine", found)
            ui.put(learned(report))
        with right:
            ui.put(alerts(found) + now(found))
    ui.put((room(view) if found.effect_n else "") + missing(found) + empty_states.footer(report))


def _zoom(stretch: tuple[datetime, datetime] | None) -> None:
    if stretch is not None:
        state.zoom_window(*stretch)


def first(asked: data.Asked, report: Report, query: Mapping[str, str]) -> str:
    """The page's first box, before the rest is there."""
    metric = state.metric_of(query, list(report.slo.limits()), report.verdict.metric)
    return ui.box(*headline(data.ask(questions.ENGINE, asked, **_course_of(report, metric))))


def needs(
    asked: data.Asked, report: Report, query: Mapping[str, str]
) -> list[Callable[[], object]]:
    """What the page asks for beside the report."""
    metric = state.metric_of(query, list(report.slo.limits()), report.verdict.metric)
    return [
        lambda: data.ask(questions.INDICATORS, asked),
        lambda: data.ask(questions.ENGINE, asked, **_course_of(report, metric)),
    ]


def _course_of(report: Report, metric: str) -> dict[str, str]:
    """The question about a metric: of the judged one the onset is the verdict's, not that of a step."""
    verdict = report.verdict
    judged = verdict.onset is not None and metric == verdict.metric
    return {"metric": metric} | (
        {"onset": verdict.onset.isoformat()} if judged and verdict.onset else {}
    )


def headline(found: EngineCourse) -> tuple[str, list[str]]:
    """Whether the engine warned, as safe HTML."""
    if not found.indicators:
        return "The inference servers sent no metrics here", [
            ui.stated(found.reasons.get("indicators"))
        ]
    metric = found.metric.upper()
    ahead = sorted(
        (row for row in found.indicators if row.lead_s is not None),
        key=lambda row: -(row.lead_s or 0.0),
    )
    if not found.effect_n:
        told = [
            f"{name_of(row.indicator)} {said(row)}"
            for row in found.indicators
            if row.crossed_at is not None
        ]
        many = (
            f"{len(told)} signals reached their thresholds"
            if told[1:]
            else "1 signal reached the threshold"
        )
        what = many if told else "No signal reached its threshold"
        return what, [
            f"{', '.join(told)}. " * bool(told)
            + f"No request carries {metric} here, so it is not known whether the signals came before the breach."
        ]
    if found.breach_at is None:
        raised = [row for row in found.indicators if row.crossed_at is not None]
        also = (
            "; meanwhile " + ", ".join(f"{name_of(row.indicator)} {said(row)}" for row in raised)
            if raised
            else "; no indicator reached its threshold"
        )
        return f"{metric} had no lasting breach", [
            f"{ui.sentence(found.reasons.get('breach_at', ''))}{also}."
        ]
    broke = f"{metric} P95 crossed {say_own(found.own_limits) if found.own_limits else say_ms(found.limit_ms)} at {say_time(found.breach_at)} and stayed there"
    if not ahead or (ahead[0].lead_s or 0.0) <= 0.0:
        late = (
            f"; {name_of(ahead[0].indicator)} came {say_age(-(ahead[0].lead_s or 0.0))} after it"
            if ahead
            else ""
        )
        return f"No warning before the {metric} breach", [f"{broke}{late}."]
    first = ahead[0]
    return f"{say_age(first.lead_s or 0.0)} of warning before the {metric} breach", [
        f"{name_of(first.indicator)} {said(first)}; {broke}."
    ]


def said(row: IndicatorCourse) -> str:
    """When an indicator reached its threshold, in words."""
    at = say_time(row.crossed_at) if row.crossed_at else ""
    return (
        f"was above zero from {at}"
        if (row.threshold or 0.0) < 1e-6
        else f"reached {say_number(row.threshold or 0.0, row.unit)} at {at}"
    )


def alerts(found: EngineCourse) -> str:
    """Every alert with its lead; negative ones lagged and are listed too."""
    crossed = sorted(
        ((row.crossed_at, row) for row in found.indicators if row.crossed_at),
        key=lambda pair: pair[0],
    )
    rows = [
        [f'<span class="ov-n">{say_time(at)}</span>', name_of(row.indicator), _lead(row)]
        for at, row in crossed
    ]
    body = ui.table(["Signal at", "indicator", "lead"], rows) if rows else "<p>None.</p>"
    return (
        f"<h2>Alerts with default thresholds</h2>{body}<small>An alert holds for {HELD_SAMPLES} samples, a breach for {HELD_STEPS} steps. "
        "Negative lead = it came after the breach. Default thresholds are not learned from your data: in simulation KV over 90 % has a "
        "precision of 0.21 to 0.55.</small>"
    )


def learned(report: Report) -> str:
    """What the report learned about the indicators on this data, those that warn no better than chance apart, or why it did not."""
    if not report.indicators:
        why = report.reasons.get("indicators", "")
        return (
            f"<h2>Learned on this data</h2><p><small>{ui.sentence(why)}</small></p>" if why else ""
        )
    heads, warned = (
        ["indicator", "alert", "precision", "by chance", "recall", "lead", "breaches"],
        [row for row in report.indicators if warns(row)],
    )
    others = [_learned(row) for row in report.indicators if not warns(row)]
    body = (
        ui.table(heads, [_learned(row) for row in warned])
        if warned
        else "<p>No indicator warned better than alerts at random times.</p>"
    )
    if others:
        body += f'<details class="ov-details"><summary>{len(others)} warn no better than chance, or too late</summary>{ui.table(heads, others)}</details>'
    return (
        f"<h2>Learned on this data</h2><p>{ui.stated(leading_indicators.said(report.indicators))}</p>{body}"
        "<small>Precision = share of alerts with a breach within 2 min, recall = share of breaches after an alert. Both are measured on "
        f"held-out data: each of {report.indicators[0].parts} parts of the window is scored with thresholds learned on the others. Source "
        "/api/v1/report</small>"
    )


def warns(row: Indicator) -> bool:
    """Whether alerts of an indicator came before breaches more often than alerts at random times would."""
    return (
        not row.lags
        and row.precision is not None
        and (row.null_precision is None or row.precision > row.null_precision)
    )


def room(view: EngineView) -> str:
    """How much more load, prompt or answer the limits bear, and where more running requests begin to cost."""
    rows = []
    for part in view.headroom:
        unit = ui.text(part.unit)
        limit = f"{part.metric.upper()} P{part.percentile:g} over {say_own(part.own_limits) if part.own_limits else say_ms(part.limit_ms)}"
        if part.breaks_between is None:
            seen = f"; seen up to {plain(part.seen_up_to)}" if part.seen_up_to is not None else ""
            breaks = f"<small class=ov-long>{ui.sentence(next(iter(part.reasons.values()), 'not reached'))}{seen}</small>"
        else:
            breaks = f"{plain(part.breaks_between[0])} to {plain(part.breaks_between[1])} {unit}<small>{limit}</small>"
        usual = f"{plain(part.usual)} {unit}" if part.usual is not None else "–"
        name = ui.text(part.quantity.replace("_", " "))
        rows.append(
            [
                name,
                f'<span class="ov-n">{usual}</span>',
                breaks,
                _whole(say_ratio(part.spare)),
                ui.text(part.first_stage) if part.first_stage else "–",
            ]
        )
    knees = []
    for knee in view.knees:
        if knee.at is None:
            why = ui.sentence(next(iter(knee.reasons.values()), ""))
            knees.append(
                [
                    knee.metric.upper(),
                    f"<small class=ov-long>{why}</small>",
                    "",
                    "",
                    f'<span class="ov-n">{knee.n:,}</span>',
                ]
            )
            continue
        interval = (
            f"<small>{plain(knee.interval[0])} to {plain(knee.interval[1])}</small>"
            if knee.interval
            else ""
        )
        cost = f"{say_ms(knee.slope_before_ms)} → {say_ms(knee.slope_after_ms)}"
        knees.append(
            [
                knee.metric.upper(),
                f"{plain(knee.at)} running{interval}",
                cost,
                _whole(say_ratio(knee.spare)),
                f'<span class="ov-n">{knee.n:,}</span>',
            ]
        )
    left = (
        ui.table(["Headroom", "usual", "breaks between", "spare", "first stage"], rows)
        if rows
        else ""
    )
    right = (
        ui.table(["Knee of", "at", "ms per additional request", "spare", "n"], knees)
        if knees
        else ""
    )
    return (
        f'<div class="ov-cols"><div>{left}</div><div>{right}</div></div><p><small>Source /api/v1/indicators</small></p>'
        if left or right
        else ""
    )


def now(found: EngineCourse) -> str:
    """The last value of each indicator and how servers are put together."""
    rows = [
        [
            f"{name_of(row.indicator)}<small>{row.combined} of {say_count(row.instances, 'server')}, {say_count(row.samples, 'sample')}</small>",
            _last(row),
        ]
        for row in found.indicators
    ]
    return "<h2>Last step</h2>" + ui.table(["indicator", "value"], rows)


def missing(found: EngineCourse) -> str:
    """Expected indicators that nobody sent, by name."""
    if not found.missing:
        return ""
    names = ", ".join(f"{name_of(name)} (<code>{ui.text(name)}</code>)" for name in found.missing)
    return f"<p>Not received in this window: {names}. Data health lists the known names.</p>"


def words(found: EngineCourse) -> str:
    """The chart's description for those who do not see it."""
    rows = ", ".join(name_of(row.indicator) for row in found.indicators)
    above = f"{found.metric.upper()} P95 over " if charts_engine.has_effect(found) else ""
    return ui.text(f"{above}{rows}, on one time axis. {headline(found)[0]}", 400)


def effect(found: EngineCourse) -> str:
    """Of how many requests the chart's first row is, or why it is not drawn."""
    if charts_engine.has_effect(found):
        return f"{found.metric.upper()} P95 of n {found.effect_n:,} (gaps: too few in the step)"
    if not found.effect_n:
        return "no request, so no latency above them"
    return f"{found.metric.upper()} P95 of n {found.effect_n:,}: too few in every step to be drawn"


def _lead(row: IndicatorCourse) -> str:
    if row.lead_s is None:
        return "–"
    return f'<span class="ov-n">{"+" if row.lead_s > 0 else "−"}{say_age(abs(row.lead_s))}</span>'


def _last(row: IndicatorCourse) -> str:
    value = next((value for value in reversed(row.values) if value is not None), None)
    return "–" if value is None else f'<span class="ov-n">{say_number(value, row.unit)}</span>'


def _learned(row: Indicator) -> list[str]:
    lead = say_age(row.lead_s_median) if row.lead_s_median is not None else "–"
    threshold = f"{'at most' if row.falling else 'from'} {say_threshold(row.indicator, row.threshold)}{', lags' if row.lags else ''}"
    ratios = (
        say_ratio(part) if part is not None else "–"
        for part in (row.precision, row.null_precision, row.recall)
    )
    return [
        name_of(row.indicator),
        ui.text(threshold),
        *map(_whole, ratios),
        _whole(lead),
        f'<span class="ov-n">{row.events:,}</span>',
    ]


def _whole(words: str) -> str:
    return f'<span class="ov-n">{words}</span>'
