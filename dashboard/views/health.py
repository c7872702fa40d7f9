"""Can this screen be trusted? Every check of the data with what it found, worst first; what is missing is named, per service with what to switch on."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping

from overrun.analysis.evidence import instances
from overrun.analysis.front import question_table as questions
from overrun.analysis.front.report import Report
from overrun.analysis.numbers.quality.doctor import Checkup, said
from overrun.analysis.numbers.quality.row import Check
from overrun.analysis.numbers.quality.targets import Target
from overrun.dashboard import data, empty_states, nav, state, ui
from overrun.dashboard.theme import say_age, say_count, say_ratio, say_time
from overrun.dashboard.views.verdict import check_name

_ORDER = {"fail": 0, "warn": 1, "ok": 2}
_MOST_SERVICES = 12
_MOST_TARGETS = 40
_STATES = {"up": "✓", "down": "✗", "unreadable": "✗", "slow": "!", "unknown names": "!"}
_GLYPH = {"fail": "✗ fails", "warn": "! look", "ok": "✓ ok"}


def draw() -> None:
    """The page."""
    report = empty_states.report_or_state(of_metrics=True)
    if report is None:
        return
    asked = data.asked(state.filters())
    data.ahead(*needs(asked, report, {}))
    ui.put(ui.box(*headline(report.data_quality)))
    nav.links(("verdict", "Back to the verdict"), ("traces", "Requests behind these numbers"))
    ui.put(freshness(report) + table(report.data_quality) + sources(report) + unknown(report))
    ui.put(services(data.ask(questions.DOCTOR, asked)) + empty_states.footer(report))


def first(asked: data.Asked, report: Report, query: Mapping[str, str]) -> str:
    """The page's first box, before the rest is there."""
    return ui.box(*headline(report.data_quality))


def needs(
    asked: data.Asked, report: Report, query: Mapping[str, str]
) -> list[Callable[[], object]]:
    """What the page asks for beside the report."""
    return [lambda: data.ask(questions.DOCTOR, asked)]


def headline(checks: list[Check]) -> tuple[str, list[str]]:
    """What the page finds, as safe HTML."""
    failed, warned = (
        [check for check in checks if check.status == status] for status in ("fail", "warn")
    )
    if not checks:
        return "No check was run", ["There is nothing to check in this window."]
    if not failed and not warned:
        return f"✓ These numbers can be trusted: {len(checks)} of {len(checks)} checks pass", []
    first = (failed or warned)[0]
    count = len(failed) + len(warned)
    words = "Do not trust every number here" if failed else "Read these numbers with care"
    headed = (
        f"{words}: {count} of {len(checks)} checks {'needs' if count == 1 else 'need'} attention"
    )
    return headed, [f"{ui.text(check_name(first))}: {ui.sentence(first.detail)}."]


def freshness(report: Report) -> str:
    """How much there is and how old it is."""
    held = data.held(state.filters())
    window = report.window
    age = (
        f"{say_age((state.now() - held.newest).total_seconds())} ago ({say_time(held.newest, date=True)})"
        if held.newest
        else "never"
    )
    of = window.requests + window.incomplete
    since = f" since {say_time(held.oldest, date=True)}" if held.oldest else ""
    return ui.facts(
        [
            ("Newest request", age),
            ("In the store", f"{say_count(held.requests, 'request')}{since}"),
            (
                "In this window",
                f"{say_count(window.requests, 'request')}, {say_count(window.llm_calls, 'model call')}, {say_count(window.spans, 'span')}",
            ),
            (
                "Left out as incomplete",
                f"{window.incomplete:,} of {of:,} ({say_ratio(window.incomplete / of)})"
                if of
                else "",
            ),
            (
                "TTFT measured by",
                ui.text(
                    report.latency.ttft_ms.source or report.latency.ttft_ms.reasons.get("p50"), 200
                ),
            ),
            (
                "ITL measured by",
                ui.text(
                    report.latency.itl_ms.source or report.latency.itl_ms.reasons.get("p50"), 200
                ),
            ),
        ]
    )


def table(checks: list[Check]) -> str:
    """One row per check, worst first."""
    rows = [
        [ui.text(check_name(check)), _GLYPH[check.status], ui.sentence(check.detail)]
        for check in sorted(checks, key=lambda check: _ORDER[check.status])
    ]
    return (
        f'<div class="ov-prose">{ui.table(["Check", "Result", "What was found"], rows)}</div>'
        if rows
        else ""
    )


def sources(report: Report) -> str:
    """The metrics pages that are read, and the engine instances behind them; empty where no metrics came."""
    parts = []
    if report.targets:
        head = ["Target", "State", "Since", "Last attempt", "Answered", "Its page takes", "Why"]
        order = sorted(report.targets, key=lambda one: (one.state == "up", one.instance))
        listed = [_target(one) for one in order[:_MOST_TARGETS]]
        more = len(order) - len(listed)
        parts.append(
            f"<h2>Metrics targets</h2>{ui.table(head, listed)}"
            + (f"<p>and {more:,} more</p>" if more > 0 else "")
        )
    if report.instances:
        head = [cell or "what is wrong" for cell in instances.HEAD]
        rows = [
            [ui.text(cell) if cell else "" for cell in instances.cells(row)]
            for row in report.instances
        ]
        parts.append(f"<h2>Engine instances</h2>{ui.table(head, rows[:_MOST_TARGETS])}")
    return "".join(parts)


def _target(target: Target) -> list[str]:
    """One target: what it does, since when, and why it is not up."""
    took = "" if target.took_s is None else f"{target.took_s:.2g} s"
    return [
        ui.text(target.instance),
        f"{_STATES.get(target.state, '!')} {ui.text(target.state)}",
        say_time(target.since, date=True),
        say_time(target.last, date=True),
        f"{target.answered:,} of {target.attempts:,}",
        took,
        ui.sentence(target.reason) if target.reason else "",
    ]


def unknown(report: Report) -> str:
    """What the report cannot say, with the reason it gives."""
    parts = [(key, why) for key, why in report.reasons.items() if not key.startswith("findings.")]
    parts += [
        (f"{where}.{key}", why)
        for where in ("errors", "retries", "goodput", "verdict")
        for key, why in getattr(report, where).reasons.items()
    ]
    # What is not known for one reason stands together.
    names: dict[str, list[str]] = {}
    for key, why in parts:
        names.setdefault(why, []).append(key.replace("_", " ").replace(".", ": "))
    body = "".join(
        f"<dt>{ui.text(', '.join(keys), 300)}</dt><dd>{ui.sentence(why)}</dd>"
        for why, keys in names.items()
    )
    return (
        f'<h2>What is not known here, and why</h2><dl class="ov-facts">{body}</dl>' if body else ""
    )


def services(found: Checkup) -> str:
    """What each service sends, what it leaves out and what to switch on: what `overrun doctor` says."""
    parts = []
    for service in found.services[:_MOST_SERVICES]:
        head, lines = said(service)
        # The lines are the program's own words, with the brackets of settings files; a service's name is its sender's.
        listed = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
        parts.append(f"<p><b>{ui.sentence(head)}</b></p><ul>{listed}</ul>")
    more = len(found.services) - _MOST_SERVICES
    parts += (
        [f"<p>and {more:,} more; choose a service above, or run <code>overrun doctor</code></p>"]
        if more > 0
        else []
    )
    why = "" if parts else "<p>No span of this window names a service.</p>"
    return f"<h2>What each service sends, and what to switch on</h2>{''.join(parts)}{why}<p><small>Source /api/v1/doctor</small></p>"
