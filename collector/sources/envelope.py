"""Where in a document are its rows? Lists of objects anywhere, with what stands around them, in the order of how deep they lie.

Pairs of a key and a value become an object, columns beside one another become rows, and objects under their own ids are a list. Nothing is known of any sender.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

_KEYS: Final = ("key", "Key", "name", "field", "k")
_VALUES: Final = ("value", "Value", "v")
_PAIR_KEYS: Final = 3  # a key, a value and its type
_DEEPEST: Final = 8
_LOOKED_AT: Final = 50  # elements of a list by which it is known
_MOST_LISTS: Final = 200  # of one document


@dataclass(frozen=True, slots=True)
class Listed:
    """The rows of one list: where it lies, as a JSON path, and its objects, which have inherited the plain fields around them."""

    path: str
    rows: list[dict[str, Any]]


def plain(value: Any, depth: int = 0) -> Any:
    """A value in which lists of pairs are objects, and a value with its type is the value."""
    if depth > _DEEPEST:
        return value
    if isinstance(value, dict):
        if value.keys() in ({"Type", "Value"}, {"type", "value"}):
            return value.get("Value", value.get("value"))
        return {key: plain(one, depth + 1) for key, one in value.items()}
    if isinstance(value, list):
        named = _named(value)
        if named is None:
            return [plain(one, depth + 1) if isinstance(one, dict | list) else one for one in value]
        key, told = named
        return {str(one[key]): plain(one[told], depth + 1) for one in value}
    return value


def lists(document: Any) -> list[Listed]:
    """The lists of objects in a document, the outer ones first."""
    found = itertools.islice(_lists(document, "$", {}, 0), _MOST_LISTS)
    return sorted(found, key=lambda one: one.path.count("[*]"))


def _named(value: list[Any]) -> tuple[str, str] | None:
    """Under which names a list's pairs have their keys and values; None where it is none of pairs."""
    if not value or not all(isinstance(one, dict) and len(one) <= _PAIR_KEYS for one in value):
        return None
    key = next((key for key in _KEYS if all(key in one for one in value)), None)
    told = next((told for told in _VALUES if all(told in one for one in value)), None)
    return None if key is None or told is None else (key, told)


def _lists(value: Any, path: str, around: Mapping[str, Any], depth: int) -> Iterator[Listed]:
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        yield from _of_list(value, path, around, depth)
    elif isinstance(value, dict):
        if (rows := _keyed(value)) is not None:
            yield Listed(f"{path}.*", [{**around, **row} for row in rows])
        own = {**around, **_scalars(value)}
        for key, one in value.items():
            if isinstance(one, dict | list):
                yield from _lists(one, f"{path}.{_quoted(key)}", own, depth + 1)


def _of_list(
    value: list[Any], path: str, around: Mapping[str, Any], depth: int
) -> Iterator[Listed]:
    if (rows := _of_columns(value)) is not None:
        yield Listed(f"{path} by columns", [{**around, **row} for row in rows])
        return
    objects = [one for one in value if isinstance(one, dict)]
    if not objects or 2 * len(objects) < len(value):
        return
    yield Listed(f"{path}[*]", [{**around, **one} for one in objects])
    inner: dict[str, list[dict[str, Any]]] = {}
    for one in objects:
        for listed in _lists(one, f"{path}[*]", around, depth + 1):
            inner.setdefault(listed.path, []).extend(listed.rows)
    yield from itertools.starmap(Listed, inner.items())


def _of_columns(value: list[Any]) -> list[dict[str, Any]] | None:
    """The rows of columns that stand beside one another, each with a name and values; None of any other list."""
    if len(value) < 2 or not all(
        isinstance(one, dict) and "name" in one and isinstance(one.get("values"), list)
        for one in value[:_LOOKED_AT]
    ):
        return None
    columns = [one["values"] for one in value if isinstance(one.get("values"), list)]
    if len(columns) != len(value) or len({len(column) for column in columns}) != 1:
        return None
    names = [str(one["name"]) for one in value]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _keyed(value: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The objects that stand under their own ids; None of any other object."""
    some = list(itertools.islice(value.items(), _LOOKED_AT))
    if len(some) < 2 or not all(
        isinstance(one, dict) and key in map(str, one.values()) for key, one in some
    ):
        return None
    return [one for one in value.values() if isinstance(one, dict)]


def _scalars(value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: one for key, one in value.items() if not isinstance(one, dict | list)}


def _quoted(key: str) -> str:
    return key if key.isidentifier() else '"' + key.replace('"', '\\"') + '"'
