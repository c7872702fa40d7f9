"""Show me one. Draw a box on the heat map or sort the list, choose a request, see its spans with the critical path inked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import streamlit as st

from overrun.analysis.front import question_table as questions
from overrun.analysis.front.client import Refused
from overrun.analysis.front.report import Report
from overrun.analysis.numbers.requests.request_list import RequestList, RequestRow
from overrun.analysis.numbers.requests.request_trace import Trace
from overrun.analysis.words.finding import printable
from overrun.dashboard import (
    data,
    downloads,
    empty_states,
    heatmap,
    nav,
    request_table,
    state,
    ui,
    waterfall,
)
from overrun.dashboard.heatmap_box import Box
from overrun.dashboard.theme import Theme, in_order, say_ms, say_ratio, say_time, theme_of
from overrun.dashboard.views.findings import prediction

# More rows than this are found by filters, not by scrolling.
MOST_ROWS = 200
_METRICS = ["ttft", "e2e"]
_MOST_KINDS = 4


def draw() -> None:
    """The page."""
    report = empty_states.report_or_state()
    if report is None:
        return
    theme, asked = theme_of(state.mode()), data.asked(state.filters())
    with st.container(horizontal=True, gap="medium"):
        metric = state.metric(_METRICS, report.verdict.metric)
        failed = bool(report.errors.ratio) and state.failed_first(
            failing=report.verdict.status == "failing"
        )
    chosen = state.box()
    data.ahead(
        lambda: data.ask(questions.SERIES, asked, metric=metric),
        lambda: data.ask(questions.HEATMAP, asked, metric=metric),
    )
    listed = _listed(asked, metric, chosen, failed=failed)
    head = st.container()
    nav.links(
        ("budget", "Which stage makes them slow"),
        ("verdict", "Back to the verdict"),
        ("findings", "Why"),
    )
    trace = _wanted_trace(listed, _steps(listed))
    with head:
        ui.put(_box(listed, report, metric, trace, failed=failed))
    _one(trace, report, asked, theme)
    box = heatmap.draw(asked, metric, theme)
    _table(listed, metric, box, trace, failed=failed)
    if box is not None:
        heatmap.shared(asked, metric, box, "traces", theme)
    ui.put(empty_states.footer(report))


def first(asked: data.Asked, report: Report, query: Mapping[str, str]) -> str:
    """The page's first box, before the rest is there."""
    metric, box, failed = _wanted(report, query)
    listed = _listed(asked, metric, box, failed=failed)
    trace = _wanted_trace(listed, query.get("trace"))
    return _box(listed, report, metric, trace, failed=failed)


def needs(
    asked: data.Asked, report: Report, query: Mapping[str, str]
) -> list[Callable[[], object]]:
    """What the page asks for beside the report."""
    metric, box, failed = _wanted(report, query)

    def rows() -> None:
        listed, named = _listed(asked, metric, box, failed=failed), query.get("trace")
        if named or listed.rows:
            data.ask(questions.TRACE, (), trace_id=named or listed.rows[0].trace_id)

    typical = _typical_of(report)
    return [
        *([lambda: data.ask(questions.ANATOMY, asked, **typical)] if typical else []),
        rows,
        lambda: data.ask(questions.SERIES, asked, metric=metric),
        lambda: data.ask(questions.HEATMAP, asked, metric=metric),
        *([lambda: heatmap.others(asked, metric, box, state.narrowed(query))] if box else []),
    ]


def _wanted(report: Report, query: Mapping[str, str]) -> tuple[str, Box | None, bool]:
    """What an address asks for: the metric, the box, and whether those that failed come first."""
    failed = bool(report.errors.ratio) and state.failed_first_of(
        query, failing=report.verdict.status == "failing"
    )
    return (
        state.metric_of(query, _METRICS, report.verdict.metric),
        Box.read(query.get("box", "")),
        failed,
    )


def _wanted_trace(listed: RequestList, named: str | None) -> Trace | Refused | None:
    """The request that the address names, else the first of the list; the refusal where there is none of that name."""
    trace_id = named or (listed.rows[0].trace_id if listed.rows else None)
    if trace_id is None:
        return None
    try:
        return data.ask(questions.TRACE, (), trace_id=trace_id)
    except Refused as error:
        return error


def _box(
    listed: RequestList,
    report: Report,
    metric: str,
    trace: Trace | Refused | None,
    *,
    failed: bool,
) -> str:
    if isinstance(trace, Trace) and not (listed.rows and listed.rows[0].trace_id == trace.trace_id):
        return ui.box(*of_one(trace, listed, metric))
    return ui.box(*(failures(listed, report) if failed else headline(listed, metric)))


def of_one(trace: Trace, listed: RequestList, metric: str) -> tuple[str, list[str]]:
    """What a request that was chosen took, and where it stands in the list, as safe HTML."""
    first = metric == "ttft" and trace.ttft_ms is not None
    value = trace.ttft_ms if first else trace.e2e_ms
    stages = waterfall.until(trace.path, trace.ttft_ms or 0.0) if first else trace.stages
    slowest = max(stages, key=stages.__getitem__, default=None)
    stage = f", {say_ms(stages[slowest])} of it in {ui.text(slowest)}" if slowest else ""
    at = _place(listed, trace.trace_id)
    where = (
        f"number {at + 1} of the {len(listed.rows):,} listed"
        if at is not None
        else "not among the listed requests"
    )
    return (
        f"Request {ui.text(trace.trace_id[:8])}: {'TTFT' if first else 'E2E'} {say_ms(value)}{stage}",
        [f"{_when(trace.start)}, {ui.text(trace.service)}; {where}, source /api/v1/traces."],
    )


def _place(listed: RequestList, trace_id: str | None) -> int | None:
    return next((i for i, row in enumerate(listed.rows) if row.trace_id == trace_id), None)


def _steps(listed: RequestList) -> str | None:
    """The request before and after in the list, and the field that names one; returns what it names.

    The field comes first: what a link or a step back has put into the address is known once it is drawn.
    """
    rows = listed.rows
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        places = [st.container(width="content") for _ in range(2)]
        named = state.chosen_trace()
        at = _place(listed, named) if named else 0
        for place, label, step in zip(places, ("Previous", "Next"), (-1, 1), strict=True):
            to = None if at is None else at + step
            known = to is not None and 0 <= to < len(rows)
            place.button(
                f"{label} in the list",
                icon=":material/arrow_back:" if step < 0 else ":material/arrow_forward:",
                on_click=state.show_trace,
                args=(rows[to].trace_id if known and to is not None else "",),
                disabled=not known,
            )
    return named


def _typical_of(report: Report) -> dict[str, str]:
    """The question of a typical request's stages; empty where no latency is judged."""
    verdict = report.verdict
    if verdict.metric not in _METRICS or not report.stages:
        return {}
    onset = {"onset": verdict.onset.isoformat()} if verdict.onset else {}
    return {"metric": verdict.metric, **onset}


def _ghost(report: Report, asked: data.Asked) -> tuple[list[tuple[str, float]], str]:
    """A typical request's stages in order, and what they lead up to."""
    typical = _typical_of(report)
    course = data.ask(questions.ANATOMY, asked, **typical) if typical else None
    if course is None or course.typical is None:
        return [], ""
    known = dict(zip(course.stages, course.typical.ms, strict=True))
    upto = ", to its first token" if course.path == "ttft" else ""
    return [(stage, known[stage]) for stage in in_order(course.stages)], upto


def headline(listed: RequestList, metric: str) -> tuple[str, list[str]]:
    """What stands at the top of the list, as safe HTML."""
    if not listed.rows:
        return "No request matches", [
            "Draw another box, or press Escape on the heat map to clear the box."
        ]
    first = listed.rows[0]
    metric = "e2e" if first.ttft_ms is None else metric
    value = first.ttft_ms if metric == "ttft" else first.e2e_ms
    stages = stages_of(first, metric)
    slowest = max(stages, key=stages.__getitem__, default=None)
    stage = f", {say_ms(stages[slowest])} of it in {ui.text(slowest)}" if slowest else ""
    return (
        f"Slowest {metric.upper()} {say_ms(value)}{stage}",
        [
            f"Request of {say_time(first.start, date=True)}, {ui.text(' '.join(filter(None, (first.service, first.route))), 120)}; "
            f"{len(listed.rows):,} of {listed.total:,} requests listed, source /api/v1/requests."
        ],
    )


def stages_of(row: RequestRow, metric: str) -> dict[str, float]:
    """The stages of what is looked at: of a request up to its first token, where that is known, else of the whole of it."""
    return row.ttft_stages if metric == "ttft" and row.ttft_stages else row.stages


def failures(listed: RequestList, report: Report) -> tuple[str, list[str]]:
    """What failed most often, as safe HTML: what stands above a list that begins with the failed requests."""
    errors = report.errors
    kinds = ", ".join(
        f"{ui.text(name)} {count:,}"
        for name, count in sorted(errors.error_types.items(), key=lambda kind: -kind[1])[
            :_MOST_KINDS
        ]
    )
    return (
        f"{say_ratio(errors.ratio)} of requests failed" + (f": {kinds}" if kinds else ""),
        [
            f"Failed requests first, the newest on top; {len(listed.rows):,} of {listed.total:,} requests listed, source /api/v1/requests."
        ],
    )


def _listed(
    asked: data.Asked, metric: str, box: Box | None, *, failed: bool = False
) -> RequestList:
    sort = "errors" if failed else metric if metric in ("ttft", "e2e") else "e2e"
    shown: dict[str, questions.Value] = {"sort": sort, "limit": MOST_ROWS, "metric": metric}
    if box is not None:
        narrowed = dict(asked) | {"from": box.start.isoformat(), "to": box.end.isoformat()}
        asked = tuple(sorted(narrowed.items()))
        shown |= {"min_ms": box.min_ms, "max_ms": box.max_ms}
    return data.ask(questions.REQUESTS, asked, **shown)


def _table(
    listed: RequestList,
    metric: str,
    box: Box | None,
    trace: Trace | Refused | None,
    *,
    failed: bool,
) -> None:
    if box is not None:
        heatmap.chosen(box, metric, listed.total)
    kept = {"metric": metric.upper()} | ({"box": box.text()} if box else {})
    if state.asked_show():
        kept["show"] = state.FAILED if failed else state.SLOWEST
    ui.put(
        request_table.render(
            listed,
            lambda row: stages_of(row, metric),
            kept=kept,
            chosen=trace.trace_id if isinstance(trace, Trace) else None,
            label=f"{len(listed.rows)} requests, {'failed' if failed else 'slowest'} first",
        )
    )
    units = {
        **dict.fromkeys(("E2E", "TTFT", "in that stage"), "s"),
        "stages": f"ms in {', '.join(taken(listed, metric))}",
    }
    downloads.as_csv(
        "These requests",
        "requests",
        {
            f"{name} ({units[name]})" if name in units else name: column
            for name, column in columns(listed, metric).items()
        },
    )


def columns(listed: RequestList, metric: str) -> dict[str, list[Any]]:
    """The list as columns of a file, without those that nobody filled; a cell is plain text and never markup. Stages are those of the metric."""
    rows, stages = listed.rows, taken(listed, metric)
    times = [stages_of(row, metric) for row in rows]
    slowest = [max(time, key=time.__getitem__, default=None) for time in times]
    found: dict[str, list[Any]] = {
        "start": [row.start for row in rows],
        "E2E": [row.e2e_ms / 1000.0 for row in rows],
        "TTFT": [None if row.ttft_ms is None else row.ttft_ms / 1000.0 for row in rows],
        "slowest stage": slowest,
        "in that stage": [
            time[stage] / 1000.0 if stage else None
            for time, stage in zip(times, slowest, strict=True)
        ],
        "stages": [[time.get(stage, 0.0) for stage in stages] for time in times],
        "tokens out": [row.output_tokens for row in rows],
        "service": [printable(row.service) for row in rows],
        "route": [printable(row.route) if row.route else "" for row in rows],
        "model": [printable(row.model) if row.model else "" for row in rows],
        "status": [
            "ok"
            if row.status == "ok"
            else f"✗ {printable(row.error_type) if row.error_type else 'error'}"
            for row in rows
        ],
        "trace id": [row.trace_id for row in rows],
    }
    return {
        name: cells
        for name, cells in found.items()
        if any(cell not in (None, "") for cell in cells)
    }


def taken(listed: RequestList, metric: str) -> list[str]:
    """The stages in which any of the listed requests spent time, in the order of the pipeline."""
    return in_order(
        list(
            {
                stage
                for row in listed.rows
                for stage, value in stages_of(row, metric).items()
                if value > 0.0
            }
        )
    )


def _one(
    trace: Trace | Refused | None,
    report: Report,
    asked: data.Asked,
    theme: Theme,
) -> None:
    if trace is None:
        return
    if isinstance(trace, Refused):
        ui.put(
            f'<p role="alert">✗ {ui.stated(str(trace))} Choose a row below, or empty the field.</p>'
        )
        return
    ui.put(about(trace, theme))
    rows = waterfall.main_rows(trace.spans)
    if len(rows) < len(trace.spans):
        first = state.span_page(len(trace.spans), waterfall.PAGE_ROWS)
        rows = (
            rows
            if first is None
            else [waterfall.Row(span) for span in trace.spans[first : first + waterfall.PAGE_ROWS]]
        )
    ui.put(waterfall.render(trace, rows, theme, *_ghost(report, asked)))
    chips = " ".join(ui.chip(stage, theme) for stage in in_order(list(trace.stages)))
    sums = f"stages on the path add up to E2E: {say_ms(sum(trace.stages.values()))}"
    ui.put(
        "<small>Open a row to see what its span carries. Underlined and bold = critical path, with its share of E2E; "
        "faded = running, but not on the critical path; hatched = between the client's "
        f"span and the engine's; ✗ = failed; {sums}. Source /api/v1/traces. {chips}</small>"
    )
    _shows(report, trace)
    downloads.as_json("This trace", f"trace-{trace.trace_id[:8]}", trace)


def _shows(report: Report, trace: Trace) -> None:
    """What a request is an exemplar of, and what the fix would buy: the end of the way from the verdict."""
    finding = next(
        (finding for finding in report.findings if trace.trace_id in finding.exemplars), None
    )
    if finding is None:
        return
    fix = finding.fix
    gain = (
        f" {ui.text(fix.title, 200)}: {prediction(fix, fix.predicted)}."
        if fix and fix.predicted
        else ""
    )
    ui.put(
        f"<p>An exemplar of <b>{ui.text(finding.rule.replace('_', ' '))}</b>. {ui.stated(finding.headline)}{gain}</p>"
    )
    nav.links_with(("findings", "Back to the evidence", {}), *nav.fix_of(finding, "Try the fix"))


def _when(start: str) -> str:
    """A start in the API's words as the other times of the page, to the millisecond."""
    try:
        at = datetime.fromisoformat(start)
    except ValueError:
        return ui.text(start)
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d} UTC"


def _longest(stages: Mapping[str, float], whole_ms: float, where: str, theme: Theme) -> str:
    largest = max(stages, key=stages.__getitem__, default=None)
    if largest is None or whole_ms <= 0.0:
        return ""
    return f"{where}: {ui.chip(largest, theme)} {say_ms(stages[largest])} ({say_ratio(stages[largest] / whole_ms)})"


def about(trace: Trace, theme: Theme) -> str:
    """One request in two lines, as safe HTML."""
    longest = _longest(trace.stages, trace.e2e_ms, "; longest on its critical path", theme)
    longest += (
        _longest(
            waterfall.until(trace.path, trace.ttft_ms),
            trace.ttft_ms,
            ", up to the first token",
            theme,
        )
        if trace.ttft_ms
        else ""
    )
    first = (
        f"TTFT <b>{say_ms(trace.ttft_ms)}</b>" if trace.ttft_ms is not None else "TTFT not measured"
    )
    waited = (
        f", {say_ms(trace.wait_user_ms)} waiting for the user outside of it"
        if trace.wait_user_ms > 0.0
        else ""
    )
    route = f" · {ui.text(trace.route)}" if trace.route else ""
    return (
        f"<h2>Request {ui.text(trace.trace_id)}</h2><p>{_when(trace.start)} · {ui.text(trace.service)}{route} · "
        f"{len(trace.spans):,} span{'' if len(trace.spans) == 1 else 's'}<br>{first}, E2E <b>{say_ms(trace.e2e_ms)}</b>{waited}{longest}</p>"
    )
