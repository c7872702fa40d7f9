"""In which words do mechanisms speak? A small language of conditions over facts: names, numbers, texts, comparisons, and, or, not, and four questions about sets.

It is parsed and its names and types are checked when the table of mechanisms is read; nothing of it is run as Python. A fact that could not be measured is
unknown (None), and so is a condition that hangs on it: neither holds nor refutes.
"""

from __future__ import annotations

import ast
import itertools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from overrun.analysis.words.errors import AnalysisError

Type = Literal["number", "text", "flag", "set", "by_kind"]
Value = float | str | bool | frozenset[str] | Mapping[str, float] | None
_COMPARE: Final[dict[type[ast.cmpop], Callable[[Any, Any], bool]]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_COUNT: Final[dict[type[ast.operator], Callable[[Any, Any], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}
# What can be asked of a set or of figures by kind: has(kinds, 'a', 'b') any of them; matches(names, 'pattern'); figure(gain, 'a'), 0 where there is none;
# is_one_of(where, 'a', 'b').
_ASKS: Final[dict[str, tuple[Type, Type]]] = {
    "has": ("set", "flag"),
    "matches": ("set", "flag"),
    "figure": ("by_kind", "number"),
    "is_one_of": ("text", "flag"),
}


class MechanismError(AnalysisError):
    """A condition of a mechanism that is none: what is wrong, and in which words."""


class Condition:
    """A checked condition over facts."""

    def __init__(self, text: str, facts: Mapping[str, Type]) -> None:
        self.text = text
        try:
            self._tree = ast.parse(text, mode="eval").body
        except SyntaxError as error:
            raise MechanismError(f"{text!r}: {error.msg}") from error
        found = _type(self._tree, facts, text)
        if found != "flag":
            raise MechanismError(f"{text!r} is a {found}, wanted a condition")

    def holds(self, facts: Mapping[str, Value]) -> bool | None:
        """Whether it holds, None where a fact that decides it is unknown."""
        found = _value(self._tree, facts)
        return found if found is None else bool(found)

    def names(self) -> set[str]:
        """The facts that it asks for."""
        return {
            node.id
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Name) and node.id not in _ASKS
        }


def _type(node: ast.expr, facts: Mapping[str, Type], text: str) -> Type:
    """The type of an expression.

    Raises:
        MechanismError: an unknown name, a form that the language does not have, or types that do not fit.
    """
    match node:
        case ast.Constant(value=bool()):
            return "flag"
        case ast.Constant(value=int() | float()):
            return "number"
        case ast.Constant(value=str()):
            return "text"
        case ast.Name(id=name) if name in facts:
            return facts[name]
        case ast.Name(id=name):
            raise MechanismError(f"{text!r}: no fact is named {name}; there are {', '.join(facts)}")
        case ast.BoolOp(values=values):
            return _all(values, "flag", "flag", facts, text)
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return _all([inner], "flag", "flag", facts, text)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _COUNT:
            return _all([left, right], "number", "number", facts, text)
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            type(op) in _COMPARE for op in ops
        ):
            equal = all(isinstance(op, ast.Eq | ast.NotEq) for op in ops)
            of_text = equal and _type(left, facts, text) == "text"
            return _all([left, *others], "text" if of_text else "number", "flag", facts, text)
        case ast.Call(func=ast.Name(id=ask), args=[first, *rest], keywords=[]) if ask in _ASKS:
            wanted, gives = _ASKS[ask]
            _all([first], wanted, wanted, facts, text)
            if not rest or not all(isinstance(one, ast.Constant) for one in rest):
                raise MechanismError(f"{text!r}: {ask} wants texts behind its first word")
            return _all(rest, "text", gives, facts, text)
    raise MechanismError(f"{text!r}: conditions have no {type(node).__name__}")


def _all(
    nodes: list[ast.expr], wanted: Type, gives: Type, facts: Mapping[str, Type], text: str
) -> Type:
    for node in nodes:
        found = _type(node, facts, text)
        if found != wanted:
            raise MechanismError(f"{text!r}: {ast.unparse(node)} is a {found}, wanted a {wanted}")
    return gives


def _value(node: ast.expr, facts: Mapping[str, Value]) -> Any:
    """The value of a checked expression; None is unknown, and `and` and `or` know what one side decides."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return facts.get(name)
        case ast.BoolOp(op=op, values=values):
            decides = isinstance(op, ast.Or)
            found = [_value(one, facts) for one in values]
            if any(one is decides for one in found):
                return decides
            return None if None in found else not decides
        case ast.UnaryOp(operand=inner):
            held = _value(inner, facts)
            return None if held is None else not held
        case ast.BinOp(left=left, op=op, right=right):
            sides = _value(left, facts), _value(right, facts)
            return None if None in sides else _COUNT[type(op)](*sides)
        case ast.Compare(left=left, ops=ops, comparators=others):
            values_ = [_value(one, facts) for one in (left, *others)]
            if None in values_:
                return None
            pairs = itertools.pairwise(values_)
            return all(_COMPARE[type(op)](*pair) for op, pair in zip(ops, pairs, strict=True))
        case ast.Call(func=ast.Name(id=ask), args=[first, *rest]):
            return _asked(ask, _value(first, facts), [_value(one, facts) for one in rest])
    raise MechanismError(f"{ast.unparse(node)} was not checked")


def _asked(ask: str, of: Any, words: list[str]) -> Any:
    if of is None:
        return None
    if ask == "matches":
        return any(re.search(word, one, re.I) for word in words for one in of)
    if ask == "figure":
        return sum(of.get(word, 0.0) for word in words)
    if ask == "has":
        return any(word in of for word in words)
    return of in words
