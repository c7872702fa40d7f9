"""What does an engineer on call need first? What is slow, why, what to do, what that gains and how sure it is, on at most 25 lines of 80 columns.

The whole report is `report_document`. Colour is added last and only on request, so that widths are counted without it.
"""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from overrun.analysis.evidence import instances
from overrun.analysis.front.document import Cell, Figure, Line, Table
from overrun.analysis.front.explanation_lines import explained, said_of
from overrun.analysis.front.report import Report, leading, seeking
from overrun.analysis.front.report_document import BAD, moment, say_change, shown_stages
from overrun.analysis.front.text_layout import cut, grid, lines
from overrun.analysis.front.window_numbers import said_of_sample
from overrun.analysis.incident.limit_fit import say_unfit, say_usual
from overrun.analysis.numbers.latency.percentiles import Percentiles
from overrun.analysis.numbers.stages import headroom
from overrun.analysis.numbers.stages.budget import OTHER, StageRow
from overrun.analysis.words.finding import (
    FINDING_CAUSES,
    Finding,
    Fix,
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
# A route with this share of the bad requests is the one that is slow; own default.
_ONE_ROUTE: Final = 0.9
_MOST_ROWS: Final = 6
# Lines that each label of an explanation takes at most: with the tables left out all fit on the screen.
_MOST_OF: Final = {"WHERE": 3, "WHAT": 3, "CHANGED": 1, "CAUSE": 2, "DO": 2, "NOT": 1}
_LEAST_ROWS: Final = 3
# Shorter words carry no meaning ("at", "out", "the"); own default.
_MEANING: Final = 5
# The end of a sentence; what a long one can be cut before.
_SENTENCE: Final = re.compile(r"[.!?](?= |$)")
_CLAUSE: Final = re.compile(r"[,;] | (?:and|but|if|because) ")
_CUT: Final = " ..."
_RED, _GREEN, _BOLD, _PLAIN = "\x1b[1;31m", "\x1b[1;32m", "\x1b[1m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that the answer advises: its id, its sentence, and the fix that it is, where it is one."""

    id: str
    text: str
    fix: Fix | None = None

    def tried(self, source: str, again: str) -> str:
        """The command that asks what the step would gain; empty where no what-if can be asked."""
        if self.fix is None or self.fix.whatif is None:
            return ""
        given = "".join(
            f" --{name.replace('_', '-')} {shlex.quote(value if isinstance(value, str) else f'{value:.10g}')}"
            for name, value in self.fix.parameters.items()
        )
        return f"overrun whatif {self.id.replace('_', '-')}{source}{given}{again}"


def render(
    report: Report, *, width: int = 80, colour: bool = False, source: str = "", again: str = ""
) -> str:
    """Return the report's answer as plain text of at most 25 lines and `width` (72 to 100) columns; a command that is longer takes further ones.

    `colour` marks labels and what is over its limit with ANSI codes. `source` and `again` are what a command needs to ask about the same requests.
    """
    width = min(max(width, WIDTHS[0]), WIDTHS[1])
    head, *parts = [
        [line for one in part for whole in lines(one, width) for line in _typed(whole, width)]
        for part in _answer(report, source, again)
    ]
    answer = [line for part in parts for line in part]
    hit = lines(labelled("HIT", hit_words(report), 2), width)
    last = [*([] if leading(report) else [_ruled_out(report, width)]), _more(report)]
    end = [line for one in last for line in lines(one, width)]
    most = MOST_LINES + sum(line.endswith(" \\") for line in answer)
    left = most - len([*head, *answer, *hit, *end])
    # Three empty lines stand between the blocks, unless the tables need their place.
    both = _LEAST_ROWS + 1 + len(grid(latency_table(report), width))
    tables = _tables(report, max(left - 3, min(left, both)), width)
    blocks = [head, [*answer, *hit], tables, end]
    made = [line for block in blocks if block for line in ("", *block)][1:]
    while len(made) > most and "" in made:
        del made[len(made) - 1 - made[::-1].index("")]
    made = [cut(line, width) for line in made[:most]]
    return "\n".join(painted(made, report) if colour else made)


def _typed(line: str, width: int) -> list[str]:
    """A line; of a command that is longer than `width` as many as it takes, as a shell goes on behind a backslash."""
    whole = re.sub(r"'[^']*'", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), line)
    hang = " " * (INDENT + 2)
    *first, last = (
        textwrap.wrap(
            whole, width - 2, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False
        )
        if len(line) > width
        else [whole]
    )
    return [
        one.replace("\N{NO-BREAK SPACE}", " ") for one in (*(f"{one} \\" for one in first), last)
    ]


def to_json(report: Report, *, source: str = "", again: str = "") -> str:
    """Return the fields of the answer as one JSON object of texts; null where there is nothing to say."""
    verdict, cause = report.verdict, cause_of(report)
    advised = verdict.mitigation is not None
    advice = steps(report)
    fields: dict[str, object] = {
        "status": verdict.status,
        "slow": subject(report),
        "why": why_words(report),
        "do": [one.text for one in advice],
        "try": [one.tried(source, again) or None for one in advice],
        "undo": verdict.rollback,
        "gain": gain_words(report, cause) if cause is not None and advised else None,
        "sure": sure_words(report, cause),
        "hit": hit_words(report),
        "cause": verdict.cause,
        "stage": verdict.stage,
        "onset": verdict.onset.isoformat() if verdict.onset else None,
        "trace": cause.exemplars[0] if cause is not None and cause.exemplars else None,
    }
    if report.explanation is not None:
        fields["explanation"] = said_of(report.explanation)
    shown = {name: None if value == "" else value for name, value in fields.items()}
    return json.dumps(shown, indent=1, ensure_ascii=False)


def summary(report: Report, *, width: int = 80, colour: bool = False) -> str:
    """Return what is slow, why, what to do, what that gains and how sure it is, each on one line of at most `width` (72 to 100) columns."""
    width = min(max(width, WIDTHS[0]), WIDTHS[1])
    verdict, cause = report.verdict, cause_of(report)
    said = {
        "WHY": verdict.why or verdict.sentence,
        "DO": verdict.mitigation or verdict.reasons.get("mitigation") or "",
        "GAIN": gain_words(report, cause) if cause is not None else "",
        "SURE?": sure_words(report, cause),
    }
    first = _subject(report)
    if (found := leading(report)) is not None:
        first, said = headline(report), explained(found)
    fields = {LABELS[verdict.status]: first, **said}.items()
    made = [f"{label:{INDENT}}{one_line(text, width - INDENT)}" for label, text in fields if text]
    return "\n".join(painted(made, report) if colour else made)


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


def _answer(report: Report, source: str, again: str) -> list[list[Line]]:
    """What is slow, why, what to do, what it gains, how sure it is."""
    verdict, cause = report.verdict, cause_of(report)
    said = say_unfit(report.unfit, report.slo) if report.unfit else ""
    said = said if report.slo.given else say_usual(report.slo)
    first = [labelled("LIMIT", said, 3)] if said else []
    parts = [
        [*first, labelled(LABELS[verdict.status], headline(report), 3)],
        *_reasons(report, cause),
        _commands(steps(report), source, again),
    ]
    if verdict.status in ("within_budget", "possibly_over_budget") and report.headroom:
        parts.append([labelled("HEADROOM", f"{headroom.said(report.headroom)}.", 3)])
    known = cause is not None and leading(report) is None
    parts.append([labelled("SURE?" if known else "DATA", sure_words(report, cause), 3)])
    return parts


def headline(report: Report) -> str:
    """What is slow: what is judged with its limit, and the sentence of the explanation, where there is one."""
    found = leading(report)
    if found is None or not found.sentence:
        return subject(report)
    return f"{_subject(report)}. {found.sentence}"


def _reasons(report: Report, cause: Finding | None) -> list[list[Line]]:
    """Why, and what to do: the explanation, or the verdict where there is none."""
    verdict = report.verdict
    if (found := leading(report)) is not None:
        return [
            [labelled(label, words, _MOST_OF[label])] for label, words in explained(found).items()
        ]
    why = "WHY" if verdict.status in BAD or verdict.why else ""
    parts = [[labelled(why, why_words(report), 4)]]
    if verdict.mitigation is not None:
        parts.append(_steps(report))
    if cause is not None and "mitigation" not in verdict.reasons:
        parts.append([labelled("GAIN", gain_words(report, cause), 2)])
    return parts


def why_words(report: Report) -> str:
    """Why requests are slow, and what else began at the onset."""
    verdict = report.verdict
    said = verdict.sentence.removeprefix(say_unfit(report.unfit, report.slo)).strip()
    began = [f"Changed at the onset: {say_change(one)}." for one in verdict.changed[:1]]
    text = " ".join([verdict.why or said, *began])
    if not verdict.why and seeking(report) and verdict.status in BAD:
        return f"{text} {FINDING_CAUSES[0].upper()}{FINDING_CAUSES[1:]}."
    return text


def labelled(label: str, text: str, most: int) -> Line:
    """A text behind its label, of at most so many lines."""
    return Line((text,), f"{label:{INDENT - 1}}", hang=INDENT, most=most)


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
    which = "limit" if slo.given else "usually up to"
    held = f", {which} {say_ms(limit)}" if limit is not None else ""
    held = ", limits by request" if report.goodput.own_limits else held
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


def cause_of(report: Report) -> Finding | None:
    """The finding that the verdict names as the cause."""
    return next((one for one in report.findings if one.rule == report.verdict.cause), None)


def _steps(report: Report) -> list[Line]:
    """What to do at once, what for good, and how to undo it."""
    verdict = report.verdict
    first, *rest = (one.text for one in steps(report))
    again = verdict.recheck_after_s
    undo = [
        f"Undo: {verdict.rollback}" if verdict.rollback else "",
        f"Look again after {again / 60:.0f} min." if again else "",
    ]
    return [
        labelled("DO", f"1. {first}" if rest else first, 3),
        *(labelled("", f"{at}. {step}", 2) for at, step in enumerate(rest, start=2)),
        labelled("", " ".join(part for part in undo if part), 2),
    ]


def steps(report: Report) -> list[Step]:
    """What is advised, in the order in which it is printed: of the explanation, else what to do at once and the fix of the cause where that is another step."""
    verdict, cause = report.verdict, cause_of(report)
    if (found := leading(report)) is not None:
        name = found.mechanism.id if found.mechanism else "explanation"
        undo = [Step("undo", found.advice.undo)] if found.advice.undo else []
        return [*undo, *(Step(name, text) for text in found.advice.do)]
    if verdict.mitigation is None:
        return []
    owner = f" (owner: {verdict.owner})" if verdict.owner else ""
    text = f"{verdict.mitigation.rstrip('.')}.{owner}"
    fix = cause.fix if cause is not None else None
    if fix is None:
        return [Step(verdict.cause or "stopgap", text)]
    own = fix.whatif or fix.id
    if _repeats(fix.title, text):
        return [Step(own, f"{text} (fix: {own})", fix)]
    title = f"{fix.title.rstrip('.')}. (fix: {own})"
    return [Step(verdict.cause or "stopgap", text), Step(own, title, fix)]


def _commands(advised: Sequence[Step], source: str, again: str) -> list[Line]:
    """How to try what can be tried, and how to record which step was made."""
    tried = [one.tried(source, again) for one in advised]
    made = [Line((text,), f"{'TRY':{INDENT - 1}}", copied=True) for text in tried if text]
    if advised:
        others = "".join(f" or {number}" for number in range(2, len(advised) + 1))
        text = f"overrun fix apply 1{source}{again}{f'  #{others}' if others else ''}"
        made.append(Line((text,), f"{'DONE':{INDENT - 1}}", copied=True))
    return made


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
    if cause is not None and leading(report) is None:
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
        parts[-1] += f" since {moment(onset, report)}{trend}"
    if not _route(report) and affected.routes:
        shares = (
            f"{printable(one.name, 30)} {say_ratio(one.ratio)}" for one in affected.routes[:2]
        )
        parts.append("; ".join(shares))
    return f"{', '.join(parts)}."


def _tables(report: Report, free: int, width: int) -> list[str]:
    """The stages (or the instances, where no request is known) and the latencies, as far as `free` lines hold them."""
    latency = grid(latency_table(report), width)
    most = min(_MOST_ROWS + 1, free - len(latency) if free - len(latency) > _LEAST_ROWS else free)
    where = grid(stages_table(report, most - 1), width)
    where = where or grid(instances_table(report, most - 1, width), width)
    return [*where, *(latency if len(where) + len(latency) <= free else [])]


def stages_table(report: Report, most: int) -> Table:
    """The stages that take time, at most so many, those that differ most: usual, near the percentile, and allowed."""
    slowest = max((row.tail_ms or 0.0 for row in report.stages), default=0.0)
    shown = [pair for pair in shown_stages(report.stages, slowest) if pair[0].tail_ms is not None]
    while len(shown) > max(0, most):
        shown.remove(min(shown, key=lambda pair: (pair[0].over, _excess_ms(pair[0]))))
    rows = [
        (
            name,
            *map(Figure, (row.typical_ms, row.tail_ms, row.budget_ms)),
            "OVER" if row.over and not row.amber else "",
        )
        for row, name in shown
    ]
    metric = (report.verdict.metric or "e2e").upper()
    head = ("STAGE", "usual", f"near {metric} P{report.slo.percentile:g}", "budget", "")
    return Table(head, rows, "<>>><")


def _excess_ms(row: StageRow) -> float:
    """How much longer a stage takes in slow requests than in usual ones: what a short table is for."""
    return abs((row.tail_ms or 0.0) - (row.typical_ms or 0.0))


def instances_table(report: Report, most: int, width: int) -> Table:
    """Engine instances, the sick ones first."""
    rows = [
        (f"  {cut(name, width - 50)}", *cells[:6], "SICK" if sick else "")
        for name, *cells, sick in map(instances.cells, report.instances[: max(0, most)])
    ]
    # What is left out where it does not fit: that a target is up, where all are, then the queue, which the stages have.
    spare = [*([1] if all(row[1] == "up" for row in rows) else []), 6]
    return Table(("INSTANCE", *instances.HEAD[1:7], ""), rows, "<<>>>>><", spare=spare)


def latency_table(report: Report) -> Table:
    """Percentiles of each latency that has a limit."""
    judged, rows = report.slo.percentile, list[tuple[Cell, ...]]()
    unjudged = report.goodput.own_limits or LABELS[report.verdict.status] == "UNKNOWN"
    for metric, limit in report.slo.limits().items():
        stats: Percentiles = getattr(report.latency, f"{metric}_ms")
        value = stats.at(judged)
        word = "" if value is None or unjudged else "OVER" if value > limit else "ok"
        if stats.n:
            figures = map(Figure, (stats.p50, stats.p95, stats.p99, limit))
            rows.append((f"  {metric.upper()}", *figures, word))
    return Table(("LATENCY", "P50", "P95", "P99", "limit", ""), rows, "<>>>><")


def _ruled_out(report: Report, width: int) -> Line:
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
    return labelled("NOT", text, 1)


def _more(report: Report) -> Line:
    """How to see the rest: a request of the cause, or of any finding."""
    cause = cause_of(report)
    trace = cause.exemplars[0] if cause is not None and cause.exemplars else None
    one = f"add --details (everything) or --trace {printable(trace, 32)}" if trace else ""
    return labelled("MORE", one or "add --details for everything", 2)


def painted(made: list[str], report: Report) -> list[str]:
    """The lines with ANSI codes for labels and what is over its limit."""
    first = _RED if report.verdict.status in BAD else _GREEN
    shown = [re.sub(r"^[A-Z?]+( DATA)?(?= )", rf"{_BOLD}\g<0>{_PLAIN}", line) for line in made]
    shown = [re.sub(r"(OVER|SICK)$", rf"{_RED}\g<0>{_PLAIN}", line) for line in shown]
    return [shown[0].replace(_BOLD, first, 1), *shown[1:]]
