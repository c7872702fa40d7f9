"""What do bucket counts say about a quantile? Histograms of the engines as increments over a window, with intervals that the bucket edges allow.

A histogram knows only how many values lie between two edges, so every quantile from it is an interval; the value inside is interpolated linearly.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

import duckdb
import numpy as np
import polars as pl

from overrun.analysis.numbers.window import read_samples
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray

# A sample this long before the window's start still tells where its counts began: 5 min is twenty usual scrape intervals.
GRACE_S: Final = 300.0
_US: Final = 1e6


@dataclass(frozen=True)
class Increments:
    """What one indicator counted between consecutive samples, over all series with the same edges.

    `edges` has m upper bucket edges (SI units, ascending), `counts` shape (k, m + 1) the values that each interval added per bucket, the last one beyond all
    edges. `from_us`/`to_us` bound each interval, `sums` is the sum of the values that each added (NaN if not recorded). `names` are the raw metrics.
    """

    indicator: str
    edges: FloatArray
    counts: FloatArray
    from_us: IntArray
    to_us: IntArray
    sums: FloatArray
    names: tuple[str, ...]
    instances: tuple[str, ...]

    @property
    def n(self) -> int:
        """How many values were counted."""
        return round(float(self.counts.sum()))

    @property
    def mean(self) -> float | None:
        """The exact mean, None without sums or values."""
        n = float(self.counts.sum())
        total = float(self.sums.sum())
        return total / n if n > 0.0 and np.isfinite(total) else None

    def quantile(self, p: float) -> tuple[float, float, float] | None:
        """Return (value, low, high) of the p-quantile (0..1): the interpolated value and the edges of its bucket.

        None without values, or where it lies beyond the last edge.
        """
        by_bucket = self.counts.sum(axis=0)
        total = float(by_bucket.sum())
        if total <= 0.0:
            return None
        reached = np.cumsum(by_bucket)
        at = int(np.searchsorted(reached, p * total, side="left"))
        if at >= len(self.edges):
            return None
        high = float(self.edges[at])
        low = float(self.edges[at - 1]) if at else min(0.0, high)
        inside = float(by_bucket[at])
        before = float(reached[at]) - inside
        return low + (high - low) * (p * total - before) / inside, low, high

    def over(self, limit: float) -> tuple[IntArray, IntArray, IntArray]:
        """Return per interval (certainly over the limit, possibly over it, all), as whole numbers of values."""
        sure = int(
            np.searchsorted(self.edges, limit, side="left")
        )  # buckets above the first edge at or above the limit
        maybe = int(np.searchsorted(self.edges, limit, side="right"))
        parts = (
            self.counts[:, sure + 1 :].sum(axis=1),
            self.counts[:, maybe:].sum(axis=1),
            self.counts.sum(axis=1),
        )
        return tuple(np.rint(part).astype(np.int64) for part in parts)  # type: ignore[return-value]


def load(
    con: duckdb.DuckDBPyConnection,
    start: datetime | None,
    end: datetime | None,
    indicators: Sequence[str],
    model: str | None = None,
    *,
    since_start: bool = False,
) -> dict[str, Increments]:
    """Return the increments of each indicator that a histogram told of in [start, end]; indicators without one are missing.

    `since_start` takes a series that came once for all that it counted since its start time. That may be hours before anything else in the window,
    so it is for metrics alone, not for what is laid beside spans.
    """
    found = read_samples(
        con, "histograms", start, end, model, grace=GRACE_S, indicators=list(indicators)
    )
    start_us = None if start is None else int(start.timestamp() * _US)
    out = {}
    for (indicator,), rows in found.partition_by(
        "indicator", as_dict=True, maintain_order=True
    ).items():
        made = _increments(str(indicator), rows, start_us, since_start=since_start)
        if made is not None:
            out[str(indicator)] = made
    return out


def load_by_instance(
    con: duckdb.DuckDBPyConnection,
    start: datetime | None,
    end: datetime | None,
    indicators: Sequence[str],
    model: str | None = None,
) -> dict[tuple[str, str], Increments]:
    """Return the increments of each (instance, indicator) that a histogram told of in [start, end], as `load` does for all together."""
    found = read_samples(
        con, "histograms", start, end, model, grace=GRACE_S, indicators=list(indicators)
    )
    start_us = None if start is None else int(start.timestamp() * _US)
    parts = found.with_columns(pl.col("instance").fill_null("")).partition_by(
        ["instance", "indicator"], as_dict=True, maintain_order=True
    )
    made = {
        (str(instance), str(indicator)): _increments(
            str(indicator), rows, start_us, since_start=True
        )
        for (instance, indicator), rows in parts.items()
    }
    return {key: one for key, one in made.items() if one is not None and one.n > 0}


def merged(parts: Sequence[Increments]) -> Increments:
    """Return the increments of several instances as one, by the edges that all have.

    Raises:
        ValueError: no part, or no edge that all have.
    """
    shared = functools.reduce(np.intersect1d, (part.edges for part in parts))
    if not len(shared):
        raise ValueError("no bucket edge is in every histogram")
    return Increments(
        parts[0].indicator,
        shared,
        np.vstack([_coarsened(part.edges, part.counts, shared) for part in parts]),
        np.concatenate([part.from_us for part in parts]),
        np.concatenate([part.to_us for part in parts]),
        np.concatenate([part.sums for part in parts]),
        *(
            tuple(sorted({name for part in parts for name in getattr(part, key)}))
            for key in ("names", "instances")
        ),
    )


def since(made: Increments, from_us: int) -> Increments:
    """Return what was counted after a moment."""
    return _kept(made, made.to_us > from_us)


def until(made: Increments, to_us: int) -> Increments:
    """Return what was counted up to a moment."""
    return _kept(made, made.to_us <= to_us)


def _kept(made: Increments, kept: BoolArray) -> Increments:
    return replace(
        made,
        counts=made.counts[kept],
        from_us=made.from_us[kept],
        to_us=made.to_us[kept],
        sums=made.sums[kept],
    )


def _increments(
    indicator: str, rows: pl.DataFrame, start_us: int | None, *, since_start: bool
) -> Increments | None:
    """Difference each series, and bring series with other edges to the edges that all have."""
    goes_on = (pl.col("series") == pl.col("series").shift()) & (
        pl.col("edges") == pl.col("edges").shift()
    )
    ordered = rows.with_columns(again=goes_on.fill_null(value=False))
    pieces = [
        _added(part, start_us, since_start=since_start)
        for part in ordered.partition_by("edges", maintain_order=True)
    ]
    pieces = [piece for piece in pieces if len(piece.counts)]
    if not pieces:
        return None
    shared = functools.reduce(np.intersect1d, (piece.edges for piece in pieces))
    if not len(shared):
        return None
    counts = np.vstack([_coarsened(piece.edges, piece.counts, shared) for piece in pieces])
    from_us, to_us = (
        np.concatenate([piece.from_us for piece in pieces]),
        np.concatenate([piece.to_us for piece in pieces]),
    )
    names, instances = (
        tuple(sorted(rows[key].drop_nulls().unique().to_list())) for key in ("raw_name", "instance")
    )
    return Increments(
        indicator,
        shared,
        counts,
        from_us,
        to_us,
        np.concatenate([piece.sums for piece in pieces]),
        names,
        instances,
    )


def unusable(
    con: duckdb.DuckDBPyConnection,
    start: datetime | None,
    end: datetime | None,
    indicators: Sequence[str],
    model: str | None = None,
) -> list[str]:
    """Return the raw metrics that came as one cumulative sample that shows nothing of the window: without the time it began to count, or from before it."""
    found = read_samples(
        con, "histograms", start, end, model, grace=GRACE_S, indicators=list(indicators)
    )
    return sorted(_came_once(found)["raw_name"].unique().to_list())


def _came_once(rows: pl.DataFrame) -> pl.DataFrame:
    """The cumulative samples that are the only ones of their series: there is no other to difference them with."""
    return rows.filter((pl.len().over("series") == 1) & (pl.col("temporality") != "delta"))


class _Added(NamedTuple):
    """`Increments` of samples that share their edges."""

    edges: FloatArray
    counts: FloatArray
    from_us: IntArray
    to_us: IntArray
    sums: FloatArray


def _added(rows: pl.DataFrame, start_us: int | None, *, since_start: bool) -> _Added:
    """What each sample added: itself if it is a delta, else the difference to the one before of its series; after a restart the whole count.

    `again` says of a row whether the row before it is that one. With `since_start` the only sample of a series added all that it counts.
    """
    edges = rows["bounds"][0].to_numpy().astype(np.float64)
    counts = (
        rows["counts"].explode().to_numpy().reshape(rows.height, len(edges) + 1).astype(np.float64)
    )
    totals, to_us = (
        rows["sum"].cast(pl.Float64).fill_null(np.nan).to_numpy(),
        rows["time_us"].to_numpy(),
    )
    delta, again = (rows["temporality"] == "delta").to_numpy(), rows["again"].to_numpy()
    before = np.vstack([np.zeros((1, counts.shape[1])), counts[:-1]])
    goes_on = again & ~delta & ~(counts < before).any(axis=1)
    from_us = np.where(delta, to_us, np.roll(to_us, 1))
    made = np.where(goes_on[:, None], counts - before, counts)
    total = np.where(goes_on, totals - np.roll(totals, 1), totals)
    kept = delta | again
    if since_start:
        alone = (
            rows.select(
                (pl.len().over("series") == 1)
                & (pl.col("temporality") != "delta")
                & pl.col("start_us").is_not_null()
            )
            .to_series()
            .to_numpy()
        )
        kept, from_us = (
            kept | alone,
            np.where(alone, rows["start_us"].fill_null(0).to_numpy(), from_us),
        )
    if start_us is not None:
        kept &= from_us >= start_us
    return _Added(edges, made[kept], from_us[kept], to_us[kept], total[kept])


def _coarsened(edges: FloatArray, counts: FloatArray, shared: FloatArray) -> FloatArray:
    """Return `counts`, shape (k, buckets of `edges`), by the buckets of some of these edges."""
    if len(edges) == len(shared):
        return counts
    into = np.searchsorted(shared, np.append(edges, np.inf))
    return np.stack(
        [counts[:, into == bucket].sum(axis=1) for bucket in range(len(shared) + 1)], axis=1
    )
