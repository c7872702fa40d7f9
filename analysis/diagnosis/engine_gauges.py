"""What do an engine's gauges and rates say where no latency histogram arrived? Who waits, how many run, how full the cache is, and what that must cost.

A standing queue is at capacity whatever the limit. How long a request waits follows from Little's law where finished requests are counted: the mean number
that waits over those that finish per second. Without that count the limit is not judged, and the sentence reports it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.engine_causes import WAITING, Samples, cause_of
from overrun.analysis.diagnosis.engine_means import Mean, mean_of
from overrun.analysis.diagnosis.mitigation import stopgap
from overrun.analysis.diagnosis.verdict import Metric, Verdict
from overrun.analysis.numbers.statistics.change_points import LEAST_SCRAPES, find_onset
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import Owner, say_ms, say_ratio
from overrun.analysis.words.slo import Slo
from overrun.analysis.words.timestamps import from_us

# A request waiting in more than half of the samples; a prior until indicators are learned on this data.
MOSTLY: Final = 0.5
# Fewer samples than these are a glance, not a course.
_LEAST_SAMPLES: Final = LEAST_SCRAPES
_RUNNING: Final = ("running", "embedding_running")
_NULLS: Final = (
    "metric",
    "stage",
    "cause",
    "onset",
    "trend",
    "affected",
    "owner",
    "mitigation",
    "rollback",
    "recheck_after_s",
)
_RECHECK_S: Final = 300


def by_gauges(points: pl.DataFrame, names: list[str], slo: Slo) -> Verdict | None:
    """Return the verdict of gauges and rates (`points`: time_us, instance, indicator, value); `names` are all indicators that came. None without any."""
    if not names:
        return None
    note = "By the engine's gauges alone (no spans, no latency histogram): "
    if points.is_empty():
        sentence = f"{note}no queue, no running requests and no tokens are counted, only {', '.join(names[:6])}. No limit can be judged."
        return Verdict(
            status="not_enough_data",
            scope="engine_only",
            sentence=sentence,
            reasons=dict.fromkeys(_NULLS, "no gauge of waiting or running requests"),
        )
    mean = mean_of(points, slo)
    if mean is not None and mean.limit_ms is not None:
        return _over_by_mean(points, mean)
    onset = _onset(points)
    waits = mostly_waiting(points, onset)
    began = f" since {from_us(onset):%H:%M:%S} UTC" if waits and onset is not None else ""
    levels = [
        f"{waits}{began}" or _waiting(points),
        *_levels(points, onset),
        mean.said() if mean else "",
    ]
    seen = ", ".join(part for part in levels if part) or f"only {', '.join(names[:6])}"
    wait_ms = _wait_ms(points, onset) if waits else None
    limits = slo.limits()
    metric: Metric | None = "ttft" if "ttft" in limits else "e2e" if "e2e" in limits else None
    over = metric is not None and wait_ms is not None and wait_ms > limits[metric]
    if over and metric is not None and wait_ms is not None:
        said = f"by Little's law a request waits {say_ms(wait_ms)} on average, which alone is over the {metric.upper()} limit of {say_ms(limits[metric])}"
    else:
        wanted = " and ".join(
            f"{name.upper()} (limit {say_ms(limit)})" for name, limit in limits.items()
        )
        said = f"{wanted} {'is' if len(limits) == 1 else 'are'} not measured, so no limit is judged: latency histograms or spans are needed"
    why = "metrics without histograms do not show it"
    cause = cause_of("queue", Samples(points, onset)) if waits else None
    because = (
        f" {cause.brief or cause.because};"
        if cause is not None and cause.rule != "under_capacity"
        else ""
    )
    return Verdict(
        status="over_budget" if over else "not_enough_data",
        scope="engine_only",
        metric=metric if over else None,
        stage="queue" if waits else None,
        cause=cause.rule if cause else None,
        sentence=f"{note}{seen};{because} {said}.",
        onset=from_us(onset) if waits and onset is not None else None,
        owner="platform" if waits else None,
        mitigation=cause.mitigation if cause else None,
        rollback="Restore the former settings when no request waits." if waits else None,
        recheck_after_s=_RECHECK_S if waits else None,
        reasons=dict.fromkeys(_NULLS, why),
    )


def _over_by_mean(points: pl.DataFrame, mean: Mean) -> Verdict:
    """The verdict of a mean that is over its limit by itself."""
    cause = cause_of("queue", Samples(points, mean.onset_us)) if mean.waits else None
    because = f" It is the queue{f': {cause.because}' if cause else ''}." if mean.waits else ""
    owner: Owner = "platform" if mean.whose == "engine's" else "provider"
    step, undo = stopgap("queue" if mean.waits else "other", owner, [])
    return Verdict(
        status="over_budget",
        scope="engine_only",
        metric=mean.metric,
        stage="queue" if mean.waits else None,
        cause=cause.rule if cause else None,
        sentence=f"By the {mean.whose} counters alone (no spans, no latency histogram): {mean.said()}, which alone is over the "
        f"{mean.metric.upper()} limit of {say_ms(mean.limit_ms or 0.0)}.{because}",
        onset=None if mean.onset_us is None else from_us(mean.onset_us),
        owner=owner,
        mitigation=cause.mitigation if cause else step,
        rollback="Restore the former settings when no request waits." if cause else undo,
        recheck_after_s=_RECHECK_S,
        reasons=dict.fromkeys(_NULLS, "sums and counts do not show it"),
    )


def mostly_waiting(points: pl.DataFrame, onset_us: int | None) -> str:
    """Return how many requests wait since the onset, if some do in most samples; empty else."""
    waiting = _total(points, WAITING, onset_us)
    if len(waiting) < _LEAST_SAMPLES or float((waiting > 0.0).mean()) < MOSTLY:
        return ""
    return f"requests wait in {say_ratio(float((waiting > 0.0).mean()))} of the samples ({waiting.mean():,.0f} on average, at most {waiting.max():,.0f})"


def _waiting(points: pl.DataFrame) -> str:
    waiting = _total(points, WAITING, None)
    if not len(waiting):
        return ""
    return (
        f"requests wait in {say_ratio(float((waiting > 0.0).mean()))} of the samples"
        if waiting.max() > 0.0
        else "no request waits"
    )


def _levels(points: pl.DataFrame, onset_us: int | None) -> list[str]:
    """What else is counted, as means: running requests, the cache, tokens and their time."""
    running, limit = (
        _total(points, _RUNNING, onset_us),
        _total(points, ("running_limit",), onset_us),
    )
    kv = points.filter(pl.col("indicator") == "kv_cache_usage")["value"].to_numpy()
    tokens = {name: _total(points, (f"{name}_tokens",), onset_us) for name in ("prompt", "output")}
    told = [f"{values.mean():,.0f} {name}" for name, values in tokens.items() if len(values)]
    each = points.filter(pl.col("indicator") == "tpot_mean")["value"].to_numpy()
    parts = []
    if len(running):
        parts.append(
            f"{running.mean():,.1f} run".replace(".0 run", " run")
            + (f" of at most {limit.max():,.0f}" if len(limit) else "")
        )
    if len(kv):
        parts.append(f"the KV cache is {say_ratio(float(np.percentile(kv, 95.0)))} full (P95)")
    if told:
        parts.append(f"{' and '.join(told)} tokens/s")
    if len(each):
        parts.append(f"a token takes {say_ms(1000.0 * float(np.mean(each)))} on average")
    return parts


def _wait_ms(points: pl.DataFrame, onset_us: int | None) -> float | None:
    """How long a request waits on average by Little's law; None where finished requests are not counted."""
    waiting, finished = (
        _total(points, ("queue_depth",), onset_us),
        _total(points, ("finished",), onset_us),
    )
    return (
        1000.0 * float(waiting.mean() / finished.mean())
        if len(waiting) and len(finished) and finished.mean() > 0.0
        else None
    )


def _onset(points: pl.DataFrame) -> int | None:
    """Since when requests wait, None where no single moment parts the samples."""
    rows = (
        points.filter(pl.col("indicator").is_in(list(WAITING)))
        .group_by("time_us")
        .agg(pl.col("value").sum())
        .sort("time_us")
    )
    return (
        find_onset(
            rows["time_us"].to_numpy(), rows["value"].to_numpy() > 0.0, 0.05, least=LEAST_SCRAPES
        )
        if rows.height >= _LEAST_SAMPLES
        else None
    )


def _total(points: pl.DataFrame, indicators: tuple[str, ...], onset_us: int | None) -> FloatArray:
    """The sum over all instances at each moment, smoothed over the moments of one round of readings."""
    rows = points.filter(
        pl.col("indicator").is_in(list(indicators)) & (pl.col("time_us") >= (onset_us or 0))
    )
    instances = rows["instance"].n_unique()
    if instances <= 1:
        summed = rows.group_by("time_us").agg(pl.col("value").sum())
        values: FloatArray = summed.sort("time_us")["value"].to_numpy()
        return values
    # Instances are read at moments of their own: each one's mean per step of its course, summed.
    between = (
        rows.sort("time_us")
        .select(pl.col("time_us").diff().over("instance").drop_nulls().median())
        .item()
    )
    step = max(1, int(between or 1))
    summed = (
        rows.with_columns(at=pl.col("time_us") // step)
        .group_by("at", "instance")
        .agg(pl.col("value").mean())
        .group_by("at")
        .agg(pl.col("value").sum())
    )
    totals: FloatArray = summed.sort("at")["value"].to_numpy()
    return totals
