"""Which fixes can be asked for, and with what? Lists the folder `fixes/`, reads parameters as texts, and calls the fix.

A fix is a file of that folder with `predict(facts, *, parameter: Annotated[type, Meta(...)] = default, ...) -> Prediction`: the signature is the one
description of its parameters, for the command line, the API and the rules.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import msgspec

from overrun.analysis.whatif import fix_pages
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Prediction, WhatIfError
from overrun.analysis.words.errors import nearest


@dataclass(frozen=True)
class Parameter:
    """One parameter of a fix: its name, the plain type of its values, what it means, its default (`required` without one), and between which values it lies;
    None where nothing limits it. `open_ends` names those of `least` and `most` that it cannot take itself."""

    name: str
    kind: type
    help: str
    default: Any
    required: bool
    least: float | None = None
    most: float | None = None
    open_ends: tuple[str, ...] = ()


def within(
    value: float, least: float | None, most: float | None, open_ends: Collection[str]
) -> bool:
    """Return whether a number lies within limits; None is no limit."""
    low = least is None or value > least or (value == least and "least" not in open_ends)
    high = most is None or value < most or (value == most and "most" not in open_ends)
    return low and high


@functools.cache
def fixes() -> dict[str, ModuleType]:
    """Return every fix by its id, in alphabetical order."""
    return {
        name: importlib.import_module(f"overrun.analysis.whatif.fixes.{name}")
        for name in fix_pages.pages()
    }


def find(fix: str) -> ModuleType:
    """Return the module of a fix; `-` and `_` are the same.

    Raises:
        WhatIfError: there is none, with the nearest one.
    """
    name = fix_pages.named(fix)
    if name is None:
        raise WhatIfError(fix_pages.unknown(fix))
    return fixes()[name]


def summary(fix: str) -> str:
    """Return the question that a fix answers: the first sentence of its page."""
    return (find(fix).__doc__ or "").split("?")[0].replace("\n", " ").strip() + "?"


def parameters(fix: str) -> list[Parameter]:
    """Return what a fix may be given, in the order of its signature."""
    signature = inspect.signature(find(fix).predict)
    hints = typing.get_type_hints(find(fix).predict, include_extras=True)
    found = []
    for name, given in list(signature.parameters.items())[1:]:
        meta = next(
            (m for m in getattr(hints[name], "__metadata__", ()) if isinstance(m, msgspec.Meta)),
            msgspec.Meta(),
        )
        required = given.default is inspect.Parameter.empty
        found.append(
            Parameter(
                name,
                _plain(hints[name]),
                meta.description or "",
                None if required else given.default,
                required,
                *_limits(hints[name]),
            )
        )
    return found


def _limits(hint: Any) -> tuple[float | None, float | None, tuple[str, ...]]:
    """The limits of a number, wherever in its annotation they stand."""
    least: float | None = None
    most: float | None = None
    open_ends: list[str] = []
    waiting = [hint]
    while waiting:
        one = waiting.pop()
        waiting += [part for part in typing.get_args(one) if not isinstance(part, msgspec.Meta)]
        for meta in getattr(one, "__metadata__", ()):
            if not isinstance(meta, msgspec.Meta):
                continue
            for end, closed, opened in (("least", meta.ge, meta.gt), ("most", meta.le, meta.lt)):
                value = closed if closed is not None else opened
                if value is None:
                    continue
                least, most = (float(value), most) if end == "least" else (least, float(value))
                open_ends += [end] if closed is None else []
    return least, most, tuple(open_ends)


def _plain(hint: Any) -> type:
    """The type a value has when it is given: `Annotated[int, ...] | None` is an int, a Literal a str."""
    if typing.get_origin(hint) is typing.Annotated:
        return _plain(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return _plain(next(part for part in typing.get_args(hint) if part is not type(None)))
    if typing.get_origin(hint) is typing.Literal:
        return str
    return hint if isinstance(hint, type) else str


@functools.cache
def _struct(fix: str) -> type[msgspec.Struct]:
    predict = find(fix).predict
    hints = typing.get_type_hints(predict, include_extras=True)
    fields: list[Any] = []
    for name, given in list(inspect.signature(predict).parameters.items())[1:]:
        fields.append(
            (name, hints[name])
            if given.default is inspect.Parameter.empty
            else (name, hints[name], given.default)
        )
    return msgspec.defstruct(f"{fix}_parameters", fields, kw_only=True, forbid_unknown_fields=True)


def read(fix: str, texts: Mapping[str, str | None]) -> dict[str, Any]:
    """Read a fix's parameters from texts (flags, query); None and empty ones count as not given.

    Raises:
        WhatIfError: a parameter that the fix does not have or lacks, or a value that it cannot take.
    """
    fix = find(fix).__name__.rpartition(".")[2]
    known = {parameter.name: parameter for parameter in parameters(fix)}
    given = {name.replace("-", "_"): text for name, text in texts.items() if text not in (None, "")}
    for name in given:
        if name not in known:
            raise WhatIfError(
                f"{fix} has no parameter {name[:64]!r}: "
                + (nearest(name, known) if known else "it takes none")
            )
    missing = [p for p in known.values() if p.required and p.name not in given]
    if missing:
        raise WhatIfError(f"{fix} needs {missing[0].name}: {missing[0].help}")
    try:
        values = msgspec.convert(given, _struct(fix), strict=False)
    except msgspec.ValidationError as error:
        message = str(error)
        name = message.rpartition("$.")[2].strip("`") if "$." in message else ""
        shown = f"{name} {str(given.get(name))[:32]!r}" if name in given else "a parameter"
        raise WhatIfError(
            f"{fix}: {shown} is not accepted ({message.partition(' - ')[0]}): {known[name].help if name in known else ''}".strip()
        ) from None
    return {name: getattr(values, name) for name in known}


def ask(facts: Facts, fix: str, texts: Mapping[str, str | None]) -> Prediction:
    """Read the parameters and answer.

    Raises:
        WhatIfError: as `find` and `read`.
    """
    answer: Prediction = find(fix).predict(facts, **read(fix, texts))
    return answer
