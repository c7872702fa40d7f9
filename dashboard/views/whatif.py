"""What would a fix buy, and what would it cost? Sliders for every fix that the server can compute; measured against predicted on the tail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import streamlit as st

from overrun.analysis.front import whatif_text
from overrun.analysis.front.fix_list import FixInfo
from overrun.analysis.front.report import Report
from overrun.analysis.whatif.prediction import Curve, Prediction
from overrun.analysis.words.finding import Fix, say_after, say_over
from overrun.dashboard import (
    charts_whatif,
    data,
    downloads,
    empty_states,
    fix_comparison,
    nav,
    sliders,
    state,
    ui,
)
from overrun.dashboard.theme import Theme, say_ms, say_ratio, theme_of
from overrun.dashboard.views.findings import interval_of, period, prediction


def draw() -> None:
    """The page."""
    report = empty_states.report_or_state()
    if report is None:
        return
    st.fragment(_panel)(report)
    ui.put(empty_states.footer(report))


def first(asked: data.Asked, report: Report, query: Mapping[str, str]) -> str:
    """The page's first box, before the rest is there: a prediction that is not known yet may take seconds."""
    fixes = {info.fix: info for info in data.fixes()}
    fix, metric, parameters = _wanted(report, fixes, query)
    found = data.known_whatif(asked, fix, metric, parameters)
    return (
        _box(found, report, fixes[fix], parameters)
        if found is not None
        else ui.box(*meanwhile(report, fixes[fix]))
    )


def needs(
    asked: data.Asked, report: Report, query: Mapping[str, str]
) -> list[Callable[[], object]]:
    """What the page asks for beside the report."""
    return [
        lambda: data.whatif(
            asked, *_wanted(report, {info.fix: info for info in data.fixes()}, query)
        )
    ]


def _wanted(
    report: Report, fixes: Mapping[str, FixInfo], query: Mapping[str, str]
) -> tuple[str, str, data.Asked]:
    """The fix that an address asks for, the metric and the fix's parameters."""
    named = query.get("fix", "")
    fix = named if named in fixes else sliders.first_fix(report, list(fixes))
    parameters = {
        info.name: query.get(f"p_{info.name}") or sliders.choices(info, report, fix)[1]
        for info in fixes[fix].parameters
    }
    return fix, state.metric_of(query, _metrics(report), report.verdict.metric), _given(parameters)


def _metrics(report: Report) -> list[str]:
    return [name for name in report.slo.limits() if name in ("ttft", "e2e", "tpot")] or ["e2e"]


def _given(parameters: Mapping[str, str]) -> data.Asked:
    return tuple(sorted((name, value) for name, value in parameters.items() if value))


def _panel(report: Report) -> None:
    # A fragment: moving a slider draws this panel again and nothing else.
    with ui.errors_as_boxes(data.answers):
        _answer(report)


def _answer(report: Report) -> None:
    theme, asked = theme_of(state.mode()), data.asked(state.filters())
    fixes = {info.fix: info for info in data.fixes()}
    heading = st.empty()
    left, right = st.columns([1, 2.3], gap="large")
    with left:
        fix = state.fix(list(fixes), sliders.first_fix(report, list(fixes)))
        ui.put(f"<p>{ui.sentence(fixes[fix].question)}</p>")
        parameters = {
            info.name: state.parameter(info.name, *sliders.choices(info, report, fix))
            for info in fixes[fix].parameters
        }
        metric = state.metric(_metrics(report), report.verdict.metric)
    with heading.container():
        ui.put(ui.box(*meanwhile(report, fixes[fix])))
    with (
        left,
        st.spinner(
            "Computing. The first answer for a window calibrates the engine, which takes some seconds",
            show_time=True,
        ),
    ):
        found = data.whatif(asked, fix, metric, _given(parameters))
    with heading.container():
        ui.put(_box(found, report, fixes[fix], _given(parameters)))
        nav.links(
            ("findings", "Back to the findings"),
            ("verdict", "Back to the verdict"),
            ("compare", "Compare windows"),
        )
    document = whatif_text.document(found)
    with left:
        ui.put(ui.blocks(document.groups[1:2]))
    current = fix_comparison.written(fix, _given(parameters))
    others = [text for text in fix_comparison.kept() if text != current]
    with right:
        # The page's own prediction is drawn before others are computed.
        place = st.empty()
        with place.container():
            _tail(found, report, metric, theme)
        fix_comparison.buttons(current)
        if others:
            with st.spinner("Computing the fixes beside it", show_time=True):
                asked_for = fix_comparison.ask(asked, metric, others)
            with place.container():
                _tail(found, report, metric, theme, fix_comparison.curves(asked_for, metric))
            own = fix_comparison.Choice(current, found)
            ui.put(fix_comparison.table([own, *asked_for]))
    fix_comparison.plan(asked)
    ui.put(ui.blocks(document.groups[2:]))
    downloads.as_json("This prediction", "whatif", found)


def meanwhile(report: Report, info: FixInfo) -> tuple[str, list[str]]:
    """What can be said before the answer is there: the report's own prediction of this fix, where it has one."""
    fix = sliders.found(report, info.fix)
    if fix is None or fix.predicted is None:
        return f"Computing: {ui.sentence(info.question)}", []
    return f"Computing. The finding proposes: {ui.text(fix.title, 200)}", [
        prediction(fix, fix.predicted)
    ]


def _box(found: Prediction, report: Report, info: FixInfo, parameters: data.Asked) -> str:
    fix = proposed(report, info, parameters)
    gain = fix.predicted if fix is not None else None
    if (
        fix is None
        or gain is None
        or found.predicted is None
        or gain.metric != found.predicted.metric
    ):
        return ui.box(*headline(found, info))
    # The figures of the verdict, the findings and the terminal come first; those of all requests in the window are named as such.
    if not period(fix):
        return ui.box(*headline(msgspec.structs.replace(found, predicted=gain), info))
    first, below = headline(found, info)
    own = (
        f"{ui.text(fix.title, 200)}: {gain.metric.upper()} P{100.0 * gain.quantile:g} {period(fix).removeprefix('the requests ')} "
        f'{say_ms(gain.before)} → <span class="ov-predicted">{say_after(gain)}</span>'
    )
    return ui.box(own, [f"Over all requests of the window: {first}.", *below])


def proposed(report: Report, info: FixInfo, parameters: data.Asked) -> Fix | None:
    """The fix of a finding that asks the same what-if with the same parameters; None where its figures will be simulated or cannot be."""
    fix = sliders.found(report, info.fix)
    if fix is None or "simulated" in fix.reasons:
        return None
    return fix if sliders.given(fix).items() <= dict(parameters).items() else None


def headline(found: Prediction, info: FixInfo) -> tuple[str, list[str]]:
    """The prediction in a sentence, as safe HTML."""
    gain = found.predicted
    if gain is None:
        why = found.reasons.get("predicted", "the data is not sufficient for this question")
        return f"{ui.text(found.title, 200)}: no prediction", [
            f"{ui.sentence(why)}. {ui.sentence(info.question)}"
        ]
    interval = f"{interval_of(gain)}; " if interval_of(gain) else ""
    bound = "a bound; " if found.bound else ""
    over = f", {ui.text(say_over(gain).replace('->', '→'))}" if say_over(gain) else ""
    first = (
        f"{ui.text(found.title, 200)}: {gain.metric.upper()} P{100.0 * gain.quantile:g} {say_ms(gain.before)} → "
        f'<span class="ov-predicted">{say_after(gain)}</span>'
    )
    return first, [
        f"{interval}{bound}{ui.text(found.method)} over {found.requests:,} recorded requests, {say_ratio(gain.touched_ratio)} of them change{over}. "
        f"Holds if {ui.sentence(found.assumption)}."
    ]


def _tail(
    found: Prediction,
    report: Report,
    metric: str,
    theme: Theme,
    others: Sequence[tuple[str, Curve]] = (),
) -> None:
    curve = next((curve for curve in found.curves if curve.metric == metric), None)
    if curve is None:
        ui.put(f"<p>No curve of {metric.upper()}: too few requests carry it.</p>")
        return
    spoken = f"Share of requests slower than a time, measured and predicted, {metric.upper()}, n {curve.n}"
    drawn = charts_whatif.exceedance(
        curve,
        report.slo.limits().get(metric),
        report.slo.percentile,
        theme,
        own_limits=report.goodput.own_limits,
        others=others,
    )
    ui.chart(drawn, f"exceedance{'-beside' if others else ''}", alt=spoken)
    ui.put(
        f"<small>{metric.upper()} of n {curve.n:,}, both axes in powers of ten: further left and lower is better; dotted = P{report.slo.percentile:g}, "
        f"dashed line down = {ui.limit_words(report.goodput.own_limits)}; source /api/v1/whatif</small>"
    )
