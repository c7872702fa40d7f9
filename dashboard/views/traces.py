"""Show me one. Draw a box on the heat map or sort the list, choose a request, see its spans with the critical path inked."""

from __future__ import annotations

from typing import Any

import streamlit as st

from analysis.client import Refused
from analysis.finding import printable
from analysis.requests import RequestList
from analysis.trace import Trace
from dashboard import charts, data, nav, state, states, ui
from dashboard.theme import Theme, in_order, say_ms, say_ratio, say_span, say_time, theme_of
from dashboard.views.budget import heat_words

# A table with selection is sent whole: more rows than this are found by filters, not by scrolling.
MOST_ROWS = 200
_TABLE = "request-table"


def draw() -> None:
    """The page."""
    report = states.report_or_state()
    if report is None:
        return
    theme, asked = theme_of(state.mode()), data.asked(state.filters())
    metric = state.metric(["ttft", "e2e"], report.verdict.metric)
    heading = st.container()
    box = _heat(asked, metric, theme)
    listed = _listed(asked, metric, box)
    with heading:
        ui.put(ui.box(*headline(listed, metric)))
        nav.links(("budget", "Which stage makes them slow"), ("verdict", "Back to the verdict"))
    _table(listed, box)
    trace_id = state.chosen_trace() or (listed.rows[0].trace_id if listed.rows else None)
    if trace_id is not None:
        _one(trace_id, theme)
    ui.put(states.footer(report))


def headline(listed: RequestList, metric: str) -> tuple[str, list[str]]:
    """What stands at the top of the list, as safe HTML."""
    if not listed.rows:
        return "No request matches", ["Draw another box, or press Escape on the heat map to clear it."]
    first = listed.rows[0]
    value = first.ttft_ms if metric == "ttft" else first.e2e_ms
    stage = f", {say_ms(first.slowest_stage_ms)} of its {say_ms(first.e2e_ms)} in {ui.text(first.slowest_stage)}" if first.slowest_stage else ""
    return (f"Slowest {metric.upper()} {say_ms(value)}{stage}",
            [f"Request of {say_time(first.start, date=True)}, {ui.text(' '.join(filter(None, (first.service, first.route))), 120)}; "
             f"{len(listed.rows):,} of {listed.total:,} requests listed, source /api/v1/requests."])


def _heat(asked: data.Asked, metric: str, theme: Theme) -> charts.Box | None:
    found = data.heatmap(asked, metric)
    if not found.counts:
        ui.put(f"<p>{ui.sentence(found.reasons.get('counts', ''))}</p>")
        return None
    course = data.series(asked, metric)
    drawn: Any = st.plotly_chart(
        charts.figure(charts.heat(found, theme, course)), theme=None, config={"displayModeBar": False, "scrollZoom": False}, key=f"traces-heat-{metric}",
        on_select="rerun", selection_mode=["box"], alt=heat_words(found.n, metric, course.step_s))
    ui.put(f"<small>{found.n:,} successful requests with {metric.upper()}, {found.step_s} s × 21 % buckets; drag a box to list only what it holds, "
           "double-click to clear it; times in UTC; source /api/v1/heatmap</small>")
    return charts.box_of(drawn["selection"] if drawn else None, found)


def _listed(asked: data.Asked, metric: str, box: charts.Box | None) -> RequestList:
    sort = metric if metric in ("ttft", "e2e") else "e2e"
    if box is None:
        return data.requests(asked, sort, MOST_ROWS, metric, None, None)
    narrowed = dict(asked) | {"from": box.start.isoformat(), "to": box.end.isoformat()}
    return data.requests(tuple(sorted(narrowed.items())), sort, MOST_ROWS, metric, box.min_ms, box.max_ms)


def _table(listed: RequestList, box: charts.Box | None) -> None:
    if box is not None:
        ui.put(f"<p>In the box: {say_span(box.start, box.end)}, {say_ms(box.min_ms)} to {say_ms(box.max_ms)}: <b>{listed.total:,}</b> requests</p>")
    ids = [row.trace_id for row in listed.rows]
    slowest = max((row.e2e_ms for row in listed.rows), default=1.0) / 1000.0
    st.dataframe(
        columns(listed), key=_TABLE, height=300, hide_index=True, on_select=lambda: state.choose_trace(ids, _TABLE), selection_mode="single-row",
        alt=f"{len(ids)} requests, slowest first; choose a row to see its spans",
        column_config={
            **{name: st.column_config.ProgressColumn(name, format="%.2f s", min_value=0.0, max_value=slowest) for name in ("E2E", "TTFT")},
            "start": st.column_config.DatetimeColumn("start (UTC)", format="HH:mm:ss.SSS", timezone="UTC"),
            "ms in it": st.column_config.NumberColumn("in that stage", format="%.0f ms"), "tokens out": st.column_config.NumberColumn("tokens out")})


def columns(listed: RequestList) -> dict[str, list[Any]]:
    """The list as columns of a table, without those that nobody filled; a cell is plain text and never markup."""
    rows = listed.rows
    found: dict[str, list[Any]] = {
        "start": [row.start for row in rows], "E2E": [row.e2e_ms / 1000.0 for row in rows],
        "TTFT": [None if row.ttft_ms is None else row.ttft_ms / 1000.0 for row in rows], "slowest stage": [row.slowest_stage for row in rows],
        "ms in it": [row.slowest_stage_ms for row in rows], "tokens out": [row.output_tokens for row in rows],
        "service": [printable(row.service) for row in rows], "route": [printable(row.route) if row.route else "" for row in rows],
        "model": [printable(row.model) if row.model else "" for row in rows],
        "status": ["ok" if row.status == "ok" else f"✗ {printable(row.error_type) if row.error_type else 'error'}" for row in rows],
        "trace id": [row.trace_id for row in rows]}
    return {name: cells for name, cells in found.items() if any(cell not in (None, "") for cell in cells)}


def _one(trace_id: str, theme: Theme) -> None:
    try:
        trace = data.trace(trace_id)
    except Refused as error:
        ui.put(f'<p role="alert">{ui.sentence(str(error))}</p>')
        return
    ui.put(about(trace, theme))
    shown = charts.chosen_spans(trace.spans)
    st.plotly_chart(charts.figure(charts.spans(trace, theme)), theme=None, config={"displayModeBar": False}, key="trace-waterfall", alt=words(trace))
    hidden = f"; {len(trace.spans) - len(shown):,} shorter spans off the path are not shown" if len(shown) < len(trace.spans) else ""
    chips = " ".join(ui.chip(stage, theme) for stage in in_order(list(trace.stages)))
    ui.put("<small>Underlined and bold = critical path, with its share of E2E; faded = running, but saving it would not help; ✗ = error"
           f"{hidden}. Source /api/v1/traces. {chips}</small>")


def about(trace: Trace, theme: Theme) -> str:
    """One request in two lines, as safe HTML."""
    largest = max(trace.stages, key=trace.stages.__getitem__, default=None)
    longest = f"; longest on its critical path: {ui.chip(largest, theme)} {say_ms(trace.stages[largest])} ({say_ratio(trace.stages[largest] / trace.e2e_ms)})" \
        if largest and trace.e2e_ms > 0.0 else ""
    first = f"TTFT <b>{say_ms(trace.ttft_ms)}</b>" if trace.ttft_ms is not None else "TTFT not measured"
    waited = f", {say_ms(trace.wait_user_ms)} waiting for the user outside of it" if trace.wait_user_ms > 0.0 else ""
    return (f"<h2>Request {ui.text(trace.trace_id)}</h2><p>{ui.text(trace.start)} · {ui.text(trace.service)} · {ui.text(trace.route or '')} · "
            f"{len(trace.spans):,} span{'' if len(trace.spans) == 1 else 's'}<br>{first}, E2E <b>{say_ms(trace.e2e_ms)}</b>{waited}{longest}</p>")


def words(trace: Trace) -> str:
    """The waterfall's description for those who do not see it."""
    parts = ", ".join(f"{stage} {say_ms(trace.stages[stage])}" for stage in in_order(list(trace.stages)))
    return f"Waterfall of {len(trace.spans)} spans, {say_ms(trace.e2e_ms)} end to end; critical path: {ui.text(parts, 400)}"
