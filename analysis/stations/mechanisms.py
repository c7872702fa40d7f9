"""Which known mechanism fits a state, which are excluded, and what should be done or left? The table `mechanisms.toml`, checked as it is read."""

from __future__ import annotations

import functools
import string
import tomllib
from importlib import resources
from typing import Final

import msgspec

from overrun.analysis.stations.facts import NAMES
from overrun.analysis.words.conditions import ConditionError, Facts, condition
from overrun.analysis.words.explanation import Advice, Mechanism, RefutedMechanism

# Texts may say these beside the facts: the same figure in another unit.
_SHOWN: Final = frozenset({"clock_mhz_now", "clock_mhz_before"})
# A mechanism that nothing could refute stays here; each refuter that was tried raises it, all of them to this much more. Own defaults: three wrong
# names in a hundred blind incidents would be as many as are allowed.
_UNTRIED: Final = 0.5
_ALL_TRIED: Final = 0.4


class _Sentence(msgspec.Struct, forbid_unknown_fields=True, rename={"when": "if"}):
    text: str
    when: str = "true"


class _Refuter(msgspec.Struct, forbid_unknown_fields=True, rename={"when": "if"}):
    test: str
    when: str
    figure: str


class Row(msgspec.Struct, forbid_unknown_fields=True):
    """One row of the table. `most` is the highest confidence: less where what is needed happens beside the cause and is not the cause itself."""

    id: str
    states: list[str]
    needs: str
    words: str
    refuted: list[_Refuter]
    do: list[_Sentence]
    samples: str
    untested: str = ""
    most: float = 0.9


class Table(msgspec.Struct, forbid_unknown_fields=True):
    """The whole table."""

    mechanism: list[Row]
    look: list[_Sentence]
    avoid: list[_Sentence]


@functools.cache
def table() -> Table:
    """Return the table.

    Raises:
        msgspec.ValidationError: a key that it does not have, or a value of another type.
        ConditionError: a condition that cannot be read, or a condition or text with a name that is no fact.
    """
    text = resources.files(__package__).joinpath("mechanisms.toml").read_text(encoding="utf-8")
    made = msgspec.convert(tomllib.loads(text), Table)
    for row in made.mechanism:
        condition(row.needs, NAMES)
        _check([row.words, *(one.figure for one in row.refuted)], [one.when for one in row.refuted])
    for one in [sentence for row in made.mechanism for sentence in row.do] + made.look + made.avoid:
        _check([one.text], [one.when])
    return made


def _check(texts: list[str], conditions: list[str]) -> None:
    for text in conditions:
        condition(text, NAMES)
    for text in texts:
        for _, name, _, _ in string.Formatter().parse(text):
            if name is not None and name not in NAMES | _SHOWN:
                raise ConditionError(f"{text!r} names {name!r}, which is no fact")


def mechanism_of(facts: Facts) -> tuple[Mechanism | None, list[RefutedMechanism], Row | None]:
    """Return the first mechanism that fits with its row, and those before it whose needs hold and which one of their tests excludes."""
    refuted: list[RefutedMechanism] = []
    for row in table().mechanism:
        if facts["state"] not in row.states or not condition(row.needs, NAMES).holds(facts):
            continue
        tried = [(one, condition(one.when, NAMES).holds(facts)) for one in row.refuted]
        against = next((one for one, holds in tried if holds), None)
        if against is not None:
            figure = _said(against.figure, facts)
            refuted.append(
                RefutedMechanism(id=row.id, words=_said(row.words, facts), figure=figure)
            )
            continue
        known = [one.test for one, holds in tried if holds is not None]
        part = len(known) / len(row.refuted) if row.refuted else 0.0
        made = Mechanism(
            id=row.id,
            words=_said(row.words, facts),
            confidence=min(_UNTRIED + _ALL_TRIED * part, row.most),
            refuted=known,
            untested=[row.untested] if len(known) < len(row.refuted) and row.untested else [],
        )
        return made, refuted, row
    return None, refuted, None


def advice_of(facts: Facts, row: Row | None, undo: str | None) -> Advice:
    """Return what to do where a mechanism fits, what to look at instead where none does, and what not to do."""
    do = [] if row is None else _first(row.do, facts)
    look = [] if do else _first(table().look, facts)
    avoid = [
        _said(one.text, facts) for one in table().avoid if condition(one.when, NAMES).holds(facts)
    ]
    reasons = {} if undo else {"undo": "no restart or new version is beside the onset"}
    return Advice(do=do, undo=undo, look=look, avoid=avoid, reasons=reasons)


def _first(sentences: list[_Sentence], facts: Facts) -> list[str]:
    return next(
        ([_said(one.text, facts)] for one in sentences if condition(one.when, NAMES).holds(facts)),
        [],
    )


def _said(text: str, facts: Facts) -> str:
    """The text with its figures; an unknown one is said so."""
    values = dict(facts)
    for name in ("now", "before"):
        hertz = facts.get(f"clock_hz_{name}")
        values[f"clock_mhz_{name}"] = hertz / 1e6 if isinstance(hertz, float) else None
    return _Formatter().format(text, **values)


class _Formatter(string.Formatter):
    def format_field(self, value: object, format_spec: str) -> str:
        return (
            "an unknown number" if value is None else str(super().format_field(value, format_spec))
        )
