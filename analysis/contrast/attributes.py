"""What do spans say of themselves? Every attribute that a sender stored, as a column over all spans: codes for texts, numbers where they are numbers."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray

# Attributes of a store that are looked at, those of most spans first; own default.
MOST_KEYS: Final = 400
# Of the values of an attribute, the part that must be numbers so that it is one; own default.
NUMERIC: Final = 0.8
# Texts that stand for many (ids) are compared with one another, and no value of them is a trait; own default.
MOST_VALUES: Final = 60
_SEPARATOR, _ESCAPE = "\x1f", "\x1b"
# What the collector leaves of a private text: its length, and a hash by which equal ones are recognised.
_PRIVATE: Final = "[text: "


@dataclass(frozen=True)
class Attribute:
    """One attribute over rows: `codes` are places in `texts` (-1: absent), `numbers` its values where it is a number (NaN: absent), None else."""

    codes: IntArray
    texts: list[str]
    numbers: FloatArray | None

    @property
    def given(self) -> BoolArray:
        """Which rows have it."""
        return self.codes >= 0

    def at(self, rows: IntArray) -> Attribute:
        """The attribute of other rows, each -1 (none) or a place in these."""
        there = rows >= 0
        codes = np.where(there, self.codes[rows], -1)
        numbers = None if self.numbers is None else np.where(there, self.numbers[rows], np.nan)
        return Attribute(codes, self.texts, numbers)


@dataclass
class Attributes:
    """The attributes of spans by key, each read into codes when it is asked for."""

    frame: pl.DataFrame
    _known: dict[str, Attribute] = field(default_factory=dict)

    @functools.cached_property
    def keys(self) -> list[str]:
        """The keys, those of most spans first."""
        counts = {
            name: self.frame.height - self.frame[name].null_count() for name in self.frame.columns
        }
        return sorted((name for name in counts if counts[name]), key=lambda name: -counts[name])[
            :MOST_KEYS
        ]

    def __getitem__(self, key: str) -> Attribute:
        if key not in self._known:
            self._known[key] = attribute_of(self.frame[key])
        return self._known[key]

    def get(self, *keys: str) -> Attribute | None:
        """The first of some keys that any span has."""
        return next((self[key] for key in keys if key in self.frame.columns), None)


def attribute_of(column: pl.Series) -> Attribute:
    """A column as codes and, where most of its values are numbers, numbers."""
    numbers: FloatArray | None
    if column.dtype.is_numeric():
        numbers = column.cast(pl.Float64).fill_null(np.nan).to_numpy()
        column = column.cast(pl.String)
    else:
        column = column.cast(pl.String)
        read = column.cast(pl.Float64, strict=False)
        given = column.len() - column.null_count()
        numeric = given > 0 and column.len() - read.null_count() >= NUMERIC * given
        numbers = read.fill_null(np.nan).to_numpy() if numeric else None
    if numbers is not None:
        numbers = np.where(np.isfinite(numbers), numbers, np.nan)
    coded = column.to_arrow().dictionary_encode()
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return Attribute(codes, coded.dictionary.to_pylist(), numbers)


def attributes_of(
    packed: pl.DataFrame,
    shapes: Mapping[int, tuple[Sequence[str], Mapping[str, str]]],
    canonical: pl.DataFrame,
) -> Attributes:
    """Return the attributes of spans in the order of `canonical`.

    `packed` has a row per span in the same order: shape and attribute_values. `shapes` has keys and resource attributes per shape. `canonical` are columns
    that every sender's attributes were brought to (model, input_tokens, ...); they come under these names.
    """
    parts: list[pl.DataFrame] = []
    for (shape,), rows in packed.with_row_index("at").group_by("shape"):
        keys, resource = shapes.get(int(shape) if isinstance(shape, int) else -1, ((), {}))
        values = _unpacked(rows["attribute_values"], keys)
        constant = [pl.lit(value).alias(f"resource.{key}") for key, value in resource.items()]
        parts.append(
            rows.select("at", *constant).hstack(
                [one for key, one in values.items() if key not in canonical.columns]
            )
        )
    wide = pl.concat(parts, how="diagonal").sort("at").drop("at") if parts else pl.DataFrame()
    said = [one for one in (*canonical, *wide) if one.null_count() < len(one)]
    return Attributes(
        pl.DataFrame(said) if said else pl.DataFrame({"nothing": [None] * packed.height})
    )


def _unpacked(values: pl.Series, keys: Sequence[str]) -> dict[str, pl.Series]:
    """The values of each key of one shape; an empty text is none."""
    if not keys:
        return {}
    lists = values.str.split(_SEPARATOR)
    found = {}
    for at, key in enumerate(keys):
        text = lists.list.get(at, null_on_oob=True)
        if text.str.contains(_ESCAPE, literal=True).any():
            text = text.str.replace_all(_ESCAPE + "1", _SEPARATOR, literal=True)
            text = text.str.replace_all(_ESCAPE + "0", _ESCAPE, literal=True)
        found[key] = text.replace("", None).alias(key)
        if text.str.starts_with(_PRIVATE).any():
            length = text.str.extract(r"^\[text: (\d+) characters")
            found[f"{key}.chars"] = length.alias(f"{key}.chars")
    return found
