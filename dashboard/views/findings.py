"""Why, with proof, and what would the fix buy? One card per finding: the evidence, what to change, the predicted effect, and requests to look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import streamlit as st

from overrun.analysis.front import fact_text
from overrun.analysis.front import question_table as questions
from overrun.analysis.front.proof_list import MOST_ASKED, Proof
from overrun.analysis.front.report import Report, seeking
from overrun.analysis.words.finding import (
    Finding,
    Fix,
    Predicted,
    begun,
    say_after,
    say_bound,
    say_over,
)
from overrun.dashboard import (
    data,
    downloads,
    empty_states,
    evidence,
    nav,
    proof_chart,
    state,
    ui,
)
from overrun.dashboard.theme import Theme, say_ms, say_ratio, theme_of

_CONFIDENT = ((0.85, "high"), (0.6, "medium"), (0.0, "low"))
_SEVERITY = {"critical": "‼ critical", "warning": "! warning", "info": "i info"}


def draw() -> None:
    """The page."""
    report = empty_states.report_or_state()
    if report is None:
        return
    theme = theme_of(state.mode())
    ui.put(ui.box(*headline(report)))
    nav.links_with(
        ("verdict", "Back to the verdict", {}),
        ("budget", "Which stage", {}),
        nav.requests_of(report),
    )
    asked = data.asked(state.filters())
    data.ahead(*needs(asked, report, {}))
    ui.put(proof_chart.way(report))
    shown = proofs_of(report, asked)
    for place, finding in enumerate(report.findings, 1):
        with st.container(border=True, key=f"finding-{place}"):
            ui.put(card(place, finding, report, theme, shown.get(finding.rule)))
            _next(finding)
    ui.put(quiet(report))
    if st.toggle("All facts", key="facts", help="Every factor before and now, with intervals."):
        found = data.ask(questions.FACTS, data.asked(state.filters()))
        document = fact_text.document(found)
        ui.put(f"<p>{ui.sentence(document.lead)}</p>{ui.blocks(document.groups)}")
        downloads.as_json("All facts", "facts", found)
    ui.put(empty_states.footer(report))


def needs(
    asked: data.Asked, report: Report, query: Mapping[str, str]
) -> list[Callable[[], object]]:
    """What the page asks for beside the report."""
    return [partial(proofs_of, report, asked)] if report.findings else []


def proofs_of(report: Report, asked: data.Asked) -> dict[str, Proof]:
    """The chart and the facts of each finding, by its rule."""
    if not report.findings:
        return {}
    named = ";".join(
        dict.fromkeys(f"{one.rule}:{one.stage}" for one in report.findings[:MOST_ASKED])
    )
    found = data.ask(questions.PROOFS, asked, findings=named)
    return {one.rule: one for one in reversed(found.proofs)}


def first(asked: data.Asked, report: Report, query: Mapping[str, str]) -> str:
    """The page's first box, before the rest is there."""
    return ui.box(*headline(report))


def headline(report: Report) -> tuple[str, list[str]]:
    """What the page finds, as safe HTML: a headline and what stands below it."""
    count = len(report.findings)
    if seeking(report):
        return "The search for causes is running", [ui.sentence(report.verdict.sentence)]
    if not count:
        why = report.reasons.get("findings") or "no rule found a cause in these requests"
        return "No finding", [ui.stated(why)]
    first = report.findings[0]
    where = (
        f"{ui.text(first.stage)} ({ui.text(first.service)})"
        if first.service
        else ui.text(first.stage)
    )
    words = f"{f'{count} findings, the first' if count > 1 else '1 finding'}: {ui.text(first.rule.replace('_', ' '))} in {where}"
    if first.rule == report.verdict.cause and report.verdict.cause_status == "not_known":
        return (
            f"The cause is not known; most likely {ui.text(first.rule.replace('_', ' '))} in {where}",
            [ui.sentence(report.verdict.why or report.verdict.sentence)],
        )
    gain = first.fix.predicted if first.fix else None
    body = [begun(ui.sentence(way(report)))] if report.verdict.path else []
    if first.fix and gain:
        body.append(f"{ui.text(first.fix.title, 200)}: {prediction(first.fix, gain)}.")
    return words, body


def way(report: Report) -> str:
    """The way from the cause to the stage, in words: what this window shows, and in brackets what only follows from the graph of causes."""
    steps = report.verdict.path
    return " → ".join(one.label if one.seen else f"({one.label})" for one in steps)


def card(
    place: int, finding: Finding, report: Report, theme: Theme, proof: Proof | None = None
) -> str:
    """One finding as safe HTML: its chart and plain facts, all numbers of its rule behind a fold."""
    level = next(word for least, word in _CONFIDENT if finding.confidence >= least)
    service = f" · {ui.text(finding.service)}" if finding.service else ""
    head = (
        f'<p class="ov-muted">#{place} {ui.chip(finding.stage, theme)} {ui.text(finding.rule)}{service} · {_SEVERITY[finding.severity]} · '
        f"confidence {level} ({finding.confidence:.2f})</p><h2>{begun(ui.sentence(finding.headline))}</h2>"
    )
    shown = proof_chart.render(proof, report.verdict.onset, theme) if proof is not None else ""
    numbers = all_numbers(finding)
    if shown and numbers:
        numbers = f'<details class="ov-details"><summary>All numbers</summary>{numbers}</details>'
    return (
        f'<div class="ov-card"><div>{head}{shown}{numbers}</div>'
        f"<div>{fix_of(finding.fix, report, theme) if finding.fix else _no_fix(finding)}</div></div>"
    )


def all_numbers(finding: Finding) -> str:
    """The numbers that the rule decided by."""
    pairs = "".join(
        f"<div><dt>{ui.text(what)}</dt><dd>{value}</dd></div>"
        for what, value in evidence.rows(finding.evidence)
    )
    return f'<dl class="ov-grid">{pairs}</dl>' if pairs else ""


def fix_of(fix: Fix, report: Report, theme: Theme) -> str:
    """What to change and what it is predicted to buy, its price beside it."""
    body = f"<h2>Fix: {ui.text(fix.title, 200)}</h2><p>{ui.sentence(fix.detail)}</p>"
    gain = fix.predicted
    if gain is None:
        why = fix.reasons.get("predicted", "its effect is not computed")
        return body + f'<p class="ov-muted">No prediction: {ui.sentence(why)}</p>'
    limit, of = report.slo.limits().get(gain.metric), period(fix)
    cost = (
        "; ".join(
            f"{ui.text(evidence.label(name))} {evidence.said(name, value)}"
            for name, value in gain.cost.items()
        )
        or "none counted"
    )
    tested = (
        f", replay error {say_ratio(gain.backtest_error_ratio)}"
        if gain.backtest_error_ratio is not None
        else ""
    )
    counted = "" if of else f"; n {report.window.requests:,}"
    over = f", {ui.text(say_over(gain).replace('->', '→'))}" if say_over(gain) else ""
    return (
        body
        + before_after(
            gain, limit, theme, of, "common limit" if report.goodput.own_limits else "limit"
        )
        + f"<small>{say_bound(fix) or ui.text(fix.method)}{tested}; changes {say_ratio(gain.touched_ratio)} of requests{over}; price: {cost}{counted}. "
        f"Holds if {ui.sentence(fix.assumption)}.</small>"
    )


def period(fix: Fix) -> str:
    """Of which requests a prediction speaks, where it does not speak of all in the window; as safe HTML."""
    said = fix.reasons.get("window")
    return ui.text(said.removeprefix("over ")) if said else ""


def prediction(fix: Fix, gain: Predicted) -> str:
    """A prediction in a line, marked as one."""
    said = ", ".join(
        part
        for part in (
            "a bound, not simulated" if gain.bound else "",
            interval_of(gain),
            f"of {period(fix)}" if period(fix) else "",
        )
        if part
    )
    return (
        f'<span class="ov-predicted">predicted {gain.metric.upper()} P{100.0 * gain.quantile:g} {say_ms(gain.before)} → '
        f"<b>{say_after(gain)}</b></span>" + (f" <small>({said})</small>" if said else "")
    )


def interval_of(gain: Predicted) -> str:
    """The interval of a prediction in words; empty where there is none, or no more than the prediction itself."""
    low, high = map(say_ms, gain.interval or (gain.after, gain.after))
    return f"90 % interval {low} to {high}" if low != high else ""


def before_after(
    gain: Predicted, limit: float | None, theme: Theme, of: str = "", limit_name: str = "limit"
) -> str:
    """Two bars, measured and predicted, with the limit as a line through both; the predicted one is hatched. `of` says of which requests, if not of all."""
    widest = (
        max(gain.before, gain.after, limit or 0.0, gain.interval[1] if gain.interval else 0.0)
        or 1.0
    )
    name = f"{gain.metric.upper()} P{100.0 * gain.quantile:g}"
    tick = (
        f'<i class="ov-tick" style="left:{100.0 * limit / widest:.2f}%" title="{limit_name} {say_ms(limit)}"></i>'
        if limit
        else ""
    )

    def bar(what: str, value: float, style: str) -> str:
        over = limit is not None and value > limit
        said = say_after(gain) if style == "ov-then" else say_ms(value)
        number = f"<b{' class=ov-over' if over else ''}>{'▲ ' if over else ''}{said}</b>"
        return (
            f'<div class="ov-strip"><span>{what}</span><div class="ov-track">{tick}<span class="{style}" style="width:{100.0 * value / widest:.2f}%">'
            f'</span></div><span class="ov-end">{number}</span></div>'
        )

    interval = f", {interval_of(gain)}" if interval_of(gain) else ""
    against = f", {limit_name} {say_ms(limit)}" if limit else ""
    return (
        f'<div role="img" aria-label="{name} now {say_ms(gain.before)}, predicted {say_after(gain)}{interval}{against}">'
        + bar("now", gain.before, "ov-now")
        + bar("bound" if gain.bound else "predicted", gain.after, "ov-then")
        + f"</div><small>{name}{' of ' if of else ''}{of}{interval}{against}</small><br>"
    )


def quiet(report: Report) -> str:
    """Checks that could not decide, each with what it lacks."""
    silent = {
        name.removeprefix("findings."): why
        for name, why in report.reasons.items()
        if name.startswith("findings.")
    }
    if not silent:
        return ""
    body = "".join(
        f"<dt>{ui.text(rule)}</dt><dd>{ui.sentence(why)}</dd>"
        for rule, why in sorted(silent.items())
    )
    many = f"{len(silent)} check{'s' if len(silent) > 1 else ''}"
    return f'<details class="ov-details"><summary>{many} could not run</summary><dl class="ov-facts">{body}</dl></details>'


def _no_fix(finding: Finding) -> str:
    why = finding.reasons.get("fix", "this finding has no fix")
    return f'<p class="ov-muted">{ui.sentence(why)}</p>'


def _next(finding: Finding) -> None:
    steps = [
        ("traces", f"Exemplar {i} · {trace_id[:8]}", {"trace": trace_id})
        for i, trace_id in enumerate(finding.exemplars, 1)
    ]
    nav.links_with(*steps, *nav.fix_of(finding, "Try it in What-if"))
