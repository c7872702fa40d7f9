"""How slow were the successful requests? Exact percentiles with intervals, and null where n is too small.

Takes the rows of a `RequestFrame`; the same functions serve what-ifs and back-tests on bare arrays.
"""

import functools
import math
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.statistics.proportion import Z_95
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import say_count, say_ratio

CONFIDENCE: Final = 0.95
# Fewest samples per percentile: the sample maximum lies above the true percentile with 95 % confidence (1 - p^n >=
# 0.95), for the median both extremes around it (two-sided, 1 - 2 x 0.5^n >= 0.95).
MIN_N: Final = {50.0: 6, 75.0: 11, 90.0: 29, 95.0: 59, 99.0: 299, 99.9: 2995}
# Fewest samples for a two-sided 95 % interval: no order statistic lies far enough above the percentile below these.
MIN_N_INTERVAL: Final = {50.0: 6, 95.0: 72, 99.0: 368}
_FIELDS: Final = {50.0: "p50", 75.0: "p75", 90.0: "p90", 95.0: "p95", 99.0: "p99", 99.9: "p99_9"}
_NULLS: Final = (*_FIELDS.values(), "p50_interval", "p95_interval", "p99_interval", "max", "source")

_WHY_EMPTY: Final = {
    "ttft": "no successful request carries a time to first token: stream the answers and record the first chunk",
    "itl": "no successful request carries chunk events, and token gaps are not known without them",
    "tpot": "no successful request carries a first token and at least 2 output tokens",
    "e2e": "no successful request in the window",
}
_SOURCES: Final = {
    "itl": "chunk events",
    "tpot": "(e2e - ttft) / (output tokens - 1)",
    "e2e": "request spans",
}
_CUT: Final = (
    "events_dropped"  # the source of a first token that was in events which the sender dropped
)
_WHY_CUT: Final = "events_dropped: no first token is known, and of {cut} the sender dropped the other events (OTEL_SPAN_EVENT_COUNT_LIMIT)"


class Percentiles(msgspec.Struct, kw_only=True):
    """Percentiles of one metric over successful requests, in milliseconds.

    Interpolated linearly, as numpy and `quantile_cont` do. `*_interval` are 95 % intervals from order statistics.
    `source` says who measured. What is null has its reason in `reasons`.
    """

    n: int
    p50: float | None = None
    p75: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    p99_9: float | None = None
    p50_interval: tuple[float, float] | None = None
    p95_interval: tuple[float, float] | None = None
    p99_interval: tuple[float, float] | None = None
    max: float | None = None
    source: str | None = None
    reasons: dict[str, str] = {}

    def at(self, percentile: float) -> float | None:
        """Return one of the listed percentiles, None for any other."""
        name = _FIELDS.get(percentile)
        return getattr(self, name) if name else None


class Latency(msgspec.Struct, kw_only=True):
    """The four user-visible latencies, each a distribution over requests."""

    ttft_ms: Percentiles
    itl_ms: Percentiles
    tpot_ms: Percentiles
    e2e_ms: Percentiles


def latency(rows: pl.DataFrame, *, raw: bool = False, weights: FloatArray | None = None) -> Latency:
    """Return TTFT, ITL, TPOT and E2E percentiles of the successful requests in `rows`; `raw` and `weights` as in `percentiles`."""
    succeeded = ~rows["error"]
    ok = rows.select("ttft_source", *(f"{metric}_ms" for metric in _WHY_EMPTY)).filter(succeeded)
    if weights is not None:
        weights = weights[succeeded.to_numpy()]
    parts = {}
    for metric, empty in _WHY_EMPTY.items():
        column = ok[f"{metric}_ms"]
        values = column.drop_nulls().to_numpy()
        cut = (
            ok.filter((pl.col("ttft_source") == _CUT).fill_null(False)).height
            if metric in ("ttft", "tpot")
            else 0
        )
        why = _WHY_CUT.format(cut=say_count(cut, "request")) if cut else empty
        mine = None if weights is None else weights[column.is_not_null().to_numpy()]
        parts[f"{metric}_ms"] = percentiles(
            values, source=_source(ok, metric, len(values)), empty=why, raw=raw, weights=mine
        )
    return Latency(**parts)


def no_latency(why: str, n: int = 0) -> Latency:
    """Return four latencies that are null for one reason."""
    return Latency(
        **{
            f"{metric}_ms": Percentiles(n=n, reasons=dict.fromkeys(_NULLS, why))
            for metric in _WHY_EMPTY
        }
    )


def percentiles(
    values: FloatArray,
    *,
    source: str | None = None,
    empty: str = "no sample",
    raw: bool = False,
    weights: FloatArray | None = None,
) -> Percentiles:
    """Return percentiles and intervals of a 1-d array of finite milliseconds, in any order.

    A percentile that n cannot support is null with its reason. `raw=True` gives every percentile from one sample on:
    for back-tests, which compare like with like, never for people. `weights` say for how many requests each value stands: where they differ, the
    percentiles are weighted and the intervals those of the effective sample size (sum w)^2 / sum w^2 (Kish, Survey Sampling, 1965).
    """
    if weights is not None and len(values) and (weights != weights[0]).any():
        return _weighted(values, weights, source)
    ordered = np.sort(values)
    n = len(ordered)
    stats = Percentiles(n=n, source=source if n else None, reasons={})
    if n == 0:
        stats.reasons = dict.fromkeys(_NULLS, empty)
        return stats
    stats.max = float(ordered[-1])
    stats.reasons = why_too_few(n, stats.max)
    for percentile, name in _FIELDS.items():
        if raw or n >= MIN_N[percentile]:
            setattr(stats, name, sorted_quantile(ordered, percentile / 100.0))
            stats.reasons.pop(name, None)
    for percentile, needed in MIN_N_INTERVAL.items():
        if n >= needed:
            both = quantile_interval(ordered, percentile / 100.0)
            setattr(stats, f"{_FIELDS[percentile]}_interval", both)
    return stats


def why_too_few(n: int, most_ms: float) -> dict[str, str]:
    """Return why `n` requests, the slowest of which took so many ms, have no value for some percentiles and intervals."""
    reasons = {
        name: f"P{percentile:g} needs at least {MIN_N[percentile]} requests, there are {n}; max is {most_ms:.1f} ms"
        for percentile, name in _FIELDS.items()
        if n < MIN_N[percentile]
    }
    return reasons | {
        f"{_FIELDS[percentile]}_interval": f"a 95 % interval of P{percentile:g} needs at least {needed} requests, there are {n}"
        for percentile, needed in MIN_N_INTERVAL.items()
        if n < needed
    }


def _weighted(values: FloatArray, weights: FloatArray, source: str | None) -> Percentiles:
    order = np.argsort(values, kind="stable")
    ordered, w = values[order], weights[order]
    middle = _middles(w)
    effective = worth(w)
    stats = Percentiles(n=len(values), source=source, reasons={}, max=float(ordered[-1]))

    def at(p: float) -> float:
        return float(np.interp(p, middle, ordered))

    for percentile, name in _FIELDS.items():
        p = percentile / 100.0
        if effective < MIN_N[percentile]:
            stats.reasons[name] = (
                f"P{percentile:g} needs at least {MIN_N[percentile]} requests, the {len(values)} sampled ones are worth {effective:.0f}"
            )
        else:
            setattr(stats, name, at(p))
        if percentile in MIN_N_INTERVAL:
            half = Z_95 * math.sqrt(p * (1.0 - p) / effective)
            if effective >= MIN_N_INTERVAL[percentile] and p + half < 1.0:
                setattr(stats, f"{name}_interval", (at(p - half), at(p + half)))
            else:
                stats.reasons[f"{name}_interval"] = (
                    f"the {len(values)} sampled requests are worth {effective:.0f}, too few for an interval of P{percentile:g}"
                )
    return stats


def worth(weights: FloatArray) -> float:
    """Return how many equally weighted requests tell as much: (sum w)^2 / sum w^2 (Kish, Survey Sampling, 1965); 0 of none."""
    return float(weights.sum() ** 2 / (weights**2).sum()) if len(weights) else 0.0


def min_n(percentile: float) -> int:
    """Return the fewest samples that support any percentile from 50 up.

    Least n with 1 - p^n >= 0.95 (6 for the median).
    """
    if percentile in MIN_N:
        return MIN_N[percentile]
    return max(MIN_N[50.0], math.ceil(math.log(1.0 - CONFIDENCE) / math.log(percentile / 100.0)))


def quantile(values: FloatArray, p: float, weights: FloatArray | None = None) -> float:
    """Return one quantile (0..1) of a non-empty array in any order, as `sorted_quantile` does after sorting: an eighth of the time.

    Weighted as in `percentiles` where weights differ.
    """
    n = len(values)
    if weights is not None and (weights != weights[0]).any():
        order = np.argsort(values, kind="stable")
        return float(np.interp(p, _middles(weights[order]), values[order]))
    position = p * (n - 1)
    low = math.floor(position)
    parted = np.partition(values, low)
    return sorted_quantile(
        np.array([parted[low], parted[low + 1 :].min() if low + 1 < n else parted[low]]),
        position - low,
    )


def _middles(weights: FloatArray) -> FloatArray:
    """Which quantile (0..1) each of the ascending values of these weights is: the middle of what it stands for."""
    middles: FloatArray = (np.cumsum(weights) - 0.5 * weights) / weights.sum()
    return middles


def sorted_quantile(ordered: FloatArray, p: float) -> float:
    """Return the p-quantile (0..1) of an ascending, non-empty array with numpy's default linear interpolation."""
    position = p * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    a, b, t = float(ordered[low]), float(ordered[high]), position - low
    # The form that numpy uses: exact at both ends and monotone in t.
    return b - (b - a) * (1.0 - t) if t >= 0.5 else a + (b - a) * t


def interval_places(n: int, p: float) -> tuple[float, float] | None:
    """Return between which places of `n` ascending values (0 to n - 1) the ends of `quantile_interval` lie, None where n is too small."""
    ranks = _interval_ranks(n, p)
    if ranks is None:
        return None
    low_rank, low_weight, high_rank, high_weight = ranks
    return low_rank - 1 + low_weight, n - high_rank - high_weight


def quantile_interval(ordered: FloatArray, p: float) -> tuple[float, float] | None:
    """Return a two-sided 95 % interval for the p-quantile from an ascending array, None when n is too small.

    Order statistics around the quantile, interpolated between neighbours so that each side misses with 2.5 % instead of
    "at most 2.5 %": Nyblom, "Note on interpolated order statistics", Statistics & Probability Letters 14 (1992); for
    p = 0.5 it is the Hettmansperger-Sheather interval. Assumes independent samples.
    """
    n = len(ordered)
    ranks = _interval_ranks(n, p)
    if ranks is None:
        return None
    low_rank, low_weight, high_rank, high_weight = ranks
    low = _between(ordered, low_rank, low_weight)
    # The upper side is the lower side of the reversed sample, so its rank counts from the largest value down.
    high = _between(ordered[::-1], high_rank, high_weight)
    return low, high


def _between(ordered: FloatArray, rank: int, weight: float) -> float:
    return float(ordered[rank - 1] * (1.0 - weight) + ordered[rank] * weight)


@functools.lru_cache(maxsize=256)
def _interval_ranks(n: int, p: float) -> tuple[int, float, int, float] | None:
    low, high = _lower_rank(n, p), _lower_rank(n, 1.0 - p)
    return (*low, *high) if low is not None and high is not None else None


def _lower_rank(n: int, p: float) -> tuple[int, float] | None:
    """Return (r, weight): the bound lies `weight` of the way from the r-th smallest value (1-based) to the next."""
    first, cdf = _binomial_cdf(n, p)
    tail = (1.0 - CONFIDENCE) / 2.0
    # P(X_(r) > quantile) = P(at most r - 1 samples below it); the largest r for which that is within the tail.
    reached = int(np.searchsorted(cdf, tail, side="right"))
    rank = first + reached
    if reached == 0 or rank >= n:
        return None
    below, above = float(cdf[reached - 1]), float(cdf[reached])
    if tail - below <= 0.0:
        return rank, 0.0
    weight = 1.0 / (1.0 + rank * (1.0 - p) * (above - tail) / ((n - rank) * p * (tail - below)))
    return rank, weight


def binomial_tail(n: int, k: int, p: float) -> float:
    """Return P(B >= k) for B ~ Binomial(n, p), 0 <= p <= 1, to about 1e-12."""
    if k <= 0 or p >= 1.0:
        return 1.0 if k <= n else 0.0
    if k > n or p <= 0.0:
        return 0.0
    first, cdf = _binomial_cdf(n, p)
    at = k - 1 - first
    return 1.0 if at < 0 else max(0.0, 1.0 - float(cdf[at])) if at < len(cdf) else 0.0


def _binomial_cdf(n: int, p: float) -> tuple[int, FloatArray]:
    """Return (first, P(B <= k) for k = first, first + 1, ...) for B ~ Binomial(n, p), around its mean.

    Terms farther than 12 standard deviations (below 1e-30) are left out, so that a million samples cost thousands of
    terms.
    """
    mean, deviation = n * p, math.sqrt(n * p * (1.0 - p))
    first = max(0, math.floor(mean - 12.0 * deviation - 12.0))
    last = min(n, math.ceil(mean + 12.0 * deviation + 12.0))
    k = np.arange(first, last, dtype=np.float64)
    steps = np.log((n - k) / (k + 1.0) * (p / (1.0 - p)))
    start = (
        math.lgamma(n + 1)
        - math.lgamma(first + 1)
        - math.lgamma(n - first + 1)
        + first * math.log(p)
        + (n - first) * math.log1p(-p)
    )
    return first, np.cumsum(np.exp(start + np.concatenate([[0.0], np.cumsum(steps)])))


def _source(rows: pl.DataFrame, metric: str, n: int) -> str | None:
    """Say who measured a metric: for TTFT the shares of client attribute, client event and engine."""
    if n == 0:
        return None
    kinds = rows.filter(pl.col("ttft_ms").is_not_null()).group_by("ttft_source").len()
    return source_of(metric, dict(kinds.iter_rows()))


def source_of(metric: str, counts: Mapping[str, int]) -> str:
    """Return who measured a metric; `counts` are the requests by the source of their TTFT."""
    if metric != "ttft":
        return _SOURCES[metric]
    if len(counts) == 1:
        return str(next(iter(counts)))
    n = sum(counts.values())
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{source} {say_ratio(round(count / n, 2))}" for source, count in ordered)
