"""What does an engineer on call need first? What is slow, why, what to do, what that gains and how sure it is, on at most 25 lines of 80 columns.

The whole report is `report_text`. Colour is added last and only on request, so that widths are counted without it.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Final

from overrun.analysis.evidence import instances
from overrun.analysis.front.report import Report, seeking
from overrun.analysis.front.report_text import shown_stages
from overrun.analysis.front.text_layout import cut, fitted, table, wrap
from overrun.analysis.front.window_numbers import said_of_sample
from overrun.analysis.incident.limit_fit import say_unfit
from overrun.analysis.numbers.latency.percentiles import Percentiles
from overrun.analysis.numbers.stages import headroom
from overrun.analysis.numbers.stages.budget import OTHER, StageRow
from overrun.analysis.words.finding import (
    FINDING_CAUSES,
    Finding,
    Record,
    printable,
    say_after,
    say_bound,
    say_costs,
    say_count,
    say_ms,
    say_ratio,
)

MOST_LINES: Final = 25
WIDTHS: Final = (72, 100)
INDENT: Final = 9
LABELS: Final = {
    "over_budget": "SLOW",
    "failing": "FAILING",
    "traffic_lost": "LOST",
    "targets_down": "DOWN",
    "within_budget": "OK",
    "possibly_over_budget": "OVER?",
    "not_enough_data": "UNKNOWN",
    "no_data": "NO DATA",
}
BAD: Final = ("over_budget", "failing", "traffic_lost", "targets_down")
# A route with this share of the bad requests is the one that is slow; own default.
_ONE_ROUTE: Final = 0.9
_MOST_ROWS: Final = 6
_LEAST_ROWS: Final = 3
# Shorter words carry no meaning ("at", "out", "the"); own default.
_MEANING: Final = 5
# The end of a sentence; what a long one can be cut before.
_SENTENCE: Final = re.compile(r"[.!?](?= |$)")
_CLAUSE: Final = re.compile(r"[,;] | (?:and|but|if|because) ")
_CUT: Final = " ..."
_RED, _GREEN, _BOLD, _PLAIN = "\x1b[1;31m", "\x1b[1;32m", "\x1b[1m", "\x1b[0m"


def render(report: Report, *, width: int = 80, colour: bool = False) -> str:
    """Return the report's answer as plain text of at most 25 lines and `width` (72 to 100) columns.

    `colour` marks labels and what is over its limit with ANSI codes.
    """
    width = min(max(width, WIDTHS[0]), WIDTHS[1])
    head, *parts = _answer(report, width)
    answer = [line for part in parts for line in part]
    hit, end = (
        labelled("HIT", hit_words(report), width, 2),
        [*_ruled_out(report, width), *_more(report, width)],
    )
    left = MOST_LINES - len([*head, *answer, *hit, *end])
    # Three empty lines stand between the blocks, unless the tables need their place.
    both = _LEAST_ROWS + 1 + len(latency_table(report))
    tables = _tables(report, max(left - 3, min(left, both)), width)
    blocks = [head, [*answer, *hit], tables, end]
    lines = [line for block in blocks if block for line in ("", *block)][1:]
    while len(lines) > MOST_LINES and "" in lines:
        del lines[len(lines) - 1 - lines[::-1].index("")]
    lines = [cut(line, width) for line in lines[:MOST_LINES]]
    return "\n".join(painted(lines, report) if colour else lines)


def to_json(report: Report) -> str:
    """Return the fields of the answer as one JSON object of texts; null where there is nothing to say."""
    verdict, cause = report.verdict, cause_of(report)
    advised = verdict.mitigation is not None
    fields = {
        "status": verdict.status,
        "slow": subject(report),
        "why": why_words(report),
        "do": _advice(report, cause) if advised else [],
        "undo": verdict.rollback,
        "gain": gain_words(report, cause) if cause is not None and advised else None,
        "sure": sure_words(report, cause),
        "hit": hit_words(report),
        "cause": verdict.cause,
        "stage": verdict.stage,
        "onset": verdict.onset.isoformat() if verdict.onset else None,
        "trace": cause.exemplars[0] if cause is not None and cause.exemplars else None,
    }
    shown = {name: None if value == "" else value for name, value in fields.items()}
    return json.dumps(shown, indent=1, ensure_ascii=False)


def summary(report: Report, *, width: int = 80, colour: bool = False) -> str:
    """Return what is slow, why, what to do, what that gains and how sure it is, each on one line of at most `width` (72 to 100) columns."""
    width = min(max(width, WIDTHS[0]), WIDTHS[1])
    verdict, cause = report.verdict, cause_of(report)
    fields = [
        (LABELS[verdict.status], _subject(report)),
        ("WHY", verdict.why or verdict.sentence),
        ("DO", verdict.mitigation or (verdict.reasons.get("mitigation") or "")),
        ("GAIN", gain_words(report, cause) if cause is not None else ""),
        ("SURE?", sure_words(report, cause)),
    ]
    lines = [f"{label:{INDENT}}{one_line(text, width - INDENT)}" for label, text in fields if text]
    return "\n".join(painted(lines, report) if colour else lines)


def one_line(text: str, width: int) -> str:
    """Return the sentences of a text that fit into `width` columns, without asides in brackets.

    Of a first sentence that is longer, the clauses or words that fit, and dots.
    """
    plain = printable(re.sub(r" \([^()]*\)", "", re.sub(r" \([^()]*\)", "", text)), 2000)
    if len(plain) <= width:
        return plain
    ends = [found.end() for found in _SENTENCE.finditer(plain) if found.end() <= width]
    if ends:
        return plain[: ends[-1]]
    room = plain[: width - len(_CUT)]
    clauses = [found.start() for found in _CLAUSE.finditer(room)]
    end = next((at for at in reversed(clauses) if 2 * at >= width), room.rfind(" "))
    return f"{room[:end].rstrip(',;')}{_CUT}"


def _answer(report: Report, width: int) -> list[list[str]]:
    """What is slow, why, what to do, what it gains, how sure it is."""
    verdict, bad = report.verdict, report.verdict.status in BAD
    cause = cause_of(report)
    first = labelled("LIMIT", say_unfit(report.unfit, report.slo), width, 3)
    parts = [
        [
            *(first if report.unfit else []),
            *labelled(LABELS[verdict.status], subject(report), width, 2),
        ],
        labelled("WHY" if bad or verdict.why else "", why_words(report), width, 4),
    ]
    if verdict.mitigation is not None:
        parts.append(_steps(report, cause, width))
    if cause is not None and "mitigation" not in verdict.reasons:
        parts.append(labelled("GAIN", gain_words(report, cause), width, 2))
    if verdict.status in ("within_budget", "possibly_over_budget") and report.headroom:
        parts.append(labelled("HEADROOM", f"{headroom.said(report.headroom)}.", width, 3))
    parts.append(
        labelled("DATA" if cause is None else "SURE?", sure_words(report, cause), width, 3)
    )
    return parts


def why_words(report: Report) -> str:
    """Why requests are slow, and what else began at the onset."""
    verdict = report.verdict
    said = verdict.sentence.removeprefix(say_unfit(report.unfit, report.slo)).strip()
    text = " ".join([verdict.why or said, *_changes(report)])
    if not verdict.why and seeking(report) and verdict.status in BAD:
        return f"{text} {FINDING_CAUSES[0].upper()}{FINDING_CAUSES[1:]}."
    return text


def labelled(label: str, text: str, width: int, most: int) -> list[str]:
    """A text behind its label; where it is longer than `most` lines, the whole sentences of it that fit, and one more line if the first needs it."""
    first, rest = f"{label:{INDENT}}", " " * INDENT
    lines = wrap(text, width, first, rest)
    if len(lines) <= most:
        return lines
    for end in (most, most + 1):
        kept = " ".join(line[INDENT:] for line in lines[:end]) + " "
        if ". " in kept:
            return wrap(kept[: kept.rindex(". ") + 1], width, first, rest)
    return [*lines[:most], f"{rest}..."]


def subject(report: Report) -> str:
    """What is judged: route, percentile, limit, time."""
    return ", ".join(part for part in (_subject(report), _window(report)) if part)


def _subject(report: Report) -> str:
    return ", ".join(part for part in (_route(report), _measured(report)) if part)


def _route(report: Report) -> str:
    """The route of nearly all bad requests; empty where there is none."""
    affected = report.verdict.affected
    if affected is None or not affected.routes:
        return ""
    first = affected.routes[0]
    return printable(first.name, 30) if first.requests >= _ONE_ROUTE * affected.requests else ""


def _measured(report: Report) -> str:
    verdict, slo = report.verdict, report.slo
    if verdict.status == "failing":
        return f"{say_ratio(report.errors.ratio or 0.0)} of the requests fail"
    if verdict.status not in ("over_budget", "possibly_over_budget", "within_budget"):
        return say_count(report.window.requests, "request")
    metric: str = verdict.metric or next(iter(slo.limits()))
    stats: Percentiles | None = getattr(report.latency, f"{metric}_ms", None)
    value = None if stats is None else stats.at(slo.percentile)
    limit = slo.limits().get(metric)
    if value is None:
        return f"{metric.upper()} P{slo.percentile:g}"
    held = (
        ", limits by request"
        if report.goodput.own_limits
        else f", limit {say_ms(limit)}"
        if limit is not None
        else ""
    )
    seen = say_ms(value)
    if two_percentiles(report):
        seen = f"{say_ms(verdict.since_ms or 0.0)} since the onset ({say_ms(value)} in all)"
    return f"{metric.upper()} P{slo.percentile:g} {seen}{held}"


def two_percentiles(report: Report) -> bool:
    """Whether figures of the requests since the onset stand beside those of all: each then says which of the two it is.

    They do where only the former are over the limit, and where the fix of the cause is computed over them.
    """
    verdict, percentile = report.verdict, report.slo.percentile
    stats: Percentiles | None = getattr(report.latency, f"{verdict.metric}_ms", None)
    value, since = None if stats is None else stats.at(percentile), verdict.since_ms
    if value is None or since is None or say_ms(since) == say_ms(value):
        return False
    cause, limit = cause_of(report), report.slo.limits().get(verdict.metric or "")
    computed = cause is not None and cause.fix is not None and "window" in cause.fix.reasons
    return computed or (limit is not None and value <= limit < since)


def _window(report: Report) -> str:
    start, end = report.window.start, report.window.end
    if start is None or end is None:
        return ""
    if start.date() == end.date():
        return f"{end.day} {end:%b} {start:%H:%M:%S}-{end:%H:%M:%S} UTC"
    return f"{start.day} {start:%b} {start:%H:%M} to {end.day} {end:%b} {end:%H:%M} UTC"


def _changes(report: Report) -> list[str]:
    """What else began with the breach, as sentences."""
    return [
        f"Changed at the onset: {one.what} {'new: ' if len(one.before) != 1 else f'{one.before[0]} -> '}{one.after}."
        for one in report.verdict.changed[:1]
    ]


def cause_of(report: Report) -> Finding | None:
    """The finding that the verdict names as the cause."""
    return next((one for one in report.findings if one.rule == report.verdict.cause), None)


def _steps(report: Report, cause: Finding | None, width: int) -> list[str]:
    """What to do at once, what for good, and how to undo it."""
    verdict = report.verdict
    steps = _advice(report, cause)
    again = (
        f" Look again after {verdict.recheck_after_s / 60:.0f} min."
        if verdict.recheck_after_s
        else ""
    )
    lines = labelled("DO", f"1. {steps[0]}" if len(steps) > 1 else steps[0], width, 3)
    for at, step in enumerate(steps[1:], start=2):
        lines += labelled("", f"{at}. {step}", width, 2)
    if verdict.rollback or again:
        undo = f"Undo: {verdict.rollback}" if verdict.rollback else ""
        lines += labelled("", f"{undo}{again}".strip(), width, 2)
    return lines


def _advice(report: Report, cause: Finding | None) -> list[str]:
    """What to do at once, with its owner, and the fix of the cause where that is another step."""
    verdict = report.verdict
    owner = f" (owner: {verdict.owner})" if verdict.owner else ""
    steps = [f"{(verdict.mitigation or '').rstrip('.')}.{owner}"]
    if cause is not None and cause.fix is not None and not _repeats(cause.fix.title, steps[0]):
        steps.append(f"{cause.fix.title.rstrip('.')}.")
    return steps


def _repeats(title: str, step: str) -> bool:
    """Return whether a fix is the step that is advised already: more than half of its words with a meaning are in it, in any form."""
    stems = [word[:_MEANING].casefold() for word in title.split() if len(word) >= _MEANING]
    return sum(stem in step.casefold() for stem in stems) > len(stems) / 2


def gain_words(report: Report, cause: Finding) -> str:
    """What the fix of the cause gains, on which condition, and what it costs."""
    fix = cause.fix
    if fix is None:
        return ""
    gain = fix.predicted
    if gain is None:
        return f"Not known: {fix.reasons.get('predicted', 'it is not computed')}."
    sure = [say_ms(edge) for edge in gain.interval or ()]
    interval = f" ({sure[0]} to {sure[1]})" if len(set(sure)) == 2 else ""
    late = (
        f", requests over the limit {say_ratio(gain.over_before_ratio)} -> {say_ratio(gain.over_after_ratio)}"
        if gain.over_before_ratio is not None and gain.over_after_ratio is not None
        else ""
    )
    rough = " (a rough estimate)" if fix.method == "estimate" else ""
    bound = f"{say_bound(fix)}: " if say_bound(fix) else ""
    cost = f" Costs: {say_costs(gain)}." if say_costs(gain) else ""
    whose = ""
    if two_percentiles(report):
        whose = " since the onset" if "window" in fix.reasons else " in all"
    return (
        f"{bound}{gain.metric.upper()} P{100.0 * gain.quantile:g}{whose} {say_ms(gain.before)} -> {say_after(gain)}{interval}{late}{rough},"
        f" if {fix.assumption}.{cost}{_recorded('This fix', fix.record)}"
    )


def _recorded(what: str, record: Record | None) -> str:
    """What came of a rule's advice or of a fix where it was applied here, as a sentence; empty where it never was."""
    if record is None:
        return ""
    return f" {what} gained what was predicted {record.hits} of {say_count(record.answers, 'time')} here."


def sure_words(report: Report, cause: Finding | None) -> str:
    """How sure the cause is, what it explains, and whether the data can be trusted."""
    parts = []
    if cause is not None:
        share = cause.evidence.get("share_of_excess")
        explains = (
            f", which explains {say_ratio(float(share))} of the extra time"
            if share is not None
            else ""
        )
        unknown = "" if report.verdict.cause_status == "known" else "No, the cause is not known: "
        parts.append(
            f"{unknown}{say_ratio(cause.confidence)} for {cause.rule.replace('_', ' ')}{explains}."
            + _recorded("Its advice", cause.record)
        )
    failed = [
        check.check.replace("_", " ") for check in report.data_quality if check.status != "ok"
    ]
    passed = len(report.data_quality) - len(failed)
    if report.data_quality:
        doubts = f" Look at: {', '.join(failed[:3])}{', ...' if len(failed) > 3 else ''}."
        parts.append(
            f"{say_count(report.window.requests, 'request')}; {passed} of {len(report.data_quality)} data checks passed."
            + (doubts if failed else "")
        )
    if report.sample is not None:
        parts.append(f"Causes {said_of_sample(report.sample)}.")
    return " ".join(parts)


def hit_words(report: Report) -> str:
    """Whom it hits: how many requests, how fast, since when; empty where that is not known."""
    affected = report.verdict.affected
    if affected is None:
        return ""
    judged = report.goodput.good + report.goodput.bad or report.window.requests
    parts = [f"{affected.requests:,} of {judged:,} requests are late or fail"]
    if affected.ratio is not None:
        parts[0] += f" ({say_ratio(affected.ratio)})"
    if affected.per_minute is not None:
        rate = affected.per_minute
        parts.append(f"{rate:,.0f} a minute" if rate >= 1.0 else f"{60.0 * rate:.2g} an hour")
    onset = report.verdict.onset
    if onset is not None:
        trend = f" ({report.verdict.trend})" if report.verdict.trend else ""
        parts[-1] += f" since {_moment(onset, report)}{trend}"
    if not _route(report) and affected.routes:
        parts.append(
            "; ".join(
                f"{printable(share.name, 30)} {say_ratio(share.ratio)}"
                for share in affected.routes[:2]
            )
        )
    return f"{', '.join(parts)}."


def _moment(time: datetime, report: Report) -> str:
    start = report.window.start
    same = start is not None and time.date() == start.date()
    return f"{time:%H:%M:%S} UTC" if same else f"{time:%Y-%m-%d %H:%M:%S} UTC"


def _tables(report: Report, free: int, width: int) -> list[str]:
    """The stages (or the instances, where no request is known) and the latencies, as far as `free` lines hold them."""
    latency = latency_table(report)
    most = min(_MOST_ROWS + 1, free - len(latency) if free - len(latency) > _LEAST_ROWS else free)
    where = stages_table(report, most - 1) or instances_table(report, most - 1, width)
    return [*where, *(latency if len(where) + len(latency) <= free else [])]


def stages_table(report: Report, most: int) -> list[str]:
    """The stages that take time, at most so many, those that differ most: usual, near the percentile, and allowed."""
    slowest = max((row.tail_ms or 0.0 for row in report.stages), default=0.0)
    shown = [pair for pair in shown_stages(report.stages, slowest) if pair[0].tail_ms is not None]
    while len(shown) > max(0, most):
        shown.remove(min(shown, key=lambda pair: (pair[0].over, _excess_ms(pair[0]))))
    if not shown:
        return []
    rows = [
        (
            name,
            *(_time(value) for value in (row.typical_ms, row.tail_ms, row.budget_ms)),
            "OVER" if row.over and not row.amber else "",
        )
        for row, name in shown
    ]
    metric = (report.verdict.metric or "e2e").upper()
    head = ("STAGE", "usual", f"near {metric} P{report.slo.percentile:g}", "budget", "")
    return table([head, *rows], "<>>><")


def _excess_ms(row: StageRow) -> float:
    """How much longer a stage takes in slow requests than in usual ones: what a short table is for."""
    return abs((row.tail_ms or 0.0) - (row.typical_ms or 0.0))


def instances_table(report: Report, most: int, width: int) -> list[str]:
    """Engine instances, the sick ones first."""
    shown = report.instances[: max(0, most)]
    if not shown:
        return []
    rows = [
        (f"  {cut(name, width - 50)}", *cells[:6], "SICK" if sick else "")
        for name, *cells, sick in map(instances.cells, shown)
    ]
    # What is left out where it does not fit: that a target is up, where all are, then the queue, which the stages have.
    spare = [*([1] if all(row[1] == "up" for row in rows) else []), 6]
    return fitted([("INSTANCE", *instances.HEAD[1:7], ""), *rows], "<<>>>>><", width, spare)


def latency_table(report: Report) -> list[str]:
    """Percentiles of each latency that has a limit."""
    limits, judged = report.slo.limits(), report.slo.percentile
    rows: list[tuple[str, ...]] = [("LATENCY", "P50", "P95", "P99", "limit", "")]
    for metric, limit in limits.items():
        stats: Percentiles = getattr(report.latency, f"{metric}_ms")
        if not stats.n:
            continue
        value = stats.at(judged)
        word = "" if value is None else "OVER" if value > limit else "ok"
        rows.append(
            (
                f"  {metric.upper()}",
                *(_time(one) for one in (stats.p50, stats.p95, stats.p99)),
                _time(limit),
                ""
                if report.goodput.own_limits or LABELS[report.verdict.status] == "UNKNOWN"
                else word,
            )
        )
    return table(rows, "<>>>><") if len(rows) > 1 else []


def _time(value_ms: float | None) -> str:
    return "-" if value_ms is None else say_ms(value_ms)


def _ruled_out(report: Report, width: int) -> list[str]:
    """What is not the cause, as many names as fit into a line."""
    names = dict.fromkeys(
        "time without spans" if one.what == OTHER else one.what.replace("_", " ")
        for one in report.verdict.ruled_out
    )
    text = ""
    for name in names:
        more = f"{text}, {name}" if text else f"the cause: {name}"
        if len(more) > width - INDENT:
            break
        text = more
    return labelled("NOT", text, width, 1)


def _more(report: Report, width: int) -> list[str]:
    """How to see the rest: a request of the cause, or of any finding."""
    cause = cause_of(report)
    traces = [trace for one in ([cause] if cause else []) for trace in one.exemplars[:1]]
    text = f"add --details (everything) or --trace {printable(traces[0], 32)}" if traces else ""
    return labelled("MORE", text or "add --details for everything", width, 2)


def painted(lines: list[str], report: Report) -> list[str]:
    """The lines with ANSI codes for labels and what is over its limit."""
    first = _RED if report.verdict.status in BAD else _GREEN
    painted = [re.sub(r"^[A-Z?]+( DATA)?(?= )", rf"{_BOLD}\g<0>{_PLAIN}", line) for line in lines]
    painted = [re.sub(r"(OVER|SICK)$", rf"{_RED}\g<0>{_PLAIN}", line) for line in painted]
    return [painted[0].replace(_BOLD, first, 1), *painted[1:]]
