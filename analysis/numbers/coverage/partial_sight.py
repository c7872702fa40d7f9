"""What do stored calls stand for, where an engine counted more of them? Their distribution against the engine's own histograms.

A sampler that looked at nothing, or an application that asks for the same as others do, leaves the distribution as it was. A tail sampler keeps what is slow or
failed and a share of the rest: the share follows from the engine's count. Other applications on the engine may ask for other lengths or at other times: then these
explain the difference. What is left is weighed so that its calls are distributed as the engine counted them (post-stratification: Holt and Smith, JRSS A 142, 1979).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, Literal

import numpy as np
import polars as pl

from overrun.analysis.numbers.latency.histograms import Increments
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.finding import say_ms, say_ratio

# Part of a latency bucket that may be missing or too much before the stored calls are another distribution: P95 then moves by less than its own interval from
# 800 requests has; with fewer calls in a bucket, chance may do it.
SAME: Final = 1.25
# Chance that calls drawn at random are called another distribution, over all buckets together; own default.
BY_CHANCE: Final = 0.002
# Fewest calls that a group of buckets is expected to store, and fewest of all: below it the normal approximation fails.
_LEAST_STORED: Final = 10.0
# Groups of the time that counters cover, for what comes at other times than the rest; own default.
_SLICES: Final = 20
# From here on all of a tail sampler's slow calls are stored; the rest covers the edges of the counters' intervals.
_ALL_KEPT: Final = 0.9
# How many limits are tried for a tail sampler, and within which factor around one the number of requests must jump by its share; own defaults.
_LIMITS: Final = 400
_AROUND: Final = 1.15
_JUMP_Z: Final = 3.0
_SAME_DENSITY: Final = 2.5
# The most calls that a stored one may stand for, and the part of all calls that may lie where none is stored.
MOST_WEIGHT: Final = 100.0
_MOST_UNSEEN: Final = 0.02
_RAKINGS: Final = 20
# Fewest requests from which the parts of their time are laid side by side.
_LEAST_PARTS: Final = 100
_EVEN: Final = "; they are as fast and as slow as all that were counted, and are judged"

Reading = Literal["same", "others", "tail", "weighed", "unknown"]


@dataclass(frozen=True)
class Sight:
    """What the stored requests stand for, in words after their number.

    `same` and `others`: for themselves. `tail`: a request over `limit_ms` or failed stands for itself, another for `weight` (infinite: none of these is stored).
    `weighed`: each for the `weights` of its trace (columns trace_key, weight). `unknown`: for nothing known.
    """

    reading: Reading
    detail: str
    limit_ms: float = np.inf
    weight: float = 1.0
    weights: pl.DataFrame | None = None


def sight(
    calls: pl.DataFrame,
    times: str,
    counted: Increments,
    lengths: Mapping[str, Increments],
    *,
    own_count: bool = False,
    marked: bool = False,
) -> Sight:
    """Return what the calls of sql/partial_calls.sql stand for beside a histogram of the column `times`.

    Args:
        calls: one row per stored call that the histogram counted.
        times: the column that the histogram counts, `engine_e2e_ms` or `e2e_ms`.
        counted: the histogram's increments (seconds) over the same time.
        lengths: histograms of tokens by the calls' column, over the same time.
        own_count: whether the sender counted its calls itself, and all of these are stored: the others are of other senders.
        marked: whether a sampler says itself that it chose by what happened.
    """
    calls = calls.filter(pl.col(times).is_not_null())
    if calls.height < _LEAST_STORED:
        return Sight("unknown", ", too few to know whether they are like the others")
    if own_count:
        return Sight(
            "others",
            "; the sender itself counted no more than these, so the others are of other senders",
        )
    buckets = _Groups(1000.0 * counted.edges, counted.counts.sum(axis=0), calls[times].to_numpy())
    uniform = np.full(calls.height, counted.n / calls.height)
    tail = _tail(calls, times, buckets, counted.n, marked=marked)
    if tail is not None:
        return tail
    if buckets.fit(uniform):
        return Sight("same", _EVEN)
    if not marked and _other_work(calls, buckets, uniform, counted, lengths):
        return Sight(
            "others",
            "; for as many tokens and at the same times they are as fast as the others, which ask for other lengths or at other times: the stored ones are "
            "judged by themselves",
        )
    if not marked and buckets.quicker(uniform):
        return Sight(
            "others",
            "; those that were counted beside them are slower, and no sampler prefers quick requests: the others are of other senders, and the stored ones are "
            "judged by themselves",
        )
    return _weighed(calls, buckets)


class _Groups:
    """Stored calls by the buckets of a counter (upper edges, counts with one more for what lies beyond), neighbours brought together until enough are stored."""

    def __init__(self, edges: FloatArray, count: FloatArray, values: FloatArray) -> None:
        of_bucket = np.searchsorted(edges, values, side="left")
        share = len(values) / max(float(count.sum()), 1.0)
        group = np.zeros(len(count), np.int64)
        reached, last = 0.0, 0
        for bucket in range(len(count) - 1, -1, -1):  # from the slow end on, which matters most
            group[bucket] = last
            reached += float(count[bucket])
            if reached * share >= _LEAST_STORED:
                reached, last = 0.0, last + 1
        if reached > 0.0 and last > 0:
            group[group == last] = last - 1
        self.lower = np.concatenate([[0.0], edges])
        self.group = group
        self.of_call = group[of_bucket]
        self.counted = np.bincount(group, count)

    def told(self, weights: FloatArray) -> FloatArray:
        """How many calls the weighted ones stand for, per group."""
        told: FloatArray = np.bincount(self.of_call, weights, len(self.counted)).astype(np.float64)
        return told

    def fit(self, weights: FloatArray) -> bool:
        """Say whether the weighted calls are distributed as all were counted, but for chance and `SAME`."""
        told, stored = self.told(weights), self.told(np.ones(len(weights)))
        each = np.where(stored > 0.0, told / np.maximum(stored, 1.0), weights.mean())
        chance = NormalDist().inv_cdf(1.0 - BY_CHANCE / (2.0 * len(self.counted)))
        off = chance * np.sqrt(self.counted * np.maximum(each - 1.0, 0.0))
        more, less = np.maximum(told, self.counted), np.minimum(told, self.counted)
        wrong = (more - less > off) & (more > SAME * less)
        return not bool(wrong.any())

    def off(self, weights: FloatArray) -> float:
        """How far the weighted calls are from what was counted, in squared standard errors, over all groups (Pearson's chi-squared)."""
        told = self.told(weights)
        spread = self.told(weights * (weights - 1.0)) + 1.0
        return float(((told - self.counted) ** 2 / spread).sum())

    def quicker(self, weights: FloatArray) -> bool:
        """Say whether fewer of the slowest twentieth at least that was counted are among the weighted calls than chance and `SAME` leave open."""
        slowest = np.cumsum(self.counted) <= 0.05 * self.counted.sum()
        slowest[int(slowest.sum())] = True
        told, counted = float(self.told(weights)[slowest].sum()), float(self.counted[slowest].sum())
        off = NormalDist().inv_cdf(1.0 - BY_CHANCE) * np.sqrt(counted * (weights.mean() - 1.0))
        return counted - told > off and counted > SAME * told

    def whole_above(self, limit: float) -> bool:
        """Say whether all calls of the groups above a limit are stored, where enough were counted there."""
        above = self.above(limit)
        counted = float(self.counted[above].sum())
        stored = float(self.told(np.ones(len(self.of_call)))[above].sum())
        return counted >= _LEAST_STORED and stored >= _ALL_KEPT * counted

    def above(self, value: float) -> BoolArray:
        """Which groups lie above a value as a whole."""
        lowest = np.full(len(self.counted), np.inf)
        np.minimum.at(lowest, self.group, self.lower)
        return lowest >= value


def _tail(
    calls: pl.DataFrame, times: str, buckets: _Groups, n: int, *, marked: bool
) -> Sight | None:
    """Return the tail sampler that explains what is stored: every request over a limit or failed, and a share of the others; None where none does.

    At its limit the number of stored requests jumps by just that share, or all calls above it are stored and less than half of the others; and with it the
    engine's count is met in every bucket.
    """
    request = calls["request_ms"].cast(pl.Float64).fill_null(0.0).to_numpy()
    failed = calls["request_error"].fill_null(value=False).to_numpy().astype(np.bool_)
    answered = np.sort(request[~failed])
    if not len(answered) or _cut_off(
        calls.filter(~pl.Series(failed)), times, buckets, float(answered[0])
    ):
        limit = float(answered[0]) if len(answered) else np.inf
        return Sight("tail", _say_tail(limit, 0.0), limit, np.inf)
    best: tuple[float, Sight] | None = None
    for limit in _limits(answered):
        kept = failed | (request >= limit)
        rest = int((~kept).sum())
        share = rest / max(n - int(kept.sum()), 1)
        if not 1.0 / MOST_WEIGHT <= share < _ALL_KEPT:
            continue
        jump = _jump(answered, float(limit), share)
        if np.isinf(limit) and marked and failed.any():
            jump = _JUMP_Z
        sure = jump >= _JUMP_Z or (jump > 0.0 and share < 0.5 and buckets.whole_above(limit))
        weights = np.where(kept, 1.0, 1.0 / share)
        if not sure or not buckets.fit(weights):
            continue
        likely = jump**2 - buckets.off(weights)
        if best is None or likely > best[0]:
            best = likely, Sight("tail", _say_tail(limit, share), float(limit), 1.0 / share)
    return None if best is None else best[1]


def _limits(answered: FloatArray) -> FloatArray:
    """Limits to try, ms: requests that are stored, so that the sampler's own limit lies just below one of them; and none at all."""
    if not len(answered):
        return np.array([np.inf])
    places = np.unique(np.linspace(0, len(answered) - 1, _LIMITS).astype(np.int64))
    return np.append(np.unique(answered[places]), np.inf)


def _jump(answered: FloatArray, limit: float, share: float) -> float:
    """By how many standard errors the number of requests rises at a limit; 0 where that is not by the share that the sampler would keep below it."""
    low, at, high = np.searchsorted(answered, [limit / _AROUND, limit, limit * _AROUND])
    below, above = int(at - low), int(high - at)
    expected = above * share
    off = abs(below - expected) > _JUMP_Z * np.sqrt(expected + 1.0)
    if off and not expected / _SAME_DENSITY <= below <= expected * _SAME_DENSITY:
        return 0.0
    return max(float((above - below) / np.sqrt(above + below + 1.0)), 1e-6)


def _cut_off(calls: pl.DataFrame, times: str, buckets: _Groups, limit: float) -> bool:
    """Say whether nothing below a limit is stored that was there: all calls that took longer are, or the edge lies in the requests and in neither of their parts."""
    request = calls["request_ms"].cast(pl.Float64).fill_null(0.0).to_numpy()
    if int((request < limit * _AROUND).sum()) < _JUMP_Z**2:
        return False
    if float(buckets.counted[buckets.above(limit)].sum()) >= _LEAST_STORED:
        return buckets.whole_above(limit)
    if calls.height < _LEAST_PARTS:
        return False
    inside = calls[times].to_numpy()
    low = np.quantile(inside, 0.05) + np.quantile(np.maximum(request - inside, 0.0), 0.05)
    return bool(limit > low)


def _say_tail(limit: float, share: float) -> str:
    slow = (
        f"all requests over {say_ms(float(limit))} or failed"
        if np.isfinite(limit)
        else "all failed requests"
    )
    rest = f"{say_ratio(share)} of the others" if share else "none of the others"
    return f", as a sampler leaves them that keeps {slow} and {rest}"


def _other_work(
    calls: pl.DataFrame,
    buckets: _Groups,
    uniform: FloatArray,
    counted: Increments,
    lengths: Mapping[str, Increments],
) -> bool:
    """Say whether calls are as fast as those that were counted once they are weighed to have as many tokens and to come at the same times (raking)."""
    moments = np.unique(counted.to_us)
    ends = moments[np.linspace(0, len(moments) - 1, min(_SLICES, len(moments)) + 1).astype(int)][1:]
    per_slice = np.bincount(
        np.searchsorted(ends, counted.to_us), counted.counts.sum(axis=1), len(ends) + 1
    )
    margins = [
        _Groups(ends.astype(np.float64), per_slice.astype(np.float64), calls["end_us"].to_numpy())
    ]
    for column, one in lengths.items():
        values = calls[column].cast(pl.Float64)
        if not values.null_count() and one.n:
            margins.append(_Groups(one.edges, one.counts.sum(axis=0), values.to_numpy()))
    if all(margin.fit(uniform) for margin in margins):
        return False
    weights = uniform.copy()
    for _ in range(_RAKINGS):
        for margin in margins:
            weights = (
                weights * (margin.counted / np.maximum(margin.told(weights), 1e-9))[margin.of_call]
            )
    return bool(weights.max() <= MOST_WEIGHT * uniform[0]) and buckets.fit(weights)


def _weighed(calls: pl.DataFrame, buckets: _Groups) -> Sight:
    """Weigh calls by the buckets of the histogram; unknown where too many were counted in buckets of which none is stored."""
    stored = buckets.told(np.ones(calls.height))
    total = float(buckets.counted.sum())
    unseen = float(buckets.counted[stored == 0.0].sum()) / total
    weight = buckets.counted / np.maximum(stored, 1.0)
    if unseen > _MOST_UNSEEN or weight[stored > 0.0].max() > MOST_WEIGHT:
        return Sight(
            "unknown", f", and {say_ratio(unseen)} were counted at times of which none is stored"
        )
    each = pl.DataFrame({"trace_key": calls["trace_key"], "weight": weight[buckets.of_call]})
    return Sight(
        "weighed",
        ", slow and fast ones in other shares: each counts for as many as the engine counted at its speed",
        weights=each.group_by("trace_key").agg(pl.col("weight").mean()),
    )
