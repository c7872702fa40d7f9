"""What do bucket counts say about a quantile? Histograms of the engines as increments over a window, with intervals that the bucket edges allow.

A histogram knows only how many values lie between two edges, so every quantile from it is an interval; the value inside is interpolated linearly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

import duckdb
import numpy as np
import numpy.typing as npt

from analysis.window import query

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]

# A sample this long before the window's start still tells where its counts began: 5 min is twenty usual scrape intervals.
GRACE_S: Final = 300.0
_US: Final = 1e6


@dataclass(frozen=True)
class Increments:
    """What one indicator counted between consecutive samples, over all series with the same edges.

    `edges` has m upper bucket edges (SI units, ascending), `counts` shape (k, m + 1) the values that each interval added per bucket, the last one beyond all
    edges. `from_us`/`to_us` bound each interval, `total` is the sum of the values added over all intervals (NaN if not recorded). `names` are the raw metrics.
    """

    indicator: str
    edges: FloatArray
    counts: FloatArray
    from_us: IntArray
    to_us: IntArray
    total: float
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
        return self.total / n if n > 0.0 and np.isfinite(self.total) else None

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
        sure = int(np.searchsorted(self.edges, limit, side="left"))  # buckets above the first edge at or above the limit
        maybe = int(np.searchsorted(self.edges, limit, side="right"))
        parts = self.counts[:, sure + 1 :].sum(axis=1), self.counts[:, maybe:].sum(axis=1), self.counts.sum(axis=1)
        return tuple(np.rint(part).astype(np.int64) for part in parts)  # type: ignore[return-value]


def load(
    con: duckdb.DuckDBPyConnection, start: datetime | None, end: datetime | None, indicators: Sequence[str], model: str | None = None,
    *, since_start: bool = False,
) -> dict[str, Increments]:
    """Return the increments of each indicator that a histogram told of in [start, end]; indicators without one are missing.

    `since_start` takes a series that came once for all that it counted since its start time. That may be hours before anything else in the window,
    so it is for metrics alone, not for what is laid beside spans.
    """
    found = con.sql(query("histograms"), params={"start": start, "end": end, "grace": GRACE_S, "model": model, "indicators": list(indicators)}).pl()
    start_us = None if start is None else int(start.timestamp() * _US)
    out = {}
    for (indicator,), rows in found.partition_by("indicator", as_dict=True, maintain_order=True).items():
        made = _increments(str(indicator), rows.to_dicts(), start_us, since_start=since_start)
        if made is not None:
            out[str(indicator)] = made
    return out


def _increments(indicator: str, rows: list[dict[str, Any]], start_us: int | None, *, since_start: bool) -> Increments | None:
    """Difference each series, and bring series with other edges to the edges that all have."""
    pieces: list[tuple[FloatArray, FloatArray, int, int, float]] = []
    previous: dict[str, Any] | None = None
    alone = _came_once(rows) if since_start else []
    pieces += [_since_start(row) for row in alone if row["start_us"] is not None and (start_us is None or row["start_us"] >= start_us)]
    for row in rows:
        piece = _piece(previous if previous is not None and previous["series"] == row["series"] else None, row)
        previous = row
        if piece is not None and (start_us is None or piece[2] >= start_us):
            pieces.append(piece)
    if not pieces:
        return None
    shared = _shared_edges(edges for edges, *_ in pieces)
    if not len(shared):
        return None
    counts = np.vstack([_coarsened(edges, made, shared) for edges, made, *_ in pieces])
    total = float(np.sum([piece[4] for piece in pieces]))
    names, instances = ({str(row[key]) for row in rows if row[key] is not None} for key in ("raw_name", "instance"))
    bounds = np.array([[piece[2], piece[3]] for piece in pieces], dtype=np.int64)
    return Increments(indicator, shared, counts, bounds[:, 0], bounds[:, 1], total, tuple(sorted(names)), tuple(sorted(instances)))


def unusable(
    con: duckdb.DuckDBPyConnection, start: datetime | None, end: datetime | None, indicators: Sequence[str], model: str | None = None
) -> list[str]:
    """Return the raw metrics that came as one cumulative sample that tells nothing of the window: without the time it began to count, or from before it."""
    found = con.sql(query("histograms"), params={"start": start, "end": end, "grace": GRACE_S, "model": model, "indicators": list(indicators)}).pl()
    return sorted({str(row["raw_name"]) for row in _came_once(found.to_dicts())})


def _came_once(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cumulative samples that are the only ones of their series: there is no other to difference them with."""
    counted = Counter(row["series"] for row in rows)
    return [row for row in rows if counted[row["series"]] == 1 and row["temporality"] != "delta"]


def _since_start(row: dict[str, Any]) -> tuple[FloatArray, FloatArray, int, int, float]:
    """What a single cumulative sample counted: everything since its start time."""
    total = np.nan if row["sum"] is None else float(row["sum"])
    return np.array(row["bounds"], np.float64), np.array(row["counts"], np.float64), row["start_us"], row["time_us"], total


def _piece(previous: dict[str, Any] | None, row: dict[str, Any]) -> tuple[FloatArray, FloatArray, int, int, float] | None:
    """What one sample added: itself if it is a delta, else the difference to the one before; after a restart the whole count."""
    edges, counts = np.array(row["bounds"], np.float64), np.array(row["counts"], np.float64)
    total = np.nan if row["sum"] is None else float(row["sum"])
    if row["temporality"] == "delta":
        return edges, counts, row["time_us"], row["time_us"], total
    if previous is None or len(previous["bounds"]) != len(edges) or not np.array_equal(np.array(previous["bounds"]), edges):
        return None
    before = np.array(previous["counts"], np.float64)
    if (counts < before).any():
        return edges, counts, previous["time_us"], row["time_us"], total
    return edges, counts - before, previous["time_us"], row["time_us"], total - (np.nan if previous["sum"] is None else float(previous["sum"]))


def _shared_edges(all_edges: Iterable[FloatArray]) -> FloatArray:
    shared: FloatArray | None = None
    for edges in all_edges:
        shared = edges if shared is None or np.array_equal(shared, edges) else np.intersect1d(shared, edges)
    return np.zeros(0) if shared is None else shared


def _coarsened(edges: FloatArray, counts: FloatArray, shared: FloatArray) -> FloatArray:
    if len(edges) == len(shared):
        return counts
    return np.bincount(np.searchsorted(shared, np.append(edges, np.inf)), weights=counts, minlength=len(shared) + 1).astype(np.float64)
