"""Which values stand at certain places of the order of many columns? Exact, and no more than a sample and the values asked for leave the engine.

A sample shows between which edges each value lies (`numbers.latency.order_statistics`). One query counts the values per stretch, one more numbers those
of the stretches that are meant and hands over the ones asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from overrun.analysis.front.batch.engines import Engine
from overrun.analysis.numbers.latency.order_statistics import (
    NEAR,
    Piece,
    between,
    pieces,
    stretch_of,
)
from overrun.analysis.words.arrays import FloatArray

_EVERYTHING: Sequence[Piece] = ((-math.inf, math.inf),)


@dataclass(frozen=True)
class Ordered:
    """A value of requests of which some places are asked: `sql` is it in ms, null where a request has none, as `n` do not; `drawn` is a sample of the values."""

    name: str
    sql: str
    n: int
    places: Sequence[float]
    drawn: FloatArray


def values_at(
    engine: Engine, rows: str, columns: Sequence[Ordered], parameters: Mapping[str, object]
) -> dict[str, list[float]]:
    """Return each value at its places (0 to n - 1 in ascending order; between two whole places: in proportion), by name; `rows` is the query with the requests."""
    left = [column for column in columns if column.places]
    found: dict[str, list[float]] = {}
    for wide in (NEAR, math.inf):
        found |= _looked_up(engine, rows, left, wide, parameters) if left else {}
        left = [column for column in left if column.name not in found]
    if left:
        raise AssertionError(
            "the counted rows are not those that are read: the files changed meanwhile"
        )
    return found


def _looked_up(
    engine: Engine,
    rows: str,
    columns: Sequence[Ordered],
    wide: float,
    parameters: Mapping[str, object],
) -> dict[str, list[float]]:
    """The values whose places all lie within the pieces around them."""
    cut = _cut(rows, columns, [_pieces(column, wide) for column in columns])
    counts = engine.frame(
        f"select asked, stretch, count(*) as n from ({cut}) u group by asked, stretch", parameters
    )
    wanted = {
        k: ranks
        for k, column in enumerate(columns)
        if (ranks := _ranks(counts.filter(pl.col("asked") == k).sort("stretch"), column.places))
    }
    if not wanted:
        return {}
    meant = " or ".join(
        f"asked = {k} and place in ({', '.join(map(str, sorted({place for _, place in ranks.values()})))})"
        for k, ranks in wanted.items()
    )
    place = "row_number() over (partition by asked, stretch order by value)"
    among = f"select asked, stretch, value, {place} as place from ({cut}) u where stretch % 2 = 1"
    numbered = engine.frame(
        f"select asked, stretch, place, value from ({among}) n where {meant}", parameters
    )
    known = {(k, stretch, place): value for k, stretch, place, value in numbered.iter_rows()}
    out = {}
    for k, ranks in wanted.items():
        at = {place: known[k, *ranks[place]] for place in ranks}
        out[columns[k].name] = [
            between(at[math.floor(place)], at[math.ceil(place)], place)
            for place in columns[k].places
        ]
    return out


def _pieces(column: Ordered, wide: float) -> Sequence[Piece]:
    if math.isinf(wide) or not len(column.drawn):
        return _EVERYTHING
    shares = sorted(place / max(column.n - 1, 1) for place in column.places)
    return pieces(np.sort(column.drawn), shares, wide)


def _cut(rows: str, columns: Sequence[Ordered], around: Sequence[Sequence[Piece]]) -> str:
    """A query with a row per request and value: which one it is (`asked`), the value, and its stretch. Each request is read once."""
    given = ", ".join(f"{column.sql} as v{k}" for k, column in enumerate(columns))
    values = " ".join(f"when {k} then v{k}" for k in range(len(columns)))
    stretches = " ".join(
        f"when {k} then {stretch_of('value', near)}" for k, near in enumerate(around)
    )
    numbers = ", ".join(f"({k})" for k in range(len(columns)))
    each = f"select asked, case asked {values} end as value from (select {given} from ({rows}) r) g cross join (values {numbers}) k(asked)"
    return f"select asked, value, case asked {stretches} end as stretch from ({each}) e where value is not null"


def _ranks(counts: pl.DataFrame, places: Sequence[float]) -> dict[int, tuple[int, int]] | None:
    """For each whole place: the number of its stretch, and its rank there (1 is the lowest). None where one lies outside of the pieces."""
    stretches, ends = counts["stretch"].to_list(), np.cumsum(counts["n"].to_numpy())
    out = {}
    for place in {whole for p in places for whole in (math.floor(p), math.ceil(p))}:
        at = int(np.searchsorted(ends, place, side="right"))
        if at >= len(stretches) or stretches[at] % 2 == 0:
            return None
        out[place] = int(stretches[at]), place - (int(ends[at - 1]) if at else 0) + 1
    return out
