"""Where did the time of slow requests go, step by step of the window, and where does it go now? Stage times that sum to the judged percentile.

Reads `v_requests` through a cursor that is passed in. A step's bar is its percentile, split as the mean of the requests within 2 points of it by rank
(the split of the report's stages), so that the bars are the line that is held against the limit.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import duckdb
import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.coverage.sampling import assess
from overrun.analysis.numbers.latency.percentiles import min_n, quantile
from overrun.analysis.numbers.outcomes.goodput import limits_of, own_limits
from overrun.analysis.numbers.over_time.series import MOST_POINTS, step_at_least
from overrun.analysis.numbers.requests.request_list import known_metric
from overrun.analysis.numbers.stages.budget import StageTimes, path_of, stage_times
from overrun.analysis.numbers.stages.tail import MIN_HEALTHY, TAIL_POINTS, TYPICAL, band
from overrun.analysis.numbers.window import FIRST_TOKEN_PATH, FOR_RULES, RequestFrame, Window, load
from overrun.analysis.words.arrays import FloatArray, IndexArray, IntArray
from overrun.analysis.words.slo import Slo
from overrun.analysis.words.times import parse_time

# Requests per step that the step is chosen for, in those that the percentile needs: arrivals scatter around the mean.
_ROOM: Final = 1.5
# Metrics that stages add up to; of the others the stages are those of requests around their percentile, and no limit can be drawn.
_SUMS: Final = ("ttft", "e2e")
_MEDIAN: Final = 50.0


class StageSplit(msgspec.Struct, kw_only=True):
    """A percentile (ms) of `n` requests, split into the stages of `StageCourse.stages`: `ms` has one value per stage and sums to `total_ms`."""

    n: int
    total_ms: float
    ms: list[float]


class StageStep(msgspec.Struct, kw_only=True):
    """One step [start, start + step_s); `split` is null where it has too few requests for the percentile."""

    start: datetime
    n: int
    split: StageSplit | None


class StageCourse(msgspec.Struct, kw_only=True):
    """Stage times of the requests around a percentile, over time in steps of `step_s` seconds aligned to the clock.

    `slow` is the percentile of the requests since `onset` (of all where none is given), `typical` the median of those before it, or of all where
    fewer than 30 came before. For a metric other than TTFT and E2E the stages are those of whole requests around its percentile, and `limit_ms` is null.
    `own_limits` requests came with limits of their own. Null has its reason in `reasons`.
    """

    metric: str
    path: str
    percentile: float
    limit_ms: float | None
    onset: datetime | None
    start: datetime | None
    end: datetime | None
    step_s: int
    n: int
    stages: list[str] = []
    steps: list[StageStep] = []
    typical: StageSplit | None = None
    slow: StageSplit | None = None
    before_onset: bool = False
    own_limits: int = 0
    reasons: dict[str, str] = {}


def stage_course(
    con: duckdb.DuckDBPyConnection, window: Window, slo: Slo, metric: str, onset: str | None = None
) -> StageCourse:
    """Return the stage times of slow requests (ttft, itl, tpot or e2e, at the SLO's percentile) over time.

    Raises:
        ListError: an unknown metric.
        WindowError: an onset that cannot be read.
    """
    metric = known_metric(metric)
    path = path_of(metric)
    since = parse_time(onset, datetime.now(UTC)) if onset else None
    unread = FOR_RULES if path == "ttft" else (*FOR_RULES, *FIRST_TOKEN_PATH)
    frame = load(con, window, without=unread, points=False)
    answer = StageCourse(
        metric=metric,
        path=path,
        percentile=slo.percentile,
        limit_ms=slo.limits().get(metric) if metric in _SUMS else None,
        onset=since,
        start=frame.start,
        end=frame.end,
        step_s=step_at_least(0.0),
        n=0,
    )
    rows = frame.rows.filter(
        ~pl.col("error") & pl.col(f"{metric}_ms").is_not_null() & pl.col(f"{path}_ms").is_not_null()
    )
    sampled = assess(con, frame)
    if rows.is_empty() or sampled.refused:
        why = sampled.why if sampled.refused else f"no request with {metric.upper()} in the window"
        answer.reasons = dict.fromkeys(("steps", "typical", "slow"), why)
        return answer
    answer.n, answer.own_limits = rows.height, own_limits(rows)
    if limits_of(rows, slo, metric) is None:
        answer.limit_ms = None
    _fill(answer, rows, frame)
    return answer


def _fill(answer: StageCourse, rows: pl.DataFrame, frame: RequestFrame) -> None:
    times = stage_times(rows, answer.path)
    values: FloatArray = rows[f"{answer.metric}_ms"].to_numpy()
    weights: FloatArray = rows["sample_weight"].to_numpy()
    start_us: IntArray = rows["start_us"].to_numpy()
    answer.stages = list(times.ms)

    def split(
        index: IndexArray, percentile: float, points: tuple[float, float]
    ) -> StageSplit | None:
        return _split(values[index], times.take(index), weights[index], percentile, points)

    every = np.arange(len(values))
    after = every if answer.onset is None else np.flatnonzero(start_us >= _us(answer.onset))
    before = np.setdiff1d(every, after, assume_unique=True)
    answer.before_onset = len(before) >= MIN_HEALTHY
    percentile = answer.percentile
    around = (percentile - TAIL_POINTS, percentile + TAIL_POINTS)
    answer.slow = split(after, percentile, around)
    answer.typical = split(before if answer.before_onset else every, _MEDIAN, TYPICAL)
    for name in ("slow", "typical"):
        if getattr(answer, name) is None:
            answer.reasons[name] = "too few requests for the percentile"
    if frame.start is None or frame.end is None:
        return
    answer.step_s = _step(frame.start, frame.end, start_us, percentile)
    step_us = answer.step_s * 1_000_000
    at = start_us // step_us
    for step in range(_us(frame.start) // step_us, (_us(frame.end) - 1) // step_us + 1):
        index = np.flatnonzero(at == step)
        answer.steps.append(
            StageStep(
                start=datetime.fromtimestamp(step * answer.step_s, UTC),
                n=len(index),
                split=split(index, percentile, around),
            )
        )


def _split(
    values: FloatArray,
    times: StageTimes,
    weights: FloatArray,
    percentile: float,
    points: tuple[float, float],
) -> StageSplit | None:
    """A percentile split as the mean stage times of the requests around it; None where there are too few requests for it, or they took no time."""
    if len(values) < min_n(percentile):
        return None
    index = band(values, *points)
    ms = np.array([times.ms[stage][index].mean() for stage in times.ms])
    # Of a metric that the stages do not add up to, whole requests are split.
    sums = values is times.total_ms or np.array_equal(values, times.total_ms)
    total = quantile(values, percentile / 100.0, weights) if sums else float(ms.sum())
    if not ms.sum() > 0.0:
        return None
    return StageSplit(n=len(values), total_ms=total, ms=(ms * (total / ms.sum())).tolist())


def _step(start: datetime, end: datetime, start_us: IntArray, percentile: float) -> int:
    """The finest step with at most MOST_POINTS points in which the percentile can be given."""
    occupied = (int(start_us.max()) - int(start_us.min())) / 1e6
    wanted = _ROOM * min_n(percentile) * occupied / len(start_us)
    return step_at_least(max((end - start).total_seconds() / MOST_POINTS, wanted))


def _us(time: datetime) -> int:
    return round(time.timestamp() * 1e6)
