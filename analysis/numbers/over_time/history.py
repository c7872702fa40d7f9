"""How did latency run over months? Percentiles per step from per-minute rollups, each within 1 % of the exact one, also when the requests are gone.

Minutes that are not folded yet are counted from the requests themselves into the same buckets, so that the view reaches to now. Sampled requests count
for those that they stand for, folded or not.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, Final

import duckdb
import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.coverage.sampling import Kind, Sampling, assess_window, not_for_all
from overrun.analysis.numbers.latency.percentiles import MIN_N
from overrun.analysis.numbers.over_time.series import step_at_least
from overrun.analysis.numbers.requests.request_list import extent, known_metric
from overrun.analysis.numbers.window import Window, filter_of, query
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.timestamps import from_us
from overrun.collector.lifecycle.rollups import MOST_NAMES, rolled_up_through
from overrun.collector.store.answers import fetch_frame
from overrun.collector.store.layout import OTHER

# The relative half-width of a bucket: gamma = 1.01 / 0.99.
ERROR_BOUND: Final = 0.01
MOST_POINTS: Final = 120


class HistoryPoint(msgspec.Struct, kw_only=True):
    """One step [start, start + step_s): percentiles (ms) of n successful requests, null where n is too small; all requests and errors beside them.

    Counts are of stored requests. What sampled ones stand for is in percentiles and `error_ratio`; both are null where they stand for nothing known.
    """

    start: datetime
    n: int
    p50: float | None
    p95: float | None
    p99: float | None
    requests: int
    errors: int
    error_ratio: float | None = None


class History(msgspec.Struct, kw_only=True):
    """One metric over a window from rollups. Every percentile is within `error_bound` (relative) of that of the requests.

    `p50`, `p95`, `p99` are of the whole window. `rolled_up_until` is where the rollups end and the requests themselves begin (null: nothing is folded).
    `sampling` is how the requests were chosen: of minutes whose requests are gone only by what their samplers said.
    `missed` counts folded requests that may have the names of the filter and are not found by them: `reasons` says why.
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
    error_ratio: float | None = None
    sampling: Kind = "all"
    missed: int = 0
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
    first, last = con.execute(query("history_extent"), asked).fetchall()[0]
    start, end = window.start or _utc(first), window.end or _utc(last)
    out = History(
        metric=metric,
        start=start,
        end=end,
        step_s=60,
        n=0,
        requests=0,
        errors=0,
        p50=None,
        p95=None,
        p99=None,
        error_bound=ERROR_BOUND,
        rolled_up_until=split if through_ns else None,
        points=[],
        reasons={} if through_ns else {"rolled_up_until": "no minute is folded yet"},
    )
    _count_missed(con, window, asked, out)
    if start is None or end is None or first is None:
        nulls = (
            "p50",
            "p95",
            "p99",
            "error_ratio",
            *(name for name, value in (("start", start), ("end", end)) if value is None),
        )
        out.reasons |= dict.fromkeys(nulls, "no request in the window")
        return out
    seconds = (end - start).total_seconds()
    out.step_s = step_at_least(max(60.0, seconds / MOST_POINTS))
    more = {"metric": metric, "step_s": out.step_s}
    buckets = fetch_frame(con, query("history"), asked | more)
    counts = {
        row["step"]: row
        for row in fetch_frame(
            con, query("history_counts"), asked | {"step_s": out.step_s}
        ).to_dicts()
    }
    parts = {
        int(at): part
        for (at,), part in buckets.partition_by("step", as_dict=True, maintain_order=True).items()
    }
    still = extent(con, window)
    stored = assess_window(con, window, still.start, still.end)
    # Steps from here on have requests that are not to be trusted; before it only what their samplers said is left.
    doubted = (
        still.first.timestamp() - out.step_s
        if stored.refused and still.first is not None
        else math.inf
    )
    for at in sorted(counts):
        out.points.append(
            _point(
                at,
                parts.get(at, buckets.clear()),
                counts[at],
                told=not counts[at]["biased"] and at <= doubted,
            )
        )
    return _whole(out, buckets, list(counts.values()), stored)


def _count_missed(
    con: duckdb.DuckDBPyConnection, window: Window, asked: dict[str, object], out: History
) -> None:
    """Say how many folded requests the window's filter cannot find."""
    names = (window.service, window.model, window.route, window.tenant, asked["workload"])
    by_instance = window.instance is not None
    if OTHER in names or not (by_instance or any(name is not None for name in names)):
        return
    [(out.missed,)] = con.execute(query("history_missed"), asked | {"other": OTHER}).fetchall()
    if out.missed:
        why = (
            "folded minutes are not kept by instance"
            if by_instance
            else f"their minutes had more than {MOST_NAMES} combinations of names, and theirs were put together as {OTHER}"
        )
        out.reasons["missed"] = (
            f"{out.missed:,} folded requests of the window may belong to what was asked for and are not counted: {why}"
        )


def _whole(
    out: History, buckets: pl.DataFrame, counts: list[dict[str, Any]], stored: Sampling
) -> History:
    """Add what is said of the whole window."""
    out.requests, out.errors, biased = (
        sum(row[name] for row in counts) for name in ("requests", "errors", "biased")
    )
    rows = (
        buckets.group_by("value_ms")
        .agg(pl.col("n", "weight", "weight_squared").sum())
        .sort("value_ms")
    )
    out.n = int(rows["n"].sum())
    if biased or stored.refused:
        out.sampling = stored.kind if stored.refused else "biased"
        why = (
            stored.why
            if stored.refused
            else not_for_all(
                f"{biased:,} of {out.requests:,} come from a sampler that chooses by what happened"
            )
        )
        out.reasons |= dict.fromkeys(("p50", "p95", "p99", "error_ratio"), why)
        return out
    weight = sum(row["weight"] for row in counts)
    out.sampling = "all" if weight == out.requests else "weighted"
    out.error_ratio = sum(row["error_weight"] for row in counts) / weight
    worth, out.p50, out.p95, out.p99 = _percentiles(rows)
    for name, percentile in (("p50", 50.0), ("p95", 95.0), ("p99", 99.0)):
        if getattr(out, name) is None:
            sampled = (
                f", the {out.n} sampled ones are worth {worth}"
                if worth != out.n
                else f", there are {out.n}"
            )
            out.reasons[name] = (
                f"P{percentile:g} needs at least {MIN_N[percentile]} requests{sampled}"
            )
    return out


def _point(at: int, rows: pl.DataFrame, counted: dict[str, Any], *, told: bool) -> HistoryPoint:
    p50, p95, p99 = _percentiles(rows)[1:] if told else (None, None, None)
    return HistoryPoint(
        start=datetime.fromtimestamp(at, UTC),
        n=int(rows["n"].sum()),
        p50=p50,
        p95=p95,
        p99=p99,
        requests=counted["requests"],
        errors=counted["errors"],
        error_ratio=counted["error_weight"] / counted["weight"] if told else None,
    )


def _percentiles(rows: pl.DataFrame) -> tuple[int, float | None, float | None, float | None]:
    """Return what the requests of buckets (ascending) are worth, (sum w)^2 / sum w^2, which is their number where the weights are equal; P50, P95 and P99."""
    if rows.is_empty():
        return 0, None, None, None
    weight = float(rows["weight"].sum())
    worth = round(weight**2 / float(rows["weight_squared"].sum()))
    values, counts = rows["value_ms"].to_numpy(), rows["weight"].to_numpy() * (worth / weight)
    p50, p95, p99 = (
        bucket_quantile(values, counts, p / 100.0) if worth >= MIN_N[p] else None
        for p in (50.0, 95.0, 99.0)
    )
    return worth, p50, p95, p99


def bucket_quantile(values: FloatArray, counts: FloatArray, p: float) -> float:
    """Return the p-quantile (0..1) of requests counted in buckets, `values` (ascending) theirs: linear between two ranks, as numpy's of the requests."""
    reached = np.cumsum(counts)
    at = p * (float(reached[-1]) - 1.0)
    # Sums of scaled weights miss whole numbers by rounding.
    whole = float(np.floor(at + 1e-6))
    low, high = (
        float(
            values[
                min(
                    int(np.searchsorted(reached, whole + rank - 1e-6, side="left")), len(values) - 1
                )
            ]
        )
        for rank in (1.0, 2.0)
    )
    return low + max(0.0, at - whole) * (high - low)


def _utc(time: datetime | None) -> datetime | None:
    return None if time is None else time.astimezone(UTC)
