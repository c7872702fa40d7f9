"""How are places, regularities and changes said? Plain sentences without a full stop; names come from senders and are made printable."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from overrun.analysis.contrast.changes import Moved
from overrun.analysis.contrast.facts import At
from overrun.analysis.contrast.fit import Term
from overrun.analysis.contrast.read import Spans
from overrun.analysis.contrast.segments import BEFORE, WHERES
from overrun.analysis.words.explanation import Change
from overrun.analysis.words.finding import printable, say_ms
from overrun.collector.normalise.stages import STAGES

_WHOSE: Final = {
    "root": "of the request",
    "parent": "of its parent",
    "call": "of its model call",
    "next": "of what comes next",
    "previous": "of what came before",
    "request within": "of the call within it",
}
_PRIVATE: Final = re.compile(r"\[text: (\d+) characters, ([0-9a-f]{4})[0-9a-f]*\]")
_FROM: Final = re.compile(r"^time (>|<=) ([\d.e+]+)$")
_NAMES_SHOWN: Final = 80


def stage_of(at: At) -> str:
    """The stage of a place."""
    return STAGES[int(at.key[5])]


def place_words(spans: Spans, at: At, metric: str) -> str:
    """A place as a person reads it: `POST points/search in articles-chat`, `the queue of llm_request in vllm-server`."""
    service = printable(spans.services[at.key[0]], _NAMES_SHOWN)
    name = printable(spans.operations[at.key[1]], _NAMES_SHOWN)
    beside = printable(spans.operations[at.key[3]], _NAMES_SHOWN) if at.key[3] >= 0 else ""
    where, side = WHERES[at.key[2]], int(at.key[4])
    if where == "edge":
        to = edge(spans, at)[1]
        if side == BEFORE:
            return f"{name} in {service}, before {beside}{_in(to, service)} begins"
        return f"{name} in {service}, after {beside}{_in(to, service)} has ended"
    if where in ("before", "after"):
        return f"{name} in {service}, its own time {where} {beside}"
    if where == "between":
        return f"{name} in {service}, its own time between calls, before {beside}"
    if where == "after_first_token" and metric == "ttft":
        return (
            f"between the first token of {name} in {service} and the first one that its client gets"
        )
    part = {
        "queue": "the queue of ",
        "to_first_token": "the first token of ",
        "after_first_token": "writing the answer in ",
        "transfer": "the KV transfer of ",
    }.get(where, "")
    return f"{part}{name} in {service}"


def _in(to: str | None, service: str) -> str:
    return (
        f" in {printable(to, _NAMES_SHOWN)}"
        if to and printable(to, _NAMES_SHOWN) != service
        else ""
    )


def edge(spans: Spans, at: At) -> tuple[str | None, str | None]:
    """The services at both ends of a way, None where the place is none."""
    if WHERES[at.key[2]] != "edge":
        return None, None
    return spans.services[at.key[0]], spans.services[at.key[6]] if at.key[6] >= 0 else None


def trait_words(text: str) -> str:
    """A trait in words: whose attribute it is stands behind it."""
    text = _PRIVATE.sub(r"a text of \1 characters (\2)", text)
    prefix = ""
    for word in ("first of ", "silence of ", "age of ", "another ", "not ", "number of "):
        if text.startswith(word):
            prefix, text = prefix + word, text[len(word) :]
    for word, whose in _WHOSE.items():
        if text.startswith(f"{word} "):
            key, _, rest = text[len(word) + 1 :].partition(" ")
            text = f"{key} {whose} {rest}".strip()
            break
    return printable(prefix + text.replace("resource.", ""), 120)


def term_words(term: Term, origin_s: float, late: tuple[int, int], others: tuple[int, int]) -> str:
    """A term as a regularity: what parts late ones, and on how many of both sides it holds."""
    within = f", of those with {_clocked(term.within, origin_s)}" if term.within else ""
    if term.candidate.form == "line":
        grows = "longer" if term.apart_ms > 0.0 else "shorter"
        return (
            f"{say_ms(abs(term.apart_ms))} {grows} for each 1 of {trait_words(term.name)}{within}"
        )
    return (
        f"{_clocked(term.text, origin_s)}: {late[0]:,} of {late[1]:,} late, {others[0]:,} of {others[1]:,} others; "
        f"{say_ms(term.apart_ms)} apart{within}"
    )


def _clocked(text: str, origin_s: float) -> str:
    """A trait in words; of the time, the clock."""
    found = _FROM.match(text)
    if found is None:
        return trait_words(text)
    at = datetime.fromtimestamp(origin_s + float(found[2]), tz=UTC)
    return f"{'since' if found[1] == '>' else 'until'} {at:%H:%M:%S}"


def change(one: Moved) -> Change:
    """A change as the answer has it."""
    where = f"{printable(one.operation)} in {printable(one.service)}"
    what = where if one.key == "operation" else f"{printable(one.key)} of {where}"
    before, after = _value(one.before), _value(one.after)
    reasons = {} if before else {"before": "it is new"}
    return Change(
        what=what, before=before, after=after, reasons=reasons if after else {"after": "it is gone"}
    )


def _value(text: str | None) -> str | None:
    return (
        None if text is None else printable(_PRIVATE.sub(r"a text of \1 characters (\2)", text), 80)
    )
