"""How much room has the engine's KV cache, and is it enough? Usage, preemptions and capacity, now against before."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.evidence.overlap import Flow
from overrun.analysis.incident.period import Period
from overrun.analysis.words.arrays import FloatArray

# KV usage (0..1) from which blocks are the limit: common alert level, a prior that is not learned on this engine.
KV_FULL: Final = 0.9
# Capacity that fell below this part of what it was is a change of the engine, not of the traffic; own default.
SHRUNK: Final = 0.85
# An engine that is busy in fewer samples than this part of the busiest one's is coming or going; own default.
FAIR_PART: Final = 0.1
OWN_FIGURE: Final = "the engine's own figure"
# Tokens held are averaged this far around a sample; samples on either side, and usage from which it can be divided by; own defaults.
AROUND_S: Final = 10.0
LEAST_SAMPLES: Final = 3
LEAST_USED: Final = 0.02


class Pressure(NamedTuple):
    """KV usage (0..1) at P95, preemptions per request, and capacity now over before (None: unknown), with how it is known."""

    usage: float
    usage_before: float | None
    preempted: float
    preempted_before: float | None
    capacity_ratio: float | None
    capacity_source: str


def pressure(case: Observed) -> Pressure | None:
    """Read usage, preemptions and capacity on both sides; None without samples of KV usage."""
    usage, usage_before = case.gauge("kv_cache_usage"), case.gauge("kv_cache_usage", before=True)
    if not len(usage):
        return None
    ratio, source = capacity_ratio(case)
    before = _per_request(case, case.baseline, case.calls_before, before=True)
    return Pressure(
        float(np.percentile(usage, 95.0)),
        float(np.percentile(usage_before, 95.0)) if len(usage_before) else None,
        _per_request(case, case.period, case.calls, before=False) or 0.0,
        before,
        ratio,
        source,
    )


def _per_request(
    case: Observed, period: Period | None, calls: Calls | None, *, before: bool
) -> float | None:
    """Preemptions per call: the rates of each engine over the time that it reported them, over the calls; None if none reported it."""
    rates = case.sampled("preemptions", before=before)
    if period is None or calls is None or rates.is_empty():
        return None
    return _counted(rates, period.seconds) / len(calls) if len(calls) else 0.0


def _counted(rates: pl.DataFrame, seconds: float) -> float:
    """How many events a counter's rates (per second) stand for: each holds since the instance's sample before it, one alone for all of the time."""
    gaps = rates.sort("time_us").with_columns(
        gap=(pl.col("time_us") - pl.col("time_us").shift(1).over("instance")) / 1e6
    )
    gaps = gaps.with_columns(gap=pl.col("gap").fill_null(pl.col("gap").median().over("instance")))
    found = gaps.select((pl.col("value") * pl.col("gap").fill_null(seconds)).sum()).item()
    return float(found or 0.0)


def blocks_lack(case: Observed) -> bool:
    """Say whether KV blocks are what the engines lack: usage at its limit while calls wait or are preempted."""
    usage = case.gauge("kv_cache_usage")
    lacking = any(
        bool((case.gauge(indicator) > 0.0).any()) for indicator in ("preemptions", "queue_depth")
    )
    return lacking and len(usage) > 0 and float(np.percentile(usage, 95.0)) >= KV_FULL


def own_part(case: Observed, hit: float | None) -> float | None:
    """Return the part (0..1) of cached tokens that each call holds for itself, as a conversation its history; heads that prompts share are held once.

    From the tokens that the baseline's engines held (usage x capacity), between those that its running calls had to compute and all of theirs. None
    if no capacity is recorded. `hit` is the cached part of all input if calls do not report theirs.
    """
    capacity, calls = case.gauge("kv_capacity", before=True), case.calls_before
    if calls is None or not len(capacity):
        return None
    (start, end, whole), (*_, new) = _held([calls])
    if len(whole) != len(new) or len(whole) < MIN_CALLS:
        return None
    usage = _series(case, "kv_cache_usage").filter(
        pl.col("at_s").is_between(start.min() + AROUND_S, _ended(start, end) - AROUND_S)
    )
    at, used = (
        usage["at_s"].to_numpy(),
        usage["value"].to_numpy() * usage["engines"].to_numpy() * float(np.median(capacity)),
    )
    if len(at) < LEAST_SAMPLES:
        return None
    all_of, computed = (_around(start, end, tokens, at) / case.kept for tokens in (whole, new))
    computed = computed if hit is None else computed * (1.0 - hit)
    cached = float((all_of - computed).sum())
    return min(1.0, max(0.0, float((used - computed).sum())) / cached) if cached > 0.0 else 0.0


def shrunk(case: Observed) -> bool:
    """Say whether the engines' KV memory became smaller: what is held then falls out of the cache, and running sequences out of the batch."""
    ratio, _ = capacity_ratio(case)
    return ratio is not None and ratio < SHRUNK


def capacity_ratio(case: Observed) -> tuple[float | None, str]:
    """Return the KV capacity now over the one before and how it is known: the engine's own figure, else tokens held over KV usage; None unknown.

    Preemptions may begin minutes before the first limit is missed, so the two sides are parted at the first of them, else at the onset. Tokens
    held are those of finished calls (input and half of the output while they ran): near the end, where calls still run, it is not known.
    Prompts that share their head share its blocks: capacity counts as smaller only if it is, both with what was in the cache and without it.
    """
    told = _told(case)
    if told is not None:
        return told, OWN_FIGURE
    sides = [calls for calls in (case.calls_before, case.calls) if calls is not None]
    usage, preempted = (
        _series(case, "kv_cache_usage"),
        _series(case, "preemptions").filter(pl.col("value") > 0),
    )
    if usage.is_empty() or case.calls_before is None:
        return None, "unknown"
    parted = (case.period.start - case.origin).total_seconds()
    since = (
        min(parted, float(preempted["at_s"].to_numpy().min()))
        if not preempted.is_empty()
        else parted
    )
    ratios = [_full_at(*held, usage, since) for held in _held(sides)]
    known_ratios = [ratio for ratio in ratios if ratio is not None]
    return (
        (max(known_ratios), "tokens held over KV usage")
        if len(known_ratios) == len(ratios)
        else (None, "unknown")
    )


def _told(case: Observed) -> float | None:
    """Return the capacity that engines tell now over the most that they told before; None untold.

    Engines that are the same are compared each with itself, those that replaced others with those. What hardly served on a side is not of it.
    A cache that shrank while it had room to spare shrank before the onset: the batch grows over minutes until the smaller one is full.
    """
    now, before = _capacities(case, before=False), _capacities(case, before=True)
    if not now or not before:
        return None
    same = [name for name in now if name in before]
    new, gone = ([side[name] for name in side if name not in same] for side in (now, before))
    replaced = min(len(new), len(gone))
    had, has = (
        sum(_most(before[name]) for name in same),
        sum(float(np.median(now[name])) for name in same),
    )
    if replaced:
        had += replaced * float(np.mean([np.median(values) for values in gone]))
        has += replaced * float(np.mean([np.median(values) for values in new]))
    return has / had if had > 0.0 else None


def _capacities(case: Observed, *, before: bool) -> dict[str | None, FloatArray]:
    """The capacities that each engine told that did a fair part of the work of the period or the baseline; of all engines where none reports its work."""
    told = case.sampled("kv_capacity", before=before).sort("time_us")
    busy = case.busy_samples(before=before).filter(pl.col("busy"))["instance"].value_counts()
    most = float(busy["count"].max() or 0)  # type: ignore[arg-type]
    fair = busy.filter(pl.col("count") >= FAIR_PART * most)["instance"].to_list()
    served = told.filter(pl.col("instance").is_in(fair)) if fair else told
    return {
        name: part["value"].to_numpy()
        for (name,), part in (told if served.is_empty() else served).group_by("instance")
    }


def _most(values: FloatArray) -> float:
    """Return the largest median of three samples in a row, so that one alone shows nothing; the median of fewer."""
    if len(values) <= LEAST_SAMPLES:
        return float(np.median(values))
    return float(
        np.median(np.lib.stride_tricks.sliding_window_view(values, LEAST_SAMPLES), axis=1).max()
    )


def _full_at(
    start: FloatArray, end: FloatArray, held: FloatArray, usage: pl.DataFrame, since_s: float
) -> float | None:
    """Tokens at which the cache would be full, after a moment over before it; None below 30 calls or 3 samples on either side."""
    if len(start) < MIN_CALLS:
        return None
    at, used = usage["at_s"].to_numpy(), usage["value"].to_numpy() * usage["engines"].to_numpy()
    tokens = _around(start, end, held, at)
    inside = (
        (at > start.min() + AROUND_S) & (at < _ended(start, end) - AROUND_S) & (used > LEAST_USED)
    )
    sides = [
        tokens[chosen] / used[chosen]
        for chosen in (inside & (at < since_s), inside & (at >= since_s))
    ]
    if min(len(side) for side in sides) < LEAST_SAMPLES:
        return None
    before, after = (float(np.median(side)) for side in sides)
    return after / before if before > 0.0 else None


def _around(start: FloatArray, end: FloatArray, held: FloatArray, at: FloatArray) -> FloatArray:
    """Tokens that calls held at these moments, averaged around each."""
    return Flow(start, end, held * (end - start)).between(at - AROUND_S, at + AROUND_S) / (
        2.0 * AROUND_S
    )


def _ended(start: FloatArray, end: FloatArray) -> float:
    """Until when all calls that ran have ended: of those that still ran, nothing is known."""
    return float(end.max() - np.percentile(end - start, 95.0))


def _held(sides: list[Calls]) -> list[tuple[FloatArray, FloatArray, FloatArray]]:
    """When calls held KV memory and how many tokens of it: all of their input, and only what no cache held."""
    start, end = (
        np.concatenate([getattr(calls, name) for calls in sides])
        for name in ("scheduled_s", "last_s")
    )
    answer = np.concatenate([calls.of("output_tokens") for calls in sides])
    out = []
    for n_in in (
        np.concatenate([calls.of("input_tokens") for calls in sides]),
        np.concatenate([calls.new_tokens for calls in sides]),
    ):
        chosen = known(n_in, answer, start, end)
        out.append((start[chosen], end[chosen], (n_in + answer / 2.0)[chosen]))
    return out


def _series(case: Observed, indicator: str) -> pl.DataFrame:
    """Mean of an indicator over the engines per sample time, and how many reported, with the time in seconds after the case's origin."""
    origin_us = int(case.origin.timestamp() * 1e6)
    chosen = (
        case.points.filter(pl.col("indicator") == indicator)
        .group_by("time_us")
        .agg(pl.col("value").mean(), engines=pl.col("instance").n_unique())
        .sort("time_us")
    )
    return chosen.with_columns(at_s=(pl.col("time_us") - origin_us) / 1e6)
