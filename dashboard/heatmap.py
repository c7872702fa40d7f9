"""Where is latency over time, and what lies in the box that was drawn? The heat map of the Budget and Traces pages; the box stands in the URL."""

from __future__ import annotations

import streamlit as st

from overrun.analysis.front import question_table as questions
from overrun.analysis.numbers.comparison.cohorts import Cohorts
from overrun.analysis.numbers.over_time.heatmap import Heatmap
from overrun.analysis.words.times import rfc3339
from overrun.dashboard import box_answer, charts, data, shared_values, state, ui
from overrun.dashboard.heatmap_box import Box
from overrun.dashboard.theme import Theme, say_count, say_ms, say_span, say_step


def draw(asked: data.Asked, metric: str, theme: Theme) -> Box | None:
    """Draw the heat map of a metric with its percentiles and return the box that the URL names."""
    found, course = (
        data.ask(questions.HEATMAP, asked, metric=metric),
        data.ask(questions.SERIES, asked, metric=metric),
    )
    box = state.box()
    ui.put(f"<h2>{metric.upper()} of successful requests over time</h2>")
    if not found.counts:
        ui.put(f"<p>{ui.stated(found.reasons.get('counts'))}</p>")
        return box
    key = f"heat-{metric}"
    ui.chart(
        charts.heat(found, theme, course, box),
        key,
        selection_mode=["box"],
        on_select=lambda: _choose(charts.box_of(st.session_state[key]["selection"], found)),
        alt=words(found.n, metric, course.step_s),
    )
    ui.put(
        f"<small>{say_count(found.n, 'request')} with {metric.upper()}{sampled(found)}, {say_step(found.step_s)} × 21 % buckets, stronger colour = "
        f"more requests; dashed = {ui.limit_words(course.own_limits)}; drag a box to compare those requests; lines need n ≥ "
        f"{course.min_n['p50']} (P50) and "
        f"{course.min_n['p95']} (P95) per {say_step(course.step_s)}; times in UTC; source /api/v1/heatmap, /api/v1/series</small>"
    )
    return box


def _choose(box: Box | None) -> None:
    """Take a box that was drawn. A chart that is drawn again, with the box in it, tells of an empty one: the button below clears it."""
    if box is not None:
        state.choose_box(box)


def sampled(found: Heatmap) -> str:
    """What the counts say where not every request was kept, as safe HTML."""
    if found.stands_for is not None:
        return f", sampled, weighted to {sum(map(sum, found.stands_for)):,.0f} requests"
    return (
        f" (counts alone: {ui.text(found.reasons.get('stands_for'), 300)})"
        if found.sampling in ("biased", "unknown")
        else ""
    )


def chosen(box: Box, metric: str, total: int | None = None) -> None:
    """Say which box is chosen, with ways out of it and into it."""
    with st.container(horizontal=True, vertical_alignment="center"):
        many = f": <b>{total:,}</b> requests" if total is not None else ""
        ui.put(
            f"In the box: {say_span(box.start, box.end)}, {metric.upper()} {say_ms(box.min_ms)} to {say_ms(box.max_ms)}{many}"
        )
        st.button(
            "Zoom the window to the box",
            on_click=state.zoom_to,
            args=(box,),
            icon=":material/zoom_in:",
            type="tertiary",
        )
        st.button(
            "Clear the box",
            on_click=state.choose_box,
            args=(None,),
            icon=":material/close:",
            type="tertiary",
        )


def shared(asked: data.Asked, metric: str, box: Box | None, page: str, theme: Theme) -> None:
    """How the requests of the box (without one: those over the limit) differ from all others."""
    found = others(asked, metric, box, state.narrowed())
    these = "in the box" if box else "slow"
    links = box_answer.Links(page, _address(box, metric), found.where, found.by)
    ui.put(
        shared_values.headed(
            found,
            box_answer.render(found, links, these, theme),
            these="Requests in the box" if box else None,
        )
    )


def _address(box: Box | None, metric: str) -> dict[str, str]:
    """What of the page's address stays when a condition changes, beside the filters."""
    found = {"metric": metric.upper()} | ({"box": box.text()} if box else {})
    trace = state.asked_trace()
    return found | ({"trace": trace} if trace else {})


def others(asked: data.Asked, metric: str, box: Box | None, narrowed: data.Asked = ()) -> Cohorts:
    """Ask how the requests of the box differ; `narrowed` are the conditions and the attribute to group by."""
    drawn: dict[str, questions.Value] = {} if box is None else _sides(box)
    return data.ask(questions.COHORTS, asked, metric=metric, **drawn, **dict(narrowed))


def _sides(box: Box) -> dict[str, questions.Value]:
    return {
        "min_ms": box.min_ms,
        "max_ms": box.max_ms,
        "box_from": rfc3339(box.start),
        "box_to": rfc3339(box.end),
    }


def words(n: int, metric: str, step_s: int) -> str:
    """The heat map's description for those who do not see it."""
    return f"Heat map of {metric.upper()} of {say_count(n, 'request')} over time, with P50 and P95 per {say_step(step_s)} and the limit as a dashed line"
