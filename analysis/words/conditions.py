"""Does a condition hold for the facts of one case? A small language for tables of mechanisms: comparisons of named facts, joined by `and`, `or` and `not`.

    state = "at_ceiling" and not arrivals_grew
    hit_rate_now < 0.8 * hit_rate_before        (one side may be a number times a fact)

A fact is a number, a boolean, a text or None (unknown). The logic has three values as in SQL: a comparison with an unknown fact is unknown, `false and
unknown` is false, `true or unknown` is true. So a refuter that could not be tried never counts as tried. A table is checked where it is loaded: a name that
no fact has, or a text that cannot be read, is a `ConditionError` then.
"""

import functools
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne
from typing import Final

from overrun.analysis.words.errors import AnalysisError

Fact = float | bool | str | None
Facts = Mapping[str, Fact]
_Test = Callable[[Facts], bool | None]
_Value = Callable[[Facts], Fact]

_TOKEN: Final = re.compile(
    r'\s*(?:(?P<number>\d+(?:\.\d+)?)|"(?P<text>[^"]*)"|(?P<word>[a-z][a-z0-9_]*)|(?P<sign><=|>=|!=|[<>=()*]))'
)
_COMPARED: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}
_EQUAL: Final[dict[str, Callable[[object, object], bool]]] = {"=": eq, "!=": ne}
# Words of the language itself, which no fact may be named.
_WORDS: Final = ("and", "or", "not", "true", "false")


class ConditionError(AnalysisError):
    """A condition that cannot be read, or that names a fact which does not exist."""


@dataclass(frozen=True)
class Condition:
    """One condition: its text, the facts that it names, and its test."""

    text: str
    names: frozenset[str]
    _test: _Test

    def holds(self, facts: Facts) -> bool | None:
        """Return whether it holds; None where an unknown fact decides it."""
        return self._test(facts)

    def unknown(self, facts: Facts) -> list[str]:
        """Return the named facts that are unknown, by name."""
        return sorted(name for name in self.names if facts.get(name) is None)


@functools.cache
def condition(text: str, known: Collection[str] | None = None) -> Condition:
    """Return a condition of a text; with `known` (a frozenset or tuple) each name in it must be one of these facts.

    Raises:
        ConditionError: the text cannot be read, or names another fact.
    """
    reader = _Reader(text)
    test = reader.either()
    reader.expect_end()
    missing = sorted(reader.names - set(known)) if known is not None else []
    if missing:
        raise ConditionError(f"{text!r} names {missing[0]!r}, which is no fact")
    return Condition(text, frozenset(reader.names), test)


class _Reader:
    """Recursive descent over the tokens: or, and, not, comparison, value."""

    def __init__(self, text: str) -> None:
        self.text, self.names, self.at = text, set[str](), 0
        self.tokens: list[tuple[str, str]] = []
        end = 0
        while end < len(text.rstrip()):
            match = _TOKEN.match(text, end)
            if match is None:
                raise ConditionError(f"{text!r} cannot be read from {text[end:][:20]!r} on")
            kind = str(match.lastgroup)
            self.tokens.append((kind, match[kind]))
            end = match.end()

    def next(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def take(self, *wanted: str) -> str | None:
        """The next token's text, consumed, if it is one of these signs or words."""
        kind, text = self.next()
        if kind in ("sign", "word") and text in wanted:
            self.at += 1
            return text
        return None

    def expect_end(self) -> None:
        if self.at < len(self.tokens):
            raise ConditionError(f"{self.text!r} goes on with {self.next()[1]!r}")

    def either(self) -> _Test:
        parts = [self.every()]
        while self.take("or"):
            parts.append(self.every())
        return functools.partial(_joined, parts, True) if len(parts) > 1 else parts[0]

    def every(self) -> _Test:
        parts = [self.one()]
        while self.take("and"):
            parts.append(self.one())
        return functools.partial(_joined, parts, False) if len(parts) > 1 else parts[0]

    def one(self) -> _Test:
        if self.take("not"):
            return functools.partial(_negated, self.one())
        if self.take("("):
            inner = self.either()
            if not self.take(")"):
                raise ConditionError(f"{self.text!r} lacks a closing bracket")
            return inner
        left = self.value()
        sign = self.take(*_COMPARED, *_EQUAL)
        if sign is None:
            return functools.partial(_flag, left, self.text)
        return functools.partial(_compared, sign, left, self.value(), self.text)

    def value(self) -> _Value:
        kind, text = self.next()
        self.at += 1
        if kind == "number":
            if self.take("*"):
                return functools.partial(_scaled, float(text), self.value(), self.text)
            return functools.partial(_constant, float(text))
        if kind == "text":
            return functools.partial(_constant, text)
        if kind == "word" and text in ("true", "false"):
            return functools.partial(_constant, text == "true")
        if kind == "word" and text not in _WORDS:
            self.names.add(text)
            return functools.partial(_fact, text)
        raise ConditionError(f"{self.text!r} has {text!r} where a fact or a number belongs")


def _joined(parts: list[_Test], decisive: bool, facts: Facts) -> bool | None:
    """`or` with decisive=True, `and` with decisive=False."""
    results = [part(facts) for part in parts]
    if decisive in results:
        return decisive
    return None if None in results else not decisive


def _negated(part: _Test, facts: Facts) -> bool | None:
    result = part(facts)
    return None if result is None else not result


def _flag(value: _Value, text: str, facts: Facts) -> bool | None:
    result = value(facts)
    if result is None or isinstance(result, bool):
        return result
    raise ConditionError(f"{text!r} uses {result!r} as a condition: compare it with something")


def _compared(sign: str, left: _Value, right: _Value, text: str, facts: Facts) -> bool | None:
    one, other = left(facts), right(facts)
    if one is None or other is None:
        return None
    if sign in _EQUAL:
        return _EQUAL[sign](one, other)
    if isinstance(one, str) or isinstance(other, str):
        raise ConditionError(f"{text!r} compares a text by {sign}: texts are equal or not")
    return _COMPARED[sign](one, other)


def _constant(value: Fact, _facts: Facts) -> Fact:
    return value


def _fact(name: str, facts: Facts) -> Fact:
    return facts.get(name)


def _scaled(factor: float, value: _Value, text: str, facts: Facts) -> Fact:
    result = value(facts)
    if isinstance(result, str):
        raise ConditionError(f"{text!r} multiplies a text")
    return None if result is None else factor * result
