"""How did latency, goodput and errors run over time? One point per step of the window, for lines and sparklines.

Reads `v_requests` through a cursor that is passed in; judged by the same code as the report, so a point can be compared with it.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

import duckdb
import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.coverage.sampling import assess
from overrun.analysis.numbers.latency.percentiles import MIN_N, percentiles
from overrun.analysis.numbers.outcomes.goodput import judge, limits_of, own_limits
from overrun.analysis.numbers.requests.request_list import Extent, extent, known_metric
from overrun.analysis.numbers.window import RequestFrame, Window, load_judged, query
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.slo import Slo

# Steps that people read on a clock, in seconds: 1 s to 1 day.
STEPS_S: Final = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600),
    *(43_200, 86_400),
)
# About as many points as a sparkline has pixels, and few enough to send for every metric.
MOST_POINTS: Final = 120
# A line of fewer points shows no course: then rather a point without a P95.
_LEAST_POINTS: Final = 10
# Requests per step that the step is chosen for: P95 needs 59, and arrivals scatter around the mean.
_WANTED_N: Final = 1.5 * MIN_N[95.0]


class SeriesPoint(msgspec.Struct, kw_only=True):
    """One step [start, start + step_s). Percentiles (ms) are of the n successful requests that carry the metric, null where n is too small.

    `requests` counts all complete ones, `errors` the failed; `goodput_ratio` is of those that could be judged, null if none could. Counts are of stored
    requests; what sampled ones stand for is in percentiles and ratio, and where they stand for nothing known those are null (`Series.reasons`). `p95_over`:
    whether P95 is over the limit, of requests with limits of their own the P95 of what part of its limit each took; null without a limit or P95.
    """

    start: datetime
    requests: int
    n: int
    p50: float | None
    p95: float | None
    p99: float | None
    p95_over: bool | None = None
    goodput_ratio: float | None
    errors: int


class Series(msgspec.Struct, kw_only=True):
    """One metric over a window in steps of `step_s` seconds, aligned to the clock; steps without a request are points with n = 0.

    The first and last step may reach beyond the window; they count only what is inside. `min_n` is what each percentile needs.
    `limit_ms` is the common limit; `own_limits` requests came with limits of their own, by which goodput judges them.
    """

    metric: str
    start: datetime | None
    end: datetime | None
    step_s: int
    n: int
    limit_ms: float | None
    min_n: dict[str, int]
    points: list[SeriesPoint]
    own_limits: int = 0
    reasons: dict[str, str] = {}


def series(con: duckdb.DuckDBPyConnection, window: Window, slo: Slo, metric: str) -> Series:
    """Return one metric (ttft, itl, tpot, e2e) of a window over time.

    Raises:
        ListError: an unknown metric.
    """
    metric = known_metric(metric)
    covered = extent(con, window)
    answer = Series(
        metric=metric,
        start=covered.start,
        end=covered.end,
        step_s=step_of(covered),
        n=0,
        limit_ms=slo.limits().get(metric),
        min_n={"p50": MIN_N[50.0], "p95": MIN_N[95.0], "p99": MIN_N[99.0]},
        points=[],
    )
    if covered.start is None or covered.end is None or covered.n == 0:
        answer.reasons = {"points": "no request in the window"}
        return answer
    rows = load_judged(con, window, query("series"))
    answer.own_limits = own_limits(rows)
    limits = limits_of(rows, slo, metric)
    judged, sampled = (
        judge(rows, slo),
        assess(con, RequestFrame(window, rows, pl.DataFrame(), 0, covered.start, covered.end)),
    )
    if sampled.refused:
        answer.reasons = dict.fromkeys(("p50", "p95", "p99", "goodput_ratio"), sampled.why)
    step_us = answer.step_s * 1_000_000
    origin = int(covered.start.timestamp() * 1e6) // step_us
    last = (int(covered.end.timestamp() * 1e6) - 1) // step_us
    marked = rows.select(
        at=pl.col("start_us") // step_us - origin,
        error="error",
        value=pl.when(~pl.col("error")).then(pl.col(f"{metric}_ms")),
        limit=pl.Series(np.broadcast_to(math.nan if limits is None else limits, rows.height)),
        good=pl.Series(judged.good),
        bad=pl.Series(judged.bad),
        weight="sample_weight",
    )
    stored = float(rows["drawn_weight"][0]) if "drawn_weight" in rows.columns else 1.0
    groups = {int(at): part for (at,), part in marked.partition_by("at", as_dict=True).items()}
    empty = marked.clear()
    answer.points = [
        _point(groups.get(i, empty), (origin + i) * answer.step_s, stored, refused=sampled.refused)
        for i in range(last - origin + 1)
    ]
    answer.n = sum(point.n for point in answer.points)
    return answer


def step_of(covered: Extent, most: int = MOST_POINTS) -> int:
    """Return the step in seconds: the finest of STEPS_S with at most `most` points, coarser where traffic is too thin for a P95 per point."""
    if covered.start is None or covered.end is None:
        return STEPS_S[0]
    wanted = (covered.end - covered.start).total_seconds() / most
    if covered.first is not None and covered.last is not None and covered.n > 1:
        occupied = (covered.last - covered.first).total_seconds()
        wanted = max(wanted, min(_WANTED_N * occupied / covered.n, occupied / _LEAST_POINTS))
    return step_at_least(wanted)


def _point(rows: pl.DataFrame, start_s: int, stored: float, *, refused: bool) -> SeriesPoint:
    """One point; each row stands for so many stored requests."""
    measured = rows.filter(pl.col("value").is_not_null())
    weights: FloatArray = rows["weight"].to_numpy()
    stats = percentiles(measured["value"].to_numpy(), weights=measured["weight"].to_numpy())
    limit = measured["limit"].to_numpy()
    if measured["limit"].n_unique() > 1:
        used = percentiles(
            measured["value"].to_numpy() / limit, weights=measured["weight"].to_numpy()
        ).p95
    else:
        used = None if stats.p95 is None or math.isnan(limit[0]) else stats.p95 / float(limit[0])
    good, bad = (float(weights[rows[name].to_numpy()].sum()) for name in ("good", "bad"))
    return SeriesPoint(
        start=datetime.fromtimestamp(start_s, UTC),
        requests=round(stored * rows.height),
        n=round(stored * stats.n),
        errors=round(stored * int(rows["error"].sum())),
        p50=None if refused else stats.p50,
        p95=None if refused else stats.p95,
        p99=None if refused else stats.p99,
        p95_over=None if refused or used is None else used > 1.0,
        goodput_ratio=good / (good + bad) if good + bad > 0.0 and not refused else None,
    )


def step_at_least(least_s: float) -> int:
    """Return the finest of STEPS_S that is not below `least_s`, else a multiple of its last one."""
    return next(
        (step for step in STEPS_S if step >= least_s), -(-int(least_s) // STEPS_S[-1]) * STEPS_S[-1]
    )
