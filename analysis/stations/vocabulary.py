"""Which station does a series speak of, and which quantity is it? The table `vocabulary.toml`, read once."""

import functools
import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Final, Literal

import msgspec

Kind = Literal["time", "flow", "level", "size"]
SURROUNDING: Final = "surrounding"
VIEW: Final = "view"
_KINDS: Final[tuple[Kind, ...]] = ("time", "flow", "level", "size")


class _Role(msgspec.Struct, forbid_unknown_fields=True):
    role: str
    name: str


class _Label(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    roles: dict[str, str]


class _Also(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    kind: Kind
    quantity: str


class _Stations(msgspec.Struct, forbid_unknown_fields=True):
    front: list[str]
    parts: list[str]
    copies: list[str]
    whose: list[str]


class _Quantities(msgspec.Struct, forbid_unknown_fields=True):
    shares: list[str]
    adds: str
    resource: str


class Vocabulary(msgspec.Struct, forbid_unknown_fields=True):
    """The table as it stands in the file; `time`, `flow`, `level` and `size` map a quantity to the indicators that say it."""

    role: list[_Role]
    label: list[_Label]
    words: dict[str, str]
    stations: _Stations
    time: dict[str, list[str]]
    flow: dict[str, list[str]]
    level: dict[str, list[str]]
    size: dict[str, list[str]]
    also: list[_Also]
    quantities: _Quantities


@functools.cache
def vocabulary() -> Vocabulary:
    """Return the table.

    Raises:
        msgspec.ValidationError: a key that it does not have, or a value of another type.
    """
    text = resources.files(__package__).joinpath("vocabulary.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), Vocabulary)


def role_of(name: str, labels: Mapping[str, str], indicator: str | None) -> str:
    """Return the role of the station that a series speaks of."""
    by_name = _role_by_name(name)
    if by_name is not None:
        return by_name
    for label in vocabulary().label:
        role = label.roles.get(labels.get(label.key, ""))
        if role is not None:
            return role
    if indicator is None:
        return SURROUNDING
    return vocabulary().words.get(indicator.partition("_")[0], "engine")


@functools.lru_cache(4096)
def quantity_of(name: str, indicator: str | None) -> tuple[Kind, str] | None:
    """Return (kind, quantity) of a series; None where it is only looked at for changes."""
    for entry, pattern in _also():
        if pattern.search(name):
            return entry.kind, entry.quantity
    if indicator is None:
        return None
    first, _, rest = indicator.partition("_")
    return _quantities().get(rest if first in vocabulary().words else indicator)


def adds(name: str) -> bool:
    """Whether a series counts beside the main one of its quantity."""
    return bool(_pattern(vocabulary().quantities.adds).search(name))


def is_resource(name: str) -> bool:
    """Whether a level between 0 and 1 under this name can be at its end."""
    return bool(_pattern(vocabulary().quantities.resource).search(name))


@functools.lru_cache(4096)
def _role_by_name(name: str) -> str | None:
    return next(
        (entry.role for entry in vocabulary().role if _pattern(entry.name).search(name)), None
    )


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


@functools.cache
def _also() -> list[tuple[_Also, re.Pattern[str]]]:
    return [(entry, _pattern(entry.name)) for entry in vocabulary().also]


@functools.cache
def _quantities() -> dict[str, tuple[Kind, str]]:
    return {
        indicator: (kind, quantity)
        for kind in _KINDS
        for quantity, indicators in getattr(vocabulary(), kind).items()
        for indicator in indicators
    }
