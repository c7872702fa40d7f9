"""Are we in budget, what broke, what do I do? The sentence first, then the scores, then where the time goes; no chart library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from urllib.parse import urlencode

import streamlit as st

from overrun.analysis.front import question_table as questions
from overrun.analysis.front import report_brief
from overrun.analysis.front.explanation_lines import explained
from overrun.analysis.front.report import Report, leading
from overrun.analysis.front.report_document import BAD, instance_rows, situation
from overrun.analysis.numbers.latency.percentiles import Percentiles
from overrun.analysis.numbers.outcomes.burn_rate import Burn
from overrun.analysis.numbers.over_time.series import Series, SeriesPoint
from overrun.analysis.numbers.quality.row import Check
from overrun.analysis.words.finding import Finding, begun, say_rate
from overrun.dashboard import data, empty_states, hero, live, nav, sliders, state, terminal, ui
from overrun.dashboard.theme import (
    LIGHT,
    Theme,
    say_age,
    say_count,
    say_ms,
    say_ratio,
    say_step,
    say_time,
    theme_of,
)

METRICS = ("ttft", "itl", "tpot", "e2e")
_GLYPH = {
    "over_budget": "▲",
    "failing": "▲",
    "traffic_lost": "▲",
    "targets_down": "▲",
    "within_budget": "✓",
    "possibly_over_budget": "◔",
    "not_enough_data": "◔",
    "no_data": "◔",
}
_LEAST_COVERED = 0.25
# Requests that were due and did not come: by chance one time in a million.
_NO_CHANCE = 14.0
_STEP = {"pass": "✓", "fail": "✗", "unknown": "?"}


def draw() -> None:
    """The page."""
    report = empty_states.report_or_state(of_metrics=True)
    if report is None:
        return
    if empty_states.by_metrics(report):
        _by_metrics(report)
        return
    theme = theme_of(state.mode())
    asked = data.asked(state.filters())
    # Asked for together, behind the report: the sentence comes first.
    data.ahead(*needs(asked, report, {}))
    with st.container(key="story", gap="small"):
        ui.put(verdict_box(report, theme))
        shown = anatomy_of(report, asked)
        picture = hero.draw(shown) if shown is not None else ""
        if picture:
            ui.put(picture)
        ui.put(answers(report, asked))
    nav.links_with(
        ("findings", "See the evidence", {}),
        ("budget", "Which stage, and what slow requests do differently", {}),
        nav.requests_of(report),
        *nav.fix_of(
            next((finding for finding in report.findings if finding.fix is not None), None),
            "Try the fix",
        ),
    )
    if report.verdict.status != "traffic_lost" and not empty_states.stale(state.filters()):
        # What started later may still run, or be on its way.
        ui.put(
            silence(
                data.ask(questions.SERIES, asked, metric="e2e"),
                state.now()
                - live.STALE_AFTER
                - timedelta(milliseconds=report.latency.e2e_ms.p99 or 0.0),
            )
        )
    ui.put(scores(report, asked, theme))
    ui.put(details(report))
    ui.put(empty_states.footer(report))


def _by_metrics(report: Report) -> None:
    """The page where an engine's metrics alone speak."""
    ui.put(verdict_box(report, theme_of(state.mode())))
    ui.put(answers(report, data.asked(state.filters())))
    nav.links(("engine", "The engine's metrics over time"), ("health", "What is missing"))
    limits, judged = report.slo.limits(), f"P{report.slo.percentile:g}"
    rows = [
        [
            *_measured(report, metric),
            *(
                _score(_stats(report, metric), name, limits.get(metric) if name == judged else None)
                for name in ("P50", "P95", "P99")
            ),
        ]
        for metric in shown_metrics(report)
    ]
    ui.put(
        ui.table(
            ["Latency by the engine's histograms", "n", "P50", "P95", "P99"],
            rows,
            caption="Interpolated between the bucket edges below the numbers; waits of the clients before and after the engine are not included. "
            "▲ and red = over the limit.",
        )
    )
    ui.put(ui.blocks([instance_rows(report, whole=True)]))
    ui.put(details(report))
    ui.put(empty_states.footer(report))


def first(asked: data.Asked, report: Report, query: Mapping[str, str]) -> str:
    """The page's first box, before the rest is there."""
    return verdict_box(report, LIGHT)


def needs(
    asked: data.Asked, report: Report, query: Mapping[str, str]
) -> list[Callable[[], object]]:
    """What the page asks for beside the report."""
    return [
        lambda: data.ask(questions.BURN, asked),
        *(
            [partial(data.ask, questions.ANATOMY, asked, **_course_of(report))]
            if report.verdict.metric in METRICS and report.stages
            else []
        ),
        *(
            partial(data.ask, questions.SERIES, asked, metric=metric)
            for metric in shown_metrics(report)
        ),
    ]


def verdict_box(report: Report, theme: Theme) -> str:
    """The headline; where nothing below says why, the report's own sentence with it."""
    verdict = report.verdict
    chip = f" {ui.chip(verdict.stage, theme)}" if verdict.stage else ""
    return ui.box(
        f"{_GLYPH[verdict.status]} {headline(report)}{chip}",
        [] if verdict.why else [ui.sentence(verdict.sentence)],
        bad=verdict.status in BAD,
    )


def anatomy_of(report: Report, asked: data.Asked) -> hero.Hero | None:
    """What the picture shows; None where no latency is judged."""
    verdict = report.verdict
    if verdict.metric not in METRICS or not report.stages:
        return None
    fix = cause.fix if (cause := report_brief.cause_of(report)) is not None else None
    gain = fix.predicted if fix is not None else None
    # The figures of the fix and of the slow requests beside it are of the same requests.
    course = data.ask(questions.ANATOMY, asked, **_course_of(report))
    shown = gain if gain is not None and gain.metric == verdict.metric else None
    return hero.Hero(
        course,
        shown,
        fix.title if fix is not None else "",
        report.findings,
        verdict.changed,
        verdict.onset,
    )


def _course_of(report: Report) -> dict[str, str]:
    verdict, cause = report.verdict, report_brief.cause_of(report)
    fix = cause.fix if cause is not None else None
    in_all = fix is not None and fix.predicted is not None and "window" not in fix.reasons
    onset = None if verdict.onset is None or in_all else verdict.onset.isoformat()
    return {"metric": verdict.metric or "e2e"} | ({"onset": onset} if onset else {})


def answers(report: Report, asked: data.Asked) -> str:
    """Five labelled lines, in the words of the terminal's report, and the rest behind a fold."""
    found = leading(report)
    lines = (
        _advised(report, asked)
        if found is None
        else [(label.capitalize(), ui.sentence(words)) for label, words in explained(found).items()]
    )
    hit = report_brief.hit_words(report)
    lines.append(("Hit", ui.sentence(hit) if hit else _why(report, "affected")))
    verdict = report.verdict
    parts = [ui.sentence(part) for part in situation(report, whole=True)]
    if verdict.onset is not None:
        parts[0] += ui.local(verdict.onset)
    if verdict.onset is not None and not verdict.changed and verdict.status in BAD:
        # Nothing changed is an answer too. Of requests that were lost, the rate is what changed.
        rate = "" if verdict.status == "traffic_lost" else ", and rate"
        parts.append(
            f"no new version or model, and settings, traffic mix and lengths{rate} are as before"
        )
    known = "".join(f"<li>{part}</li>" for part in parts)
    said = f"<p>{ui.sentence(verdict.sentence)}</p>" if verdict.why and found is None else ""
    missing = ui.facts([(name, _why(report, name)) for name in ("onset", "changed")])
    more = f"<ul>{known}</ul>{missing}{said}" if known else ""
    folded = (
        f'<details class="ov-details"><summary>Since when, what changed, what is ruled out</summary>{more}</details>'
        if more
        else ""
    )
    return f'<div class="ov-under">{ui.facts(lines)}{folded}</div>'


def _advised(report: Report, asked: data.Asked) -> list[tuple[str, str]]:
    """Why, what to do, what that gains and how sure it is, where no explanation says it."""
    verdict, cause = report.verdict, report_brief.cause_of(report)
    owner = f" <small>(owner: {ui.text(verdict.owner)})</small>" if verdict.owner else ""
    undo = f" <small>Undo: {ui.sentence(verdict.rollback)}</small>" if verdict.rollback else ""
    why = f"{ui.sentence(report_brief.why_words(report))}{_proof(cause)}" if verdict.why else ""
    do = _why(report, "mitigation")
    if verdict.mitigation:
        do = f"<b>{ui.sentence(verdict.mitigation)}</b>{_recheck(report)}{owner}{undo}"
    first = cause or next((one for one in report.findings if one.fix is not None), None)
    return [
        ("Why", why),
        ("Do now", do),
        ("Gain", _gain(report, first, asked) if first is not None else ""),
        ("Sure?", ui.sentence(report_brief.sure_words(report, cause)) if cause else ""),
    ]


def _gain(report: Report, cause: Finding, asked: data.Asked) -> str:
    """What the fix of the cause gains, in the words of the terminal's report, with the command that computes it."""
    fix = cause.fix
    if fix is None:
        return ""
    query = sliders.to_try(fix, {info.fix for info in data.fixes()})
    words = ui.sentence(report_brief.gain_words(report, cause).replace("->", "→"))
    copied = tried = ""
    if query is not None:
        copied = ui.copied(terminal.whatif(asked, query))
        tried = f" {_go('whatif', query, 'Try it')}"
    return f"<b>{ui.text(fix.title, 200)}</b>: {words}{tried}{copied}"


def _proof(cause: Finding | None) -> str:
    """Ways from the cause to its evidence and to one of its requests, in sight of the headline."""
    if cause is None:
        return ""
    shown = [_go("findings", {}, "Evidence")]
    if cause.exemplars:
        shown.append(_go("traces", {"trace": cause.exemplars[0]}, "One such request"))
    return f" {' · '.join(shown)}"


def _go(page: str, query: Mapping[str, str], label: str) -> str:
    """A link to another page as safe HTML; the browser adds the filters."""
    address = f"/{page}?{urlencode(query)}" if query else f"/{page}"
    return f'<a class="ov-go" href="{ui.text(address, 2000)}">{label}</a>'


def headline(report: Report) -> str:
    """The verdict in a few words, as safe HTML."""
    verdict, slo = report.verdict, report.slo
    found = leading(report)
    if found is not None and found.sentence:
        return ui.sentence(found.sentence)
    if verdict.status == "not_enough_data":
        return "Not enough data for a verdict"
    if verdict.status == "failing":
        return f"Failing: {say_ratio(report.errors.ratio)} of requests end in an error"
    if verdict.status == "traffic_lost":
        return "Traffic is lost"
    stats = _stats(report, verdict.metric or "e2e")
    limit = slo.limits().get(verdict.metric or "")
    value = say_ms(stats.at(slo.percentile))
    edges: tuple[float, float] | None = (
        getattr(stats, f"p{slo.percentile:g}_interval", None)
        if empty_states.by_metrics(report)
        else None
    )
    if edges is not None:
        value = f"between {say_ms(edges[0])} and {say_ms(edges[1])}"
    if report_brief.two_percentiles(report):
        value = f"{say_ms(verdict.since_ms)} since the onset ({value} in all)"
    measured = (
        f"{(verdict.metric or '').upper()} P{slo.percentile:g} {value}, limit {say_ms(limit)}"
    )
    for one in report.unfit:
        if one.metric == verdict.metric:
            measured += f" (the limit of {say_ms(one.limit_ms)} does not fit)"
    lead = {
        "within_budget": "Within budget: ",
        "possibly_over_budget": "Over the limit, not certain: ",
    }
    return lead.get(verdict.status, "") + measured


def shown_metrics(report: Report) -> list[str]:
    """The metrics that were measured or have a limit."""
    return [
        metric for metric in METRICS if _stats(report, metric).n or metric in report.slo.limits()
    ]


def scores(report: Report, asked: data.Asked, theme: Theme) -> str:
    """The score table and goodput, each with its course over the window."""
    judged, limits = f"P{report.slo.percentile:g}", report.slo.limits()
    rows = []
    for metric in shown_metrics(report):
        stats = _stats(report, metric)
        rows.append(
            [
                *_measured(report, metric),
                *(
                    _score(stats, name, limits.get(metric) if name == judged else None)
                    for name in ("P50", "P95", "P99")
                ),
                _course(asked, metric, theme),
            ]
        )
    table = ui.table(
        ["Latency of successful requests", "n", "P50", "P95", "P99", "over time, dashed = limit"],
        rows,
        caption=f"95 % intervals below the numbers. The limit is on {judged}; ▲ and red = over it."
        + (
            f" Here it is {ui.limit_words(report.goodput.own_limits)}."
            if report.goodput.own_limits
            else ""
        ),
    )
    table += further(report)
    good = report.goodput
    # A share below its target by chance, or of too few requests, is no breach: the verdict has decided that.
    over = (
        report.verdict.status in BAD
        and good.ratio is not None
        and good.ratio < report.slo.goodput_target
    )
    number = f'<span class="ov-big{" ov-over" if over else ""}">{"▲ " if over else ""}{say_ratio(good.ratio)}</span>'
    missed = ", ".join(
        f"{metric.upper()} {getattr(good.failed_by, metric):,}"
        for metric in METRICS
        if metric in limits
    )
    rest = (
        f"target {say_ratio(report.slo.goodput_target)}; {good.good:,} of {good.good + good.bad:,} requests"
        + (f", {say_rate(good.rps, 'good')}" if good.rps is not None else "")
        if good.ratio is not None
        else ui.text(good.reasons.get("ratio"), 200)
    )
    course = data.ask(questions.SERIES, asked, metric="e2e")
    line = ui.spark(
        [point.goodput_ratio for point in course.points],
        theme,
        limit=report.slo.goodput_target,
        alt=f"goodput ratio per {say_step(course.step_s)}, target dashed",
    )
    side = (
        f"<h2>Goodput: requests that meet every limit</h2>{number} {line}<br><small>{rest}<br>missed: {missed}, errors "
        f"{good.failed_by.error:,}; not measurable {good.unmeasurable:,}<br>error ratio {say_ratio(report.errors.ratio)}</small>"
        + traffic(course, theme)
        + burn_of(data.ask(questions.BURN, asked))
    )
    return f'<div class="ov-wide"><div>{table}</div><div>{side}</div></div>'


def further(report: Report) -> str:
    """The latencies that no limit is on, folded away; empty where no request carries any."""
    rows = [
        [
            f"<b>{begun(ui.text(more.what))}</b><small>{ui.text(more.ms.source)}</small>",
            f'<span class="ov-n">{more.ms.n:,}</span>',
            *(_score(more.ms, name, None) for name in ("P50", "P95", "P99")),
        ]
        for more in report.further
    ]
    names = ui.text(", ".join(more.metric.replace("_", " ") for more in report.further), 200)
    head = ["Latency without a limit", "n", "P50", "P95", "P99"]
    return (
        f'<details class="ov-details"><summary>Further latencies: {names}</summary>{ui.table(head, rows)}</details>'
        if rows
        else ""
    )


def traffic(course: Series, theme: Theme) -> str:
    """How many requests came, over time: a fall is visible before a verdict reports it."""
    rates = [_rate(point, course) for point in course.points]
    known = [rate for rate in rates if rate is not None]
    if len(known) < 2:
        return ""
    spoken = f"requests per second, {say_step(course.step_s)} steps: first {known[0]:.3g}, last {known[-1]:.3g}, most {max(known):.3g}"
    return f"<h2>Requests per second</h2>{ui.spark(rates, theme, alt=spoken)} <small>at most {max(known):.3g}</small>"


def silence(course: Series, seen: datetime) -> str:
    """Since when no request has come, as safe HTML, where the window ends in a silence longer than any before it that is no chance.

    Where n were due, none comes with a chance of exp(-n). `seen`: requests that started before have arrived.
    """
    last = max((point.start for point in course.points if point.requests), default=None)
    if last is None or course.start is None or course.end is None:
        return ""
    since = last + timedelta(seconds=course.step_s)
    silent_s, busy_s = (
        (min(course.end, seen) - since).total_seconds(),
        (since - course.start).total_seconds(),
    )
    due = sum(point.requests for point in course.points) / busy_s * silent_s
    # Traffic that comes and goes has been away before.
    away, longest = 0, 0
    for point in course.points:
        away = 0 if point.requests else away + 1
        longest = max(longest, away if point.start < last else 0)
    if due < _NO_CHANCE or silent_s <= longest * course.step_s:
        return ""
    missed = say_count(round(due), "request")
    return (
        f'<p role="status">◔ <b>No request since {say_time(since)}</b>, for {say_age(silent_s)}: at the former rate, about {missed} would have arrived. '
        "The numbers cover the time before.</p>"
    )


def _rate(point: SeriesPoint, course: Series) -> float | None:
    """Requests a second in the part of a step that the window covers; none where that is too short to tell."""
    end = point.start + timedelta(seconds=course.step_s)
    covered_s = (
        min(end, course.end or end) - max(point.start, course.start or point.start)
    ).total_seconds()
    return point.requests / covered_s if covered_s >= _LEAST_COVERED * course.step_s else None


def burn_of(found: Burn) -> str:
    """How fast the error budget is spent: a pair of windows per row, each beside the rate at which it would page someone."""
    rows = []
    for pair in found.pairs:
        known = [rate for rate in (pair.long_burn, pair.short_burn) if rate is not None]
        name = f"{say_age(pair.long_s)} and {say_age(pair.short_s)}"
        if len(known) < 2:  # one window alone is no alert and no all-clear
            why = ui.text(next(iter(pair.reasons.values()), ""), 60)
            told = (
                f"{known[0]:.1f}× in {say_age(pair.long_s if pair.short_burn is None else pair.short_s)}; "
                if known
                else ""
            )
            missing = (
                f" in {say_age(pair.short_s if pair.short_burn is None else pair.long_s)}"
                if known
                else ""
            )
            rows.append(
                f'<div class="ov-strip ov-burn"><span>{name}</span><small class="ov-rest">{told}{why}{missing}</small></div>'
            )
            continue
        # Both windows must burn that fast: the slower one decides.
        share = min(min(known) / pair.threshold, 1.0)
        rate = f"{'▲ ' if pair.firing else ''}{min(known):.1f}×"
        bar = f'<div class="ov-track"><span class="ov-now" style="width:{100.0 * share:.1f}%"></span></div>'
        rows.append(
            f'<div class="ov-strip ov-burn" title="{pair.bad:,} bad of {pair.requests:,} requests"><span>{name}</span>{bar}'
            f'<span class="ov-end"><b{" class=ov-over" if pair.firing else ""}>{rate}</b> <small>of {pair.threshold:g}×</small></span></div>'
        )
    return (
        f"<h2>Error budget burn</h2>{''.join(rows)}<small>bad share / {say_ratio(1.0 - found.target)} allowed, up to {say_time(found.at)}; "
        "an alert fires when both windows reach the rate on the right; source /api/v1/burn</small>"
    )


def details(report: Report) -> str:
    """The four-step checklist and the data-quality checks that need a look."""
    steps = "".join(
        f"<dt>{_STEP[step.status]} {ui.text(step.step)}</dt><dd>{ui.sentence(step.detail)}</dd>"
        for step in report.checklist
    )
    bad = [check for check in report.data_quality if check.status != "ok"]
    checks = "".join(
        f"<dt>{ui.text(check_name(check))}</dt><dd>{ui.sentence(check.detail)}</dd>"
        for check in bad
    )
    passed = f"{len(report.data_quality) - len(bad)} of {len(report.data_quality)} checks pass"
    return (
        f'<div class="ov-cols"><div><h2>Checklist</h2><dl class="ov-facts">{steps}</dl></div>'
        f'<div><h2>Can these numbers be trusted?</h2><dl class="ov-facts">{checks}</dl><small>{passed}</small></div></div>'
    )


def check_name(check: Check) -> str:
    """A check's name in words."""
    return " ".join(word.upper() if word in METRICS else word for word in check.check.split("_"))


def _stats(report: Report, metric: str) -> Percentiles:
    found: Percentiles = getattr(report.latency, f"{metric}_ms", None) or Percentiles(n=0)
    return found


def _measured(report: Report, metric: str) -> tuple[str, str]:
    """A metric with what measured it, and how many values there are."""
    stats = _stats(report, metric)
    return (
        f"<b>{metric.upper()}</b><small>{ui.text(stats.source or stats.reasons.get('p50', 'not measured'), 200)}</small>",
        f'<span class="ov-n">{stats.n:,}</span>',
    )


def _score(stats: Percentiles, name: str, limit: float | None) -> str:
    value: float | None = getattr(stats, name.lower())
    if value is None:
        why = stats.reasons.get(name.lower(), "")
        # Too few, or a reason that stands beside the metric's name and among the checks.
        said = f"only {say_count(stats.n, 'request')}" if "at least" in why else "not given"
        return f'<span class="ov-muted ov-n" title="{ui.text(why, 200)}">{said}</span>'
    interval: tuple[float, float] | None = getattr(stats, f"{name.lower()}_interval")
    over = limit is not None and value > limit
    number = f'<span class="ov-num{" ov-over" if over else ""}">{"▲ " if over else ""}{say_ms(value)}</span>'
    below = [
        f"{say_ms(interval[0])} to {say_ms(interval[1])}" if interval else "",
        f"limit {say_ms(limit)}" if limit is not None else "",
    ]
    return number + "".join(f"<small>{line}</small>" for line in below if line)


def _course(asked: data.Asked, metric: str, theme: Theme) -> str:
    course = data.ask(questions.SERIES, asked, metric=metric)
    p95 = [point.p95 for point in course.points]
    # A line of two points shows more than none: with little traffic the median is drawn instead, with its name.
    name, values = (
        ("P95", p95)
        if sum(value is not None for value in p95) > 1
        else ("P50", [point.p50 for point in course.points])
    )
    known = [value for value in values if value is not None]
    spoken = f"{metric.upper()} {name} per {say_step(course.step_s)}"
    if known:
        spoken += (
            f": first {say_ms(known[0])}, last {say_ms(known[-1])}, highest {say_ms(max(known))}"
        )
    limit = course.limit_ms if name == "P95" else None
    return ui.spark(values, theme, alt=spoken, limit=limit) + (
        f"<small>{name} per {say_step(course.step_s)}</small>" if known else ""
    )


def _why(report: Report, field: str) -> str:
    """The reason why the verdict lacks something; only if something is wrong."""
    why = report.verdict.reasons.get(field)
    return (
        f'<span class="ov-muted">not known: {ui.sentence(why)}</span>'
        if why and report.verdict.status in BAD
        else ""
    )


def _recheck(report: Report) -> str:
    seconds = report.verdict.recheck_after_s
    return f" <small>(look again after {say_age(seconds)})</small>" if seconds else ""
