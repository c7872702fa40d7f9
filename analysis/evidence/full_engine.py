"""Is the engine full? Its gauges, what ran when calls had to wait, and whether one engine waits alone."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import Calls, known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.engine_lives import sampled_at_once
from overrun.analysis.evidence.fleet import (
    AS_FAST,
    MIN_ENGINES,
    NEAR_OVER,
    lag_at_equal_batch,
    replicas,
)
from overrun.analysis.evidence.overlap import Flow
from overrun.analysis.evidence.queue_growth import (
    _LEAST_PER_BIN,
)
from overrun.analysis.evidence.token_speed import (
    MIN_TOKENS,
)
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import (
    MIN_BREACHING,
)

# Waits of the engines differ this much (shortest over longest median) where one of them is the problem, not the load; own default.
UNEVEN: Final = 0.25

# Running calls over the most that ever ran at a time (so many at least) from which an engine is full, and part of the waiting that must begin then;
# own defaults.
FULL: Final = 0.9

LEAST_RUNNING: Final = 4.0

MOSTLY_FULL: Final = 0.75


class Gauges(NamedTuple):
    """The engine's own gauges: waiting requests at first, at most and at last.

    KV usage and running at most.
    """

    instances: int
    waiting_first: float | None
    waiting_most: float | None
    waiting_last: float | None
    kv_p95: float | None
    running_most: float | None


def shared_slowness(case: Case) -> float:
    """Return the part (0..1) of a slow call's slower pace that the calls beside it share: a load slows all calls of that time, a slow host only its own.

    Calls that overlap with it count by their common time: the slow ones ran when it was fullest, and over all
    of the period others did not.
    """
    before = case.calls_before
    if before is None:
        return 1.0
    told = case.calls.where(
        known(case.calls.token_ms) & (case.calls.of("output_tokens") >= MIN_TOKENS)
    )
    slow = told.frame["trace_key"].is_in(case.slow["trace_key"].implode()).to_numpy()
    former = before.token_ms[known(before.token_ms) & (before.of("output_tokens") >= MIN_TOKENS)]
    if min(len(former), int(slow.sum())) < MIN_BREACHING:
        return 1.0
    begin, end, pace = told.of("start_s"), told.end_s, told.token_ms
    took = np.maximum(end - begin, 1e-6)
    own = begin[slow], end[slow]
    together = Flow(begin, begin + took, took).between(*own) - took[slow]
    theirs = Flow(begin, begin + took, took * pace).between(*own) - (took * pace)[slow]
    met = together > 1e-3
    if not met.any():
        return 1.0
    usual, beside, held = (
        float(np.median(ms)) for ms in (former, theirs[met] / together[met], pace[slow])
    )
    return min(1.0, max(0.0, beside - usual) / (held - usual)) if held > usual else 1.0


def found_full(slow: Calls, calls: Calls) -> bool:
    """Return whether slow calls waited because their engine was full when they came: most of their waiting is of calls that found nearly as many running as ever.

    Waits that come and go with the arrivals of a minute stand in no quarter of a window, and are want of room all the same.
    """
    waits, met, most = [], [], []
    for code in np.unique(calls.engine[calls.has_engine]):
        beside, theirs = (
            side.where(side.has_engine & (side.engine == code)) for side in (calls, slow)
        )
        taken, ended = np.sort(beside.scheduled_s), np.sort(beside.last_s)
        at, all_at = theirs.of("start_s"), beside.of("start_s")
        running = [
            np.searchsorted(taken, t, side="right") - np.searchsorted(ended, t, side="right")
            for t in (at, all_at)
        ]
        waits.append(np.nan_to_num(theirs.of("queue_ms")))
        met.append(running[0])
        most.append(
            np.full(len(at), np.percentile(running[1], 99.0)) if len(all_at) else np.zeros(0)
        )
    if not waits:
        return False
    wait, full = (
        np.concatenate(waits),
        np.concatenate(met) >= FULL * np.maximum(np.concatenate(most), LEAST_RUNNING),
    )
    return bool(wait.sum() > 0.0 and wait[full].sum() > MOSTLY_FULL * wait.sum())


def one_engine_waits(calls: Calls) -> tuple[float, float] | None:
    """Return the longest and the shortest median wait of the engines in ms where the one is many times the other, else None."""
    wait, engine = calls.of("queue_ms"), calls.engine
    chosen = known(wait)
    groups = [wait[chosen & (engine == code)] for code in np.unique(engine[chosen])]
    medians = sorted(float(np.median(group)) for group in groups if len(group) >= _LEAST_PER_BIN)
    if len(medians) < 2 or medians[-1] < 50.0 or medians[0] > UNEVEN * medians[-1]:
        return None
    return medians[-1], medians[0]


def first_to_fill(case: Case) -> bool:
    """Return whether the engine whose calls wait longest has no more work than its peers and is as fast in batches like theirs.

    Near capacity equal engines do not fill at the same moment: the first one keeps its queue (what waits there finds less in the cache), the others have just
    room enough. Then it is no fault of that one that calls wait.
    """
    every = replicas(case.calls, case.slowest_model)
    if len(every) < MIN_ENGINES:
        return False
    worst = max(every, key=lambda one: one.wait_ms)
    lag = lag_at_equal_batch(case.calls, worst.name)
    return worst.share * len(every) < NEAR_OVER and lag is not None and lag < AS_FAST


def read_gauges(points: pl.DataFrame, rows: pl.DataFrame) -> Gauges:
    """Return the waiting requests summed over instances (each carries its last value on) and read KV usage and batch size."""
    waiting = summed(points, "queue_depth")
    kv = points.filter(pl.col("indicator") == "kv_cache_usage")["value"]
    running = summed(points, "running")
    seen = sampled_at_once(
        points.filter(pl.col("indicator").is_in(["queue_depth", "running", "kv_cache_usage"]))
    )
    # A client's instance is no replica of the engine: only requests that the engine itself recorded count.
    engines = rows.filter(pl.col("engine_only"))["instance"].drop_nulls().n_unique()
    return Gauges(
        instances=max(1, seen, engines),
        waiting_first=float(waiting[0]) if len(waiting) else None,
        waiting_most=float(waiting.max()) if len(waiting) else None,
        waiting_last=float(waiting[-1]) if len(waiting) else None,
        kv_p95=float(np.percentile(kv.to_numpy(), 95.0)) if len(kv) else None,
        running_most=float(running.max()) if len(running) else None,
    )


def summed(points: pl.DataFrame, indicator: str) -> FloatArray:
    """Return a gauge summed over its instances at every sample time, ascending; empty without samples. The last value of each holds until its next
    sample was due: nothing waits at an instance that is gone."""
    chosen = points.filter(pl.col("indicator") == indicator).with_columns(
        pl.col("instance").fill_null("")
    )
    if chosen.is_empty():
        return np.empty(0)
    wide = chosen.pivot(
        on="instance", index="time_us", values="value", aggregate_function="mean"
    ).sort("time_us")
    gap = pl.col("time_us").unique().sort().diff().median().cast(pl.Int64)
    due = chosen.group_by("instance").agg(until=pl.col("time_us").max() + 2 * gap)
    due = due.with_columns(pl.col("until").fill_null(int(wide["time_us"][-1])))
    told = wide.select(
        pl.when(pl.col("time_us") <= until).then(pl.col(name).fill_null(strategy="forward"))
        for name, until in due.iter_rows()
    )
    return told.sum_horizontal().to_numpy()


def slower_tokens_ratio(case: Case) -> float | None:
    """Return median TPOT of slow requests over that of the reference, None where either is unknown."""
    slow, usual = (
        case.rows[case.tail.tail_index]["tpot_ms"].median(),
        case.reference["tpot_ms"].median(),
    )
    return (
        float(slow) / float(usual)
        if isinstance(slow, float) and isinstance(usual, float) and usual > 0.0
        else None
    )
