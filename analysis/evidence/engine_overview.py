"""What did the engines do over time, which of it warned, where is the knee, and how much room is left? Everything for a page about the engine.

Reads gauges, rates and histograms through a cursor that is passed in.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import duckdb
import msgspec
import numpy as np
import polars as pl

from overrun.analysis.evidence.derived_indicators import arrivals, deviations, step_times
from overrun.analysis.evidence.leading_indicators import LEARNED, Indicator, breaches, learn
from overrun.analysis.evidence.load_knee import Knee, load_knee
from overrun.analysis.incident.breach import judged_metric
from overrun.analysis.numbers.coverage.sampling import assess
from overrun.analysis.numbers.outcomes.goodput import judge
from overrun.analysis.numbers.stages.budget import path_of
from overrun.analysis.numbers.stages.headroom import Room, headroom
from overrun.analysis.numbers.window import (
    FIRST_TOKEN_PATH,
    RequestFrame,
    Window,
    load,
    read_samples,
)
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.slo import Slo
from overrun.analysis.words.timestamps import from_us

# As many points as a sparkline has pixels.
MOST_POINTS: Final = 120
_SHOWN: Final = (
    *("queue_depth", "running", "kv_cache_usage", "preemptions", "prefix_cache_hit_rate"),
    *("spec_accept_rate", "prompt_tokens", "output_tokens", "swapped", "gpu_util", "mem_bw_util"),
    *("rejections", "aborts", "up"),
)
# A gauge this old no longer says what a request met.
_STALE_US: Final = 60_000_000
_SEED: Final = 20_251


class EnginePoint(msgspec.Struct, kw_only=True):
    """One step of one indicator: mean and highest sample, in the indicator's unit."""

    time: datetime
    mean: float
    max: float


class EngineSeries(msgspec.Struct, kw_only=True):
    """One indicator of one instance over the window. `n` samples behind `points`; `p95` and `deviation` (standard deviation) are over all samples.

    Units are SI: ratios 0..1, requests, tokens/s, seconds. `iteration_time` is the mean time of an engine step between two scrapes.
    """

    indicator: str
    unit: str
    instance: str | None
    n: int
    mean: float
    p95: float
    max: float
    deviation: float
    points: list[EnginePoint]


class EngineView(msgspec.Struct, kw_only=True):
    """Series per indicator and instance, learned indicators (best first), knees of TPOT and TTFT against running requests, and the room left."""

    start: datetime | None
    end: datetime | None
    series: list[EngineSeries]
    indicators: list[Indicator]
    knees: list[Knee]
    headroom: list[Room]
    reasons: dict[str, str] = {}


def engine_view(con: duckdb.DuckDBPyConnection, window: Window, slo: Slo) -> EngineView:
    """Return everything that is known of the engines in a window."""
    frame = load(con, window)
    sampled = assess(con, frame, weigh=True)
    frame = sampled.applied(frame)
    start, end = frame.start or window.start, frame.end or window.end
    found = read_samples(con, "engine_samples", start, end, window.model, indicators=list(_SHOWN))
    series = [
        _series(rows)
        for _, rows in found.partition_by(
            ["indicator", "instance"], as_dict=True, maintain_order=True
        ).items()
    ]
    steps = step_times(con, start, end, window.model)
    series += [_series(steps.with_columns(unit=pl.lit("s")))] if steps is not None else []
    learned, why = indicators(con, frame, slo)
    rooms = rooms_of(frame, slo, partial=sampled.partial)
    reasons = {}
    if not series:
        reasons["series"] = "no engine indicator in the window: scrape the engines' /metrics"
    if why is not None:
        reasons["indicators"] = why
    if not rooms:
        reasons["headroom"] = "no request carries a limited metric"
    return EngineView(
        start=start,
        end=end,
        series=series,
        indicators=learned,
        knees=knees(frame),
        headroom=rooms,
        reasons=reasons,
    )


def indicators(
    con: duckdb.DuckDBPyConnection, frame: RequestFrame, slo: Slo
) -> tuple[list[Indicator], str | None]:
    """Return the indicators learned in a window, best first, or none and why; beside the engines' the rate of arrivals, which may drive them all."""
    rows = frame.rows
    if rows.is_empty():
        return [], "no request in the window"
    origin = int(rows["start_us"].to_numpy().min())
    found = breaches(
        rows["start_us"].to_numpy(), judge(rows, slo).bad, 1.0 - slo.goodput_target, origin
    )
    return learn(indicator_points(con, frame), found, origin)


def indicator_points(con: duckdb.DuckDBPyConnection, frame: RequestFrame) -> pl.DataFrame:
    """Return what warnings are learned from (time_us, instance, indicator, value); the rate of arrivals only beside the engines' indicators."""
    steps = step_times(con, frame.start, frame.end, frame.window.model)
    sent = [
        frame.points.filter(pl.col("indicator").is_in(LEARNED)),
        *([] if steps is None else [steps, deviations(steps)]),
    ]
    if not any(part.height for part in sent):
        return sent[0]
    return pl.concat([*sent, arrivals(frame.rows["start_us"].to_numpy())])


def knees(frame: RequestFrame) -> list[Knee]:
    """Return the knees of TPOT and TTFT against the running requests that a request met when it began."""
    ok = frame.rows.select("start_us", "end_us", "error", "tpot_ms", "ttft_ms").filter(
        ~pl.col("error")
    )
    load_ = _running(frame.points, ok)
    rng = np.random.default_rng(_SEED)
    out = []
    for metric in ("tpot", "ttft"):
        values = ok[f"{metric}_ms"].fill_null(float("nan")).to_numpy()
        known = ~np.isnan(values) & ~np.isnan(load_)
        out.append(load_knee(load_[known], values[known], metric, rng))
    return out


def _running(points: pl.DataFrame, ok: pl.DataFrame) -> FloatArray:
    """Return the running requests per instance at each request's start by the gauge, NaN where none is fresh; without a gauge, requests in flight."""
    gauge = (
        points.filter(pl.col("indicator") == "running")
        .group_by("time_us")
        .agg(pl.col("value").mean())
        .sort("time_us")
    )
    start = ok["start_us"].to_numpy()
    if gauge.is_empty():
        return (
            np.searchsorted(np.sort(start), start)
            - np.searchsorted(np.sort(ok["end_us"].to_numpy()), start)
        ).astype(np.float64)
    times = gauge["time_us"].to_numpy()
    at = np.searchsorted(times, start, side="right") - 1
    fresh = (at >= 0) & (start - times[np.maximum(at, 0)] < _STALE_US)
    return np.where(fresh, gauge["value"].to_numpy()[np.maximum(at, 0)], np.nan)


def rooms_of(frame: RequestFrame, slo: Slo, *, partial: bool = False) -> list[Room]:
    """Return how much more load, prompt or answer the judged metric's limit bears; none where nothing is judged. `partial`: others share the engines."""
    metric = (
        judged_metric(judge(frame.rows, slo), frame.rows, slo)
        if not frame.rows.is_empty()
        else None
    )
    if metric is None:
        return []
    rows = frame.having(FIRST_TOKEN_PATH).rows if path_of(metric) == "ttft" else frame.rows
    return headroom(rows, slo, metric, frame.every, partial=partial)


def _series(rows: pl.DataFrame) -> EngineSeries:
    times, values = rows["time_us"].to_numpy(), rows["value"].to_numpy()
    parts = [
        part
        for part in np.array_split(np.arange(len(values)), min(MOST_POINTS, len(values)))
        if len(part)
    ]
    points = [
        EnginePoint(
            time=from_us(int(times[part[0]])),
            mean=float(values[part].mean()),
            max=float(values[part].max()),
        )
        for part in parts
    ]
    instance = rows["instance"][0]
    return EngineSeries(
        indicator=str(rows["indicator"][0]),
        unit=str(rows["unit"][0]),
        instance=None if instance is None else str(instance),
        n=len(values),
        mean=float(values.mean()),
        p95=float(np.percentile(values, 95.0)),
        max=float(values.max()),
        deviation=float(values.std()),
        points=points,
    )
