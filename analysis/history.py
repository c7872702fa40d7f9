"""How did latency run over months? Percentiles per step from per-minute rollups, each within 1 % of the exact one, also when the requests are gone.

Minutes that are not folded yet are counted from the requests themselves into the same buckets, so that the view reaches to now.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import duckdb
import msgspec
import numpy as np
import polars as pl

from analysis.incident import from_us
from analysis.latency import MIN_N, FloatArray
from analysis.requests import known_metric
from analysis.series import STEPS_S
from analysis.window import Window, filter_of, query
from collector.rollups import rolled_up_through

# The relative half-width of a bucket: gamma = 1.01 / 0.99.
ERROR_BOUND: Final = 0.01
MOST_POINTS: Final = 120


class HistoryPoint(msgspec.Struct, kw_only=True):
    """One step [start, start + step_s): percentiles (ms) of n successful requests, null where n is too small; all requests and errors beside them."""

    start: datetime
    n: int
    p50: float | None
    p95: float | None
    p99: float | None
    requests: int
    errors: int


class History(msgspec.Struct, kw_only=True):
    """One metric over a window from rollups. Every percentile is within `error_bound` (relative) of that of the requests, by nearest rank.

    `p50`, `p95`, `p99` are of the whole window. `rolled_up_until` is where the rollups end and the requests themselves begin (null: nothing is folded).
    """

    metric: str
    start: datetime | None
    end: datetime | None
    step_s: int
    n: int
    requests: int
    errors: int
    p50: float | None
    p95: float | None
    p99: float | None
    error_bound: float
    rolled_up_until: datetime | None
    points: list[HistoryPoint]
    reasons: dict[str, str] = {}


def history(con: duckdb.DuckDBPyConnection, window: Window, metric: str) -> History:
    """Return one metric (ttft, itl, tpot, e2e) over a window of any length.

    Raises:
        ListError: an unknown metric.
    """
    metric = known_metric(metric)
    through_ns = rolled_up_through(con)
    split = from_us(through_ns // 1000)
    asked = filter_of(window) | {"split": split}
    first, last = con.sql(query("history_extent"), params=asked).fetchall()[0]
    start, end = window.start or _utc(first), window.end or _utc(last)
    out = History(metric=metric, start=start, end=end, step_s=60, n=0, requests=0, errors=0, p50=None, p95=None, p99=None, error_bound=ERROR_BOUND,
                  rolled_up_until=split if through_ns else None, points=[], reasons={} if through_ns else {"rolled_up_until": "no minute is folded yet"})
    if start is None or end is None or first is None:
        nulls = ("p50", "p95", "p99", *(name for name, value in (("start", start), ("end", end)) if value is None))
        out.reasons |= dict.fromkeys(nulls, "no request in the window")
        return out
    seconds = (end - start).total_seconds()
    out.step_s = next((step for step in STEPS_S if step >= 60 and seconds / step <= MOST_POINTS), -(-int(seconds / MOST_POINTS) // STEPS_S[-1]) * STEPS_S[-1])
    more = {"metric": metric, "step_s": out.step_s}
    buckets = con.sql(query("history"), params=asked | more).pl()
    counts = {at: (n, failed) for at, n, failed in con.sql(query("history_counts"), params=asked | {"step_s": out.step_s}).fetchall()}
    parts = {int(at): part for (at,), part in buckets.partition_by("step", as_dict=True, maintain_order=True).items()}
    for at in sorted({*parts, *counts}):
        n, p50, p95, p99 = _percentiles(parts[at]) if at in parts else (0, None, None, None)
        requests, errors = counts.get(at, (n, 0))
        out.points.append(HistoryPoint(start=datetime.fromtimestamp(at, UTC), n=n, p50=p50, p95=p95, p99=p99, requests=requests, errors=errors))
    whole = buckets.group_by("value_ms").agg(pl.col("n").sum()).sort("value_ms")
    out.n, out.p50, out.p95, out.p99 = _percentiles(whole)
    out.requests, out.errors = sum(p.requests for p in out.points), sum(p.errors for p in out.points)
    for name, percentile in (("p50", 50.0), ("p95", 95.0), ("p99", 99.0)):
        if getattr(out, name) is None:
            out.reasons[name] = f"P{percentile:g} needs at least {MIN_N[percentile]} requests, there are {out.n}"
    return out


def _percentiles(rows: pl.DataFrame) -> tuple[int, float | None, float | None, float | None]:
    values, counts = rows["value_ms"].to_numpy(), rows["n"].to_numpy()
    n = int(counts.sum())
    p50, p95, p99 = (bucket_quantile(values, counts, p / 100.0) if n >= MIN_N[p] else None for p in (50.0, 95.0, 99.0))
    return n, p50, p95, p99


def bucket_quantile(values: FloatArray, counts: FloatArray, p: float) -> float:
    """Return the value (ascending, one per bucket) of the bucket that holds rank floor(p (n - 1)) + 1: the lower nearest-rank quantile."""
    reached = np.cumsum(counts)
    rank = np.floor(p * (float(reached[-1]) - 1.0)) + 1.0
    return float(values[int(np.searchsorted(reached, rank, side="left"))])


def _utc(time: datetime | None) -> datetime | None:
    return None if time is None else time.astimezone(UTC)
