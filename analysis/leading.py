"""Which engine indicator warns before requests go bad, how early, and how often for nothing? Learned on the user's own data.

Event based: an alert is the moment when an indicator rises over a threshold (or falls below it), told once in two minutes while it stays on; a breach
the moment when the share of bad requests rises over what the SLO allows, by more than chance. Precision, recall and lead are compared with alerts at
random times; what rises only after the breach is said to lag.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import polars as pl

from analysis.budget import BoolArray, FloatArray
from analysis.incident import IntArray
from analysis.latency import binomial_tail

# A breach counts as announced when it begins within this time after an alert: two minutes are what a person or an autoscaler needs. Own default
# in the middle of the field's 30 to 120 s.
HORIZON_S: Final = 120.0
# An indicator that rises up to this long after the breach began follows it.
LAG_S: Final = 60.0
# Fewest breaches to learn from: below three a threshold fits one event.
LEAST_EVENTS: Final = 3
# Requests per step of time whose bad share is judged; a share of fewer jumps by itself. Own default.
_LEAST_IN_STEP: Final = 10
_STEP_S: Final = 10.0
# A run of steps whose count of bad requests comes up as often as this while the SLO is just kept is chance, which nothing announces: at 60 requests a step and
# 1 % allowed two bad ones already look like a breach, and come up every eighth step. A window of 40 minutes has 240 steps. Own default.
_CHANCE: Final = 0.001
# Thresholds tried: the middles between neighbouring quantiles of the indicator's own upper half.
_QUANTILES: Final = tuple(np.linspace(50.0, 100.0, 61).tolist())
# Indicators that warn by falling.
FALLING: Final = ("prefix_cache_hit_rate", "spec_accept_rate")
LEARNED: Final = ("queue_depth", "running", "kv_cache_usage", "preemptions", "prefix_cache_hit_rate", "prompt_tokens", "arrivals",
                  "iteration_time", "iteration_deviation")


class Indicator(msgspec.Struct, kw_only=True):
    """How well one indicator warned of breaches on this data. Ratios 0..1, threshold in the indicator's own unit (SI).

    `precision` = alerts that a breach followed within 120 s, `recall` = breaches before which an alert was on within 120 s, `lead_s_median` from then to
    the breach. An alert is told once in 120 s, however often it falls and rises, and again while it stays on.
    `null_precision` is what alerts at random times would reach: no better means no warning. `lags` says that it rises after the breach instead.
    """

    indicator: str
    threshold: float
    precision: float | None
    recall: float
    lead_s_median: float | None
    events: int
    alerts: int = 0
    null_precision: float | None = None
    null_recall: float | None = None
    lags: bool = False
    falling: bool = False
    reasons: dict[str, str] = {}


@dataclass(frozen=True)
class Breaches:
    """When breaches began and ended (seconds since the window's start), and the time that was looked at."""

    onsets: FloatArray
    ends: FloatArray
    first_s: float
    last_s: float


def breaches(start_us: IntArray, bad: BoolArray, allowed: float, origin_us: int) -> Breaches:
    """Return the breaches of a window: runs of 10 s steps (longer where traffic is thin) whose bad share is over twice what is allowed, and no chance.

    A run is chance where so many bad of its requests are likely at the share that is allowed (exact binomial tail).
    """
    seconds = (start_us - origin_us) / 1e6
    if not len(seconds):
        return Breaches(np.zeros(0), np.zeros(0), 0.0, 0.0)
    first, last = float(seconds.min()), float(seconds.max())
    step = max(_STEP_S, _LEAST_IN_STEP * (last - first) / max(len(seconds), 1))
    at = ((seconds - first) / step).astype(np.int64)
    n, hits = np.bincount(at), np.bincount(at, weights=bad)
    over = (hits > 2.0 * allowed * n) & (n >= _LEAST_IN_STEP // 2)
    # One good step inside a breach does not end it.
    over[1:-1] |= over[:-2] & over[2:]
    edges = np.diff(np.concatenate([[0], over.astype(np.int8), [0]]))
    begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    asked, failed = np.concatenate([[0], np.cumsum(n)]), np.concatenate([[0.0], np.cumsum(hits)])
    runs = zip(asked[ends] - asked[begins], failed[ends] - failed[begins], strict=True)
    real = np.array([binomial_tail(int(n), round(bad), allowed) < _CHANCE for n, bad in runs], np.bool_)
    begins, ends = begins[real], ends[real]
    return Breaches(np.asarray(first + begins * step, np.float64), np.asarray(first + ends * step, np.float64), first, last)


def learn(points: pl.DataFrame, found: Breaches, origin_us: int) -> tuple[list[Indicator], str | None]:
    """Return the indicators that were recorded, best first, or none and why.

    `points` has time_us, instance, indicator, value; instances are joined by their highest value (lowest where falling warns).
    """
    # A breach that had begun when the window did cannot have been announced in it.
    onsets = found.onsets[found.onsets > found.first_s]
    if len(onsets) < LEAST_EVENTS:
        count = f"{len(onsets)} breach{'' if len(onsets) == 1 else 'es'}"
        return [], f"{count} began in the window, at least {LEAST_EVENTS} are needed to learn what comes before them"
    made = []
    for (name,), rows in points.partition_by("indicator", as_dict=True, maintain_order=True).items():
        if name not in LEARNED:
            continue
        falling = name in FALLING
        joined = rows.group_by("time_us").agg(pl.col("value").min() if falling else pl.col("value").max()).sort("time_us")
        seconds = (joined["time_us"].to_numpy() - origin_us) / 1e6
        best = _best(str(name), seconds, joined["value"].to_numpy(), onsets, found, falling=falling)
        if best is not None:
            made.append(best)
    if not made:
        return [], "no engine indicator was recorded: scrape the engines' /metrics"
    return sorted(made, key=lambda i: (i.lags, -_f1(i.precision, i.recall), i.indicator)), None


def _best(name: str, seconds: FloatArray, values: FloatArray, onsets: FloatArray, found: Breaches, *, falling: bool) -> Indicator | None:
    """Return the threshold with the best F1 over random alerts; the interval of samples bounds what lead can be seen."""
    if len(values) < 2 or float(values.std()) == 0.0:
        return None
    sign = -1.0 if falling else 1.0
    levels = np.unique(np.percentile(sign * values, _QUANTILES))
    if len(levels) < 2:
        levels = np.unique(sign * values)
    choices = [_score(name, seconds, sign * values, float(t), onsets, found) for t in (levels[:-1] + levels[1:]) / 2.0]
    best = max(choices, key=_gain)
    best.threshold, best.falling = sign * best.threshold, falling
    interval = float(np.median(np.diff(seconds)))
    if best.lead_s_median is not None and best.lead_s_median < interval:
        best.reasons["lead_s_median"] = f"shorter than the {interval:.0f} s between samples: it cannot be told from none"
        best.lead_s_median = None
    return best


def _score(name: str, seconds: FloatArray, values: FloatArray, threshold: float, onsets: FloatArray, found: Breaches) -> Indicator:
    over = values > threshold
    judged = _told(seconds[over], found)
    right = np.array([bool(((onsets > a) & (onsets <= a + HORIZON_S)).any()) for a in judged], dtype=np.bool_)
    on = seconds[over]
    leads = [float(onset - on[(on < onset) & (on >= onset - HORIZON_S)].min()) for onset in onsets
             if ((on < onset) & (on >= onset - HORIZON_S)).any()]
    late = np.array([bool(((onsets <= a) & (onsets >= a - LAG_S)).any()) for a in judged], dtype=np.bool_)
    precision = float(right.mean()) if len(judged) else None
    covered = _union(onsets - HORIZON_S, onsets) / max(found.last_s - found.first_s, 1e-9)
    told = float(np.minimum(np.diff(on, append=on[-1:] + HORIZON_S), HORIZON_S).sum()) / max(found.last_s - found.first_s, 1e-9)
    reasons = {} if leads else {"lead_s_median": "no alert came before a breach"}
    if precision is None:
        reasons["precision"] = "it never rose over the threshold"
    return Indicator(
        indicator=name, threshold=threshold, precision=precision, recall=len(leads) / len(onsets), lead_s_median=float(np.median(leads)) if leads else None,
        events=len(onsets), alerts=len(judged), null_precision=min(1.0, covered), null_recall=min(1.0, told),
        lags=bool(len(judged)) and int(late.sum()) > int(right.sum()), reasons=reasons)


def _told(over: FloatArray, found: Breaches) -> FloatArray:
    """Return when an alert is told, from the moments at which the indicator is over its threshold.

    What it says holds for the horizon: until then it is not told again, however often it falls and rises; afterwards it is, as long as it is on. In the
    middle of a breach it says nothing new, right or wrong, nor does what is left of it within the horizon.
    """
    begun = np.searchsorted(found.onsets + LAG_S, over, side="left") - 1
    inside = (begun >= 0) & (over < found.ends[np.maximum(begun, 0)]) if len(found.ends) else np.zeros(len(over), np.bool_)
    told, k = [], 0
    while k < len(over):
        if not inside[k]:
            told.append(float(over[k]))
        k = int(np.searchsorted(over, over[k] + HORIZON_S, side="left"))
    return np.asarray(told, np.float64)


def _gain(made: Indicator) -> tuple[float, float]:
    """How much better than random alerts; a threshold that nothing rises over comes last."""
    return (_f1(made.precision, made.recall) - _f1(made.null_precision, made.null_recall or 0.0) if made.alerts else -2.0, made.threshold)


def _union(starts: FloatArray, ends: FloatArray) -> float:
    """Return the length that intervals cover together."""
    total, reach = 0.0, -np.inf
    for start, end in sorted(zip(starts.tolist(), ends.tolist(), strict=True)):
        total += max(0.0, end - max(start, reach))
        reach = max(reach, end)
    return total


def _f1(precision: float | None, recall: float) -> float:
    return 0.0 if precision is None or precision + recall == 0.0 else 2.0 * precision * recall / (precision + recall)
