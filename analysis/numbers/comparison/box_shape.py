"""How do the chosen requests differ from the others: stage by stage, and value by value of every attribute? Small histograms of both sides.

Shares are of those requests of a side for which the attribute is known, weighted as the cohorts are. Numbers are cut into at most ten ranges; a range
stands in a condition as `100..200` (from the first up to below the second, either left out at the ends).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote, unquote

import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.latency.percentiles import worth
from overrun.analysis.numbers.stages.budget import StageTimes
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.errors import AnalysisError, nearest
from overrun.analysis.words.finding import printable

# Values of a text that are drawn by themselves, ranges of a number, and groups; the others together are one more. Own defaults: what fits in a small picture.
MOST_VALUES: Final = 8
MOST_RANGES: Final = 10
MOST_GROUPS: Final = 8
# A number whose largest value is this many times the smallest is cut in equal factors, not in equal steps; own default.
_WIDE: Final = 20.0
# Ranges are cut between these percentiles, so that a single outlier makes no empty picture.
_ENDS: Final = (1.0, 99.0)
NONE: Final = "(none)"
_CONDITIONS: Final = 8


class Bin(msgspec.Struct, kw_only=True):
    """One value (or range) of an attribute: its share (0..1) of the chosen requests and of the others, and how many requests of either have it.

    `where` is the condition that selects it (`Condition`); null for what stands for several values.
    """

    value: str
    these_ratio: float
    rest_ratio: float
    these: int
    rest: int
    where: str | None = None


class Spread(msgspec.Struct, kw_only=True):
    """An attribute's values on both sides. `distance` (0..1) is the share that would have to change for both sides to be alike (total variation), `by_chance`
    what that would be on average if both sides were drawn from the same requests."""

    attribute: str
    kind: str
    distance: float
    by_chance: float
    known: int
    bins: list[Bin]


class StageSides(msgspec.Struct, kw_only=True):
    """Mean time (ms) of one stage in the chosen requests and in the others."""

    stage: str
    these_ms: float
    rest_ms: float


class Group(msgspec.Struct, kw_only=True):
    """The chosen requests with one value of an attribute: how many, their mean stage times (ms) by stage, and how many of the others have it."""

    value: str
    these: int
    rest: int
    stages_ms: dict[str, float]
    where: str | None = None


class Condition(msgspec.Struct, kw_only=True, frozen=True):
    """Requests with a value (or a range, `low` <= x < `high`) of an attribute, or with `leaves_out` those without it."""

    attribute: str
    value: str
    leaves_out: bool = False

    def text(self) -> str:
        """As it stands in a question: `engine_instance:vllm-2`, `-version:v1`, `output_tokens:100..200`."""
        return f"{'-' if self.leaves_out else ''}{self.attribute}:{quote(self.value, safe='')}"

    def of(self, rows: pl.DataFrame) -> BoolArray:
        """Which rows meet it."""
        column = rows[self.attribute]
        if self.value == NONE:
            found = column.is_null().to_numpy()
        elif column.dtype.is_numeric():
            low, high = _edges(self.value)
            values = column.cast(pl.Float64).fill_null(math.nan).to_numpy()
            found = (values >= low) & (values < high)
        else:
            found = (column.cast(pl.String) == self.value).fill_null(value=False).to_numpy()
        met: BoolArray = ~found if self.leaves_out else found
        return met


def conditions(text: str | None, known: Sequence[str]) -> list[Condition]:
    """Read conditions separated by `;`.

    Raises:
        AnalysisError: an attribute that is not compared, no value, or too many of them.
    """
    found = []
    for part in (text or "").split(";"):
        if not part.strip():
            continue
        name, colon, value = part.strip().removeprefix("-").partition(":")
        if name not in known:
            raise AnalysisError(f"attribute {name[:64]!r} is unknown: {nearest(name, known)}")
        if not colon or not value:
            raise AnalysisError(
                f"{name} lacks a value: write {name}:VALUE, or -{name}:VALUE to leave it out"
            )
        found.append(
            Condition(attribute=name, value=unquote(value), leaves_out=part.strip().startswith("-"))
        )
    if len(found) > _CONDITIONS:
        raise AnalysisError(f"{len(found)} conditions, at most {_CONDITIONS} can be asked for")
    return found


def _edges(text: str) -> tuple[float, float]:
    low, dots, high = text.partition("..")
    try:
        if not dots:
            return float(low), math.nextafter(float(low), math.inf)
        return (float(low) if low else -math.inf), (float(high) if high else math.inf)
    except ValueError:
        raise AnalysisError(
            f"{text[:64]!r} is no number and no range: write for example 100..200"
        ) from None


def stage_sides(times: StageTimes, these: BoolArray, weights: FloatArray) -> list[StageSides]:
    """Return the mean time of each stage on both sides; empty where a side has no request."""
    if not these.any() or these.all():
        return []
    return [
        StageSides(
            stage=stage,
            these_ms=float(np.average(ms[these], weights=weights[these])),
            rest_ms=float(np.average(ms[~these], weights=weights[~these])),
        )
        for stage, ms in times.ms.items()
    ]


def groups(
    rows: pl.DataFrame, name: str, times: StageTimes, these: BoolArray, weights: FloatArray
) -> list[Group]:
    """Return the chosen requests by the values of an attribute, those with most requests first."""
    column, asked = _as_texts(rows[name])
    counted = column.filter(pl.Series(these)).value_counts(sort=True)
    found = []
    for value, n in counted.head(MOST_GROUPS).iter_rows():
        has = column.eq_missing(value).to_numpy()
        mine = has & these
        found.append(
            Group(
                value=NONE if value is None else printable(value, 120),
                these=int(n),
                rest=int((has & ~these).sum()),
                stages_ms={
                    stage: float(np.average(ms[mine], weights=weights[mine]))
                    for stage, ms in times.ms.items()
                },
                where=asked.get(value) if asked else _where(name, value),
            )
        )
    return found


def spread(rows: pl.DataFrame, name: str, these: BoolArray, weights: FloatArray) -> Spread | None:
    """Return an attribute's values on both sides; None where it is recorded nowhere, or has one value only."""
    column = rows[name]
    if column.null_count() == len(column) or column.n_unique() < 2:
        return None
    kind = _kind(column)
    parts = _of_numbers(column, name) if kind == "number" else _of_texts(column, name, these)
    known = np.logical_or.reduce([has for _, _, has in parts])
    sides = [weights * known * side for side in (these, ~these)]
    if not all(side.sum() > 0.0 for side in sides):
        return None
    bins = [
        Bin(
            value=value,
            these_ratio=float(sides[0][has].sum() / sides[0].sum()),
            rest_ratio=float(sides[1][has].sum() / sides[1].sum()),
            these=int((has & these).sum()),
            rest=int((has & ~these).sum()),
            where=where,
        )
        for value, where, has in parts
    ]
    distance = 0.5 * sum(abs(one.these_ratio - one.rest_ratio) for one in bins)
    return Spread(
        attribute=name,
        kind=kind,
        distance=distance,
        by_chance=_by_chance(bins, *(worth(weights[known & side]) for side in (these, ~these))),
        known=int(known.sum()),
        bins=bins,
    )


def _by_chance(bins: list[Bin], n: float, m: float) -> float:
    """The mean total variation of two samples of n and m requests from one distribution: half the mean absolute values of normal differences."""
    if min(n, m) <= 0.0:
        return 1.0
    pooled = [(n * one.these_ratio + m * one.rest_ratio) / (n + m) for one in bins]
    scale = math.sqrt(2.0 / math.pi * (1.0 / n + 1.0 / m))
    return min(1.0, 0.5 * scale * sum(math.sqrt(p * (1.0 - p)) for p in pooled))


def _kind(column: pl.Series) -> str:
    return "number" if column.dtype.is_numeric() else "text"


def _as_texts(column: pl.Series) -> tuple[pl.Series, dict[str | None, str | None]]:
    """Texts as they are, numbers as the ranges that they fall in with the condition of each."""
    if _kind(column) == "text":
        return column.cast(pl.String), {}
    parts = _of_numbers(column, column.name)
    out = np.full(len(column), None, dtype=object)
    for label, _, has in parts:
        out[has] = label
    asked: dict[str | None, str | None] = {label: where for label, where, _ in parts}
    asked[None] = _where(column.name, None)
    return pl.Series(column.name, out.tolist(), dtype=pl.String), asked


def _where(name: str, value: str | None) -> str:
    return Condition(attribute=name, value=NONE if value is None else value).text()


_Part = tuple[str, str | None, BoolArray]


def _of_texts(column: pl.Series, name: str, these: BoolArray) -> list[_Part]:
    """The most frequent values of both sides, all others together, and where none is recorded."""
    frequent: dict[str, float] = {}
    for side in (these, ~these):
        counts = column.filter(pl.Series(side)).drop_nulls().value_counts(sort=True)
        for value, n in counts.head(MOST_VALUES).iter_rows():
            frequent[value] = max(frequent.get(value, 0.0), n / max(int(side.sum()), 1))
    shown = sorted(frequent, key=lambda value: (-frequent[value], value))[:MOST_VALUES]
    parts: list[_Part] = [
        (
            printable(value, 120),
            _where(name, value),
            (column == value).fill_null(value=False).to_numpy(),
        )
        for value in shown
    ]
    other = (~column.is_in(shown)).fill_null(value=False).to_numpy()
    if other.any():
        parts.append(
            (f"{column.n_unique() - len(shown) - (column.null_count() > 0)} others", None, other)
        )
    if column.null_count():
        parts.append((NONE, _where(name, None), column.is_null().to_numpy()))
    return parts


def _of_numbers(column: pl.Series, name: str) -> list[_Part]:
    """Ranges that hold all known values: one value each where there are few, else equal steps, or equal factors where values lie far apart."""
    values = column.cast(pl.Float64).fill_null(math.nan).to_numpy()
    known = values[~np.isnan(values)]
    single = np.unique(known)
    if len(single) <= MOST_RANGES:
        return [
            (_number(one), Condition(attribute=name, value=f"{one:.10g}").text(), values == one)
            for one in single
        ]
    edges = _cuts(known)
    ends = [-math.inf, *edges, math.inf]
    parts: list[_Part] = []
    for low, high in itertools.pairwise(ends):
        has = (values >= low) & (values < high)
        if not has.any():
            continue
        label = (
            f"below {_number(high)}"
            if math.isinf(low)
            else f"from {_number(low)}"
            if math.isinf(high)
            else f"{_number(low)} to {_number(high)}"
        )
        asked = f"{'' if math.isinf(low) else f'{low:.10g}'}..{'' if math.isinf(high) else f'{high:.10g}'}"
        parts.append((label, Condition(attribute=name, value=asked).text(), has))
    return parts


def _cuts(known: FloatArray) -> list[float]:
    """The inner edges, rounded so that they can be read."""
    low, high = (float(at) for at in np.percentile(known, _ENDS))
    if high <= low:
        low, high = float(known.min()), float(known.max())
    if low > 0.0 and high / low > _WIDE:
        raw = np.geomspace(low, high, MOST_RANGES + 1)[1:-1]
    else:
        raw = np.linspace(low, high, MOST_RANGES + 1)[1:-1]
    return sorted({float(f"{edge:.2g}") for edge in raw})


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100.0 or value == int(value) else f"{value:.3g}"
