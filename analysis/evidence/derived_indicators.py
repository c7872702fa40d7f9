"""Which indicators follow from what was recorded, without an engine sending them? How long its steps take and how unevenly, and how fast requests arrive."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import duckdb
import numpy as np
import polars as pl

from overrun.analysis.numbers.latency.histograms import load
from overrun.analysis.words.arrays import IntArray

# Steps of time in which arrivals are counted, and scrapes over which step times are compared: two minutes at the usual 15 s. Own defaults.
_STEP_US: Final = 10_000_000
# Three years of such steps are 80 MB; starts farther apart than that are wrong clocks or unlike recordings, and nothing is counted.
_MOST_STEPS: Final = 10_000_000
_SCRAPES: Final = 8
_LEAST_SCRAPES: Final = 4


def arrivals(start_us: IntArray) -> pl.DataFrame:
    """Return requests per second (rows as of `RequestFrame.points`), each told at the end of its 10 s: the load that may drive indicator and breach alike."""
    if not len(start_us) or int(start_us.max() - start_us.min()) // _STEP_US > _MOST_STEPS:
        return _points(np.zeros(0, np.int64), np.zeros(0), "arrivals")
    first = int(start_us.min())
    counts = np.bincount((start_us - first) // _STEP_US)
    # The last step is cut by the end of the window.
    return _points(
        first + _STEP_US * np.arange(1, len(counts)), 1e6 * counts[:-1] / _STEP_US, "arrivals"
    )


def step_times(
    con: duckdb.DuckDBPyConnection, start: datetime | None, end: datetime | None, model: str | None
) -> pl.DataFrame | None:
    """Return the mean time of an engine step between scrapes, in seconds: a histogram of tokens per step counts the steps. None without one."""
    made = load(con, start, end, ("batch_tokens",), model).get("batch_tokens")
    if made is None:
        return None
    steps, length_s = made.counts.sum(axis=1), (made.to_us - made.from_us) / 1e6
    busy = (steps > 0.0) & (length_s > 0.0)
    if not busy.any():
        return None
    return _points(
        made.to_us[busy], length_s[busy] / steps[busy], "iteration_time", ", ".join(made.instances)
    )


def deviations(times: pl.DataFrame) -> pl.DataFrame:
    """Return the standard deviation of the step time over the last eight scrapes, in seconds; `times` as of `step_times`."""
    told = (
        times.group_by("time_us")
        .agg(pl.col("value").mean(), pl.col("instance").first())
        .sort("time_us")
    )
    made = told.with_columns(
        value=pl.col("value").rolling_std(_SCRAPES, min_samples=_LEAST_SCRAPES)
    ).drop_nulls("value")
    return _points(made["time_us"].to_numpy(), made["value"].to_numpy(), "iteration_deviation")


def _points(
    time_us: IntArray,
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
    indicator: str,
    instance: str | None = None,
) -> pl.DataFrame:
    return pl.DataFrame(
        {"time_us": time_us, "value": values}, schema={"time_us": pl.Int64, "value": pl.Float64}
    ).select(
        "time_us",
        instance=pl.lit(instance, pl.String),
        model=pl.lit(None, pl.String),
        indicator=pl.lit(indicator),
        value="value",
    )
