"""Which engine indicator warns before requests go bad, how early, and how often for nothing? Learned on the user's own data.

Event based: an alert is the moment when an indicator rises over a threshold (or falls below it), counted once in two minutes while it stays on; a breach
the moment when the share of bad requests rises over what the SLO allows, by more than chance. Precision, recall and lead are those of parts of the window that
nothing was learned on (`held_out`), compared with alerts at random times; an indicator that rises only after the breach lags.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypedDict

import msgspec
import numpy as np
import polars as pl

from overrun.analysis.evidence.alert_choice import (
    ALERTS,
    EARLY,
    LATE,
    RIGHT,
    TOLD,
    Held,
    Trials,
    choose,
    cuts,
    hold_out,
)
from overrun.analysis.numbers.latency.percentiles import binomial_tail
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray
from overrun.analysis.words.finding import say_ms, say_ratio

# A breach counts as announced when it begins within this time after an alert: two minutes are what a person or an autoscaler needs. Own default
# in the middle of the field's 30 to 120 s.
HORIZON_S: Final = 120.0
# An indicator that rises up to this long after the breach began follows it.
LAG_S: Final = 60.0
# Fewest breaches to learn from: below three a threshold fits one event.
LEAST_EVENTS: Final = 3
# An alert later than this leaves no time to act; the least lead of the target (precision 0.6 at recall 0.8).
LEAST_LEAD_S: Final = 10.0
# An alert is recommended from these on: as often right as wrong, and half of the breaches. Below, people learn to look away. Own defaults.
LEAST_PRECISION: Final = 0.5
LEAST_RECALL: Final = 0.5
# So often alerts at random times may be right as often as those of a recommended one; the usual level of one test. Of windows of noise alone at most one in
# twenty has a recommended one (`tests/analysis/evidence/test_leading_indicators.py`).
_LUCK: Final = 0.05
# What is kept in doubt: load drives most breaches, and the rate of arrivals is counted from every request, not seen once a scrape.
PLAIN: Final = "arrivals"
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
# What is learned from, in words, and the unit of its threshold (ratio and s are shown as per cent and milliseconds).
_WORDS: Final = {
    "queue_depth": ("waiting requests", ""),
    "running": ("running requests", ""),
    "kv_cache_usage": ("KV cache usage", "ratio"),
    "preemptions": ("preemptions", "/s"),
    "prefix_cache_hit_rate": ("prefix cache hit rate", "ratio"),
    "prompt_tokens": ("prompt tokens", "/s"),
    "arrivals": ("arriving requests", "/s"),
    "iteration_time": ("time of an engine step", "s"),
    "iteration_deviation": ("deviation of the step time", "s"),
}
LEARNED: Final = tuple(_WORDS)


class Scored(msgspec.Struct, kw_only=True):
    """How well an alert warned of breaches. Ratios 0..1.

    `precision` = alerts that a breach followed within 120 s, `recall` = breaches before which an alert was on within 120 s, `lead_s_median` from then to
    the breach. An alert counts once in 120 s, however often it falls and rises, and again while it stays on; `late` of them came in the first 60 s of
    a breach: no warning of that one, though one may follow. `null_precision` is what alerts at random times would reach: no better means no warning.
    """

    precision: float | None
    recall: float
    lead_s_median: float | None
    events: int
    alerts: int = 0
    late: int = 0
    null_precision: float | None = None
    null_recall: float | None = None
    reasons: dict[str, str] = {}


class Indicator(Scored, kw_only=True):
    """How well one indicator warned, on data held out: each part of the window (`parts` of them) is scored by a threshold that was learned on all others.

    `threshold` (in the indicator's own unit, SI) is learned on the whole window; `learned_precision` and `learned_recall` are what it reaches there, which
    later data does not keep. `recommended` marks a reliable alert; if the first one is not, `reasons` has the reason. Of the first one the
    choice among the indicators is held out as well. `lags`: it rises after the breach instead.
    """

    indicator: str
    threshold: float
    figures: Literal["held_out"] = "held_out"
    parts: int = 0
    learned_precision: float | None = None
    learned_recall: float = 0.0
    recommended: bool = False
    lags: bool = False
    falling: bool = False


@dataclass(frozen=True)
class Breaches:
    """When breaches began and ended (seconds since the window's start), and the time that was looked at."""

    onsets: FloatArray
    ends: FloatArray
    first_s: float
    last_s: float


def breaches(start_us: IntArray, bad: BoolArray, allowed: float, origin_us: int) -> Breaches:
    """Return the breaches of a window: runs of 10 s steps (longer where traffic is thin) whose bad share is over twice what is allowed, and no chance.

    It begins with its first bad request. A run is chance where so many bad of its requests are likely at the share that is allowed (exact binomial tail).
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
    real = np.array(
        [binomial_tail(int(n), round(bad), allowed) < _CHANCE for n, bad in runs], np.bool_
    )
    begins, ends = begins[real], ends[real]
    # Its step begins up to 10 s before anything is bad, and an alert in between would count as late; a breach from the first step on began before.
    # Found by the number of its step: by time, rounding can put the first failure before its own step.
    failures, steps = np.sort(seconds[bad]), np.sort(at[bad])
    onsets = (
        np.where(begins == 0, first, failures[np.searchsorted(steps, begins)])
        if len(failures)
        else np.zeros(0)
    )
    return Breaches(
        np.asarray(onsets, np.float64), np.asarray(first + ends * step, np.float64), first, last
    )


def learn(
    points: pl.DataFrame, found: Breaches, origin_us: int
) -> tuple[list[Indicator], str | None]:
    """Return the indicators that were recorded, best first, or none and why.

    `points` has time_us, instance, indicator, value; instances are joined by their highest value (lowest where falling warns).
    """
    # A breach that had begun when the window did cannot have been announced in it.
    announced = found.onsets > found.first_s
    onsets = found.onsets[announced]
    if len(onsets) < LEAST_EVENTS:
        count = f"{len(onsets)} breach{'' if len(onsets) == 1 else 'es'}"
        return (
            [],
            f"{count} began in the window, at least {LEAST_EVENTS} are needed to learn warnings",
        )
    edges = cuts(onsets, found.ends[announced], found.first_s, found.last_s)
    tried: dict[str, tuple[Trials, Held, float, FloatArray]] = {}
    for (name,), rows in points.partition_by(
        "indicator", as_dict=True, maintain_order=True
    ).items():
        if name not in LEARNED:
            continue
        seconds, values = joined(rows, str(name), origin_us)
        if len(values) < 2 or float(values.std()) == 0.0:
            continue
        interval = float(np.median(np.diff(seconds)))
        trials, on_s = _tried(seconds, values, max(LEAST_LEAD_S, interval), onsets, found, edges)
        tried[str(name)] = trials, hold_out(trials, plain=name == PLAIN), interval, on_s
    if not tried:
        return [], "no engine indicator was recorded: scrape the engines' /metrics"
    return _ranked(tried, onsets, found), None


def said(indicators: list[Indicator]) -> str:
    """Return which alert may be relied on and what it is worth, or that none may and why, without the full stop; nothing where nothing was learned."""
    if not indicators:
        return ""
    best = indicators[0]
    words, value = worded(best, best.threshold)
    alert = f"{words} {'below' if best.falling else 'over'} {value}"
    if not best.recommended:
        return (
            f"no reliable alert: the best is {alert}, and {best.reasons['recommended']}"
            if "recommended" in best.reasons
            else f"no reliable alert: none of {len(indicators)} indicators rose {LEAST_LEAD_S:.0f} s or more before breaches"
        )
    right, told = round((best.precision or 0.0) * best.alerts), round(best.recall * best.events)
    return (
        f"{alert}: on held-out data {right} of {best.alerts} alerts preceded a breach, and {told} of {best.events} breaches were predicted, "
        f"{best.lead_s_median or 0.0:.0f} s ahead at the median"
    )


def worded(indicator: Indicator, figure: float) -> tuple[str, str]:
    """Return an indicator in words, and a figure of it with its unit."""
    words, unit = _WORDS[indicator.indicator]
    if unit == "ratio":
        return words, say_ratio(figure)
    if unit == "s":
        return words, say_ms(1000.0 * figure)
    return words, f"{figure:,.0f}{unit}" if figure >= 100.0 else f"{figure:.3g}{unit}"


def latest(indicator: Indicator, points: pl.DataFrame) -> float | None:
    """Return the newest value of an indicator in its own unit, instances put together as it was learned; None where none was recorded."""
    rows = points.filter(pl.col("indicator") == indicator.indicator)
    if rows.is_empty():
        return None
    _, values = joined(rows, indicator.indicator, 0)
    return float(-values[-1] if indicator.falling else values[-1])


def joined(rows: pl.DataFrame, name: str, origin_us: int) -> tuple[FloatArray, FloatArray]:
    """Return one indicator over time (seconds since the origin), instances put together, turned round where falling warns."""
    falling = name in FALLING
    made = (
        rows.group_by("time_us")
        .agg(pl.col("value").min() if falling else pl.col("value").max())
        .sort("time_us")
    )
    values = made["value"].to_numpy()
    return (made["time_us"].to_numpy() - origin_us) / 1e6, -values if falling else values


def _tried(
    seconds: FloatArray,
    values: FloatArray,
    least_lead_s: float,
    onsets: FloatArray,
    found: Breaches,
    edges: FloatArray,
) -> tuple[Trials, FloatArray]:
    """Return the alerts of each threshold in each part of the window, and for how many seconds it would be on."""
    levels = np.unique(np.percentile(values, _QUANTILES))
    if len(levels) < 2:
        levels = np.unique(values)
    thresholds = (levels[:-1] + levels[1:]) / 2.0
    parts = len(edges) - 1
    part_of = np.clip(np.searchsorted(edges, onsets, side="right") - 1, 0, parts - 1)
    counts, leads, on_s = (
        np.zeros((5, len(thresholds), parts)),
        np.zeros((len(thresholds), len(onsets))),
        np.zeros(len(thresholds)),
    )
    for row, threshold in enumerate(thresholds):
        told = _tell(seconds[values > threshold], onsets, found)
        at = np.clip(np.searchsorted(edges, told.alerts, side="right") - 1, 0, parts - 1)
        # NaN, a breach without a warning, is not early either.
        for kind, part, which in (
            (ALERTS, at, None),
            (RIGHT, at, told.right),
            (LATE, at, told.late),
            (TOLD, part_of, ~np.isnan(told.leads)),
            (EARLY, part_of, told.leads >= least_lead_s),
        ):
            counts[kind, row] = np.bincount(part, weights=which, minlength=parts)
        leads[row], on_s[row] = told.leads, told.on_s
    return Trials(
        thresholds, counts, leads, np.bincount(part_of, minlength=parts).astype(np.float64), part_of
    ), on_s


def _ranked(
    tried: dict[str, tuple[Trials, Held, float, FloatArray]], onsets: FloatArray, found: Breaches
) -> list[Indicator]:
    """Return the indicators with what they are worth on parts held out; the best one, first, with what choosing it is worth there."""
    names = list(tried)
    parts = len(next(iter(tried.values()))[0].events)
    first, without = choose([tried[name][1] for name in names], parts)
    null, length = _covered(onsets, found), max(found.last_s - found.first_s, 1e-9)
    out = []
    for at, name in enumerate(names):
        trials, held, interval, on_s = tried[name]
        picked = (
            [names[k] if k is not None else None for k in without]
            if at == first
            else [name] * parts
        )
        counts = np.array(
            [
                np.zeros(5) if one is None else tried[one][1].counts[:, k]
                for k, one in enumerate(picked)
            ]
        ).sum(axis=0)
        leads = np.array(
            [
                np.nan
                if (one := picked[k]) is None
                else tried[one][0].leads[tried[one][1].rows[k], n]
                for n, k in enumerate(trials.part_of)
            ]
        )
        whole = trials.counts[:, held.row].sum(axis=-1)
        falling = name in FALLING
        out.append(
            Indicator(
                indicator=name,
                threshold=float(
                    -trials.thresholds[held.row] if falling else trials.thresholds[held.row]
                ),
                falling=falling,
                parts=parts,
                **_figures(counts, leads, interval),
                null_precision=null,
                null_recall=min(1.0, float(on_s[held.row]) / length),
                lags=bool(whole[LATE] > whole[RIGHT]),
                learned_precision=float(whole[RIGHT] / whole[ALERTS]) if whole[ALERTS] else None,
                learned_recall=float(whole[TOLD] / len(onsets)),
            )
        )
    if first is not None:
        best = out[first]
        why = _doubt(best)
        best.recommended = why is None
        best.reasons |= {} if why is None else {"recommended": why}
    order = sorted(
        range(len(out)),
        key=lambda k: (
            k != first,
            not tried[names[k]][1].warns,
            -tried[names[k]][1].worth,
            names[k],
        ),
    )
    return [out[k] for k in order]


class _Figures(TypedDict):
    precision: float | None
    recall: float
    lead_s_median: float | None
    events: int
    alerts: int
    late: int
    reasons: dict[str, str]


def _figures(counts: FloatArray, leads: FloatArray, interval_s: float) -> _Figures:
    """Return precision, recall and lead of what was counted; a lead within the interval of samples may be none."""
    known, reasons = leads[~np.isnan(leads)], {}
    lead = float(np.median(known)) if len(known) else None
    if lead is None:
        reasons["lead_s_median"] = "no alert preceded a breach"
    elif lead < interval_s:
        reasons["lead_s_median"], lead = (
            f"shorter than the {interval_s:.0f} s between samples, so it may be none",
            None,
        )
    if not counts[ALERTS]:
        reasons["precision"] = "it never rose over the threshold"
    return _Figures(
        precision=float(counts[RIGHT] / counts[ALERTS]) if counts[ALERTS] else None,
        recall=len(known) / max(len(leads), 1),
        lead_s_median=lead,
        events=len(leads),
        alerts=int(counts[ALERTS]),
        late=int(counts[LATE]),
        reasons=reasons,
    )


def _doubt(best: Indicator) -> str | None:
    """Return why an alert cannot be relied on, by the data held out; None where it can."""
    if best.precision is None:
        return "it predicted nothing on held-out data"
    right = round(best.precision * best.alerts)
    counted = f"on held-out data {right} of {best.alerts} alerts preceded a breach"
    if best.precision < LEAST_PRECISION:
        return f"{counted}, at least half are required"
    if best.recall < LEAST_RECALL:
        return f"on held-out data it predicted {round(best.recall * best.events)} of {best.events} breaches, at least half are required"
    if best.lead_s_median is None or best.lead_s_median < LEAST_LEAD_S:
        return f"on held-out data it came less than {LEAST_LEAD_S:.0f} s before them"
    if binomial_tail(best.alerts, right, best.null_precision or 0.0) > _LUCK:
        return f"{counted}: alerts at random times may be equally good"
    return None


def score(
    seconds: FloatArray, values: FloatArray, threshold: float, onsets: FloatArray, found: Breaches
) -> Scored:
    """Return what an alert from a threshold on is worth on data that it was not learned on."""
    told = _tell(seconds[values > threshold], onsets, found)
    counts = np.array([len(told.alerts), told.right.sum(), told.late.sum(), 0.0, 0.0], np.float64)
    length = max(found.last_s - found.first_s, 1e-9)
    return Scored(
        **_figures(counts, told.leads, 0.0),
        null_precision=_covered(onsets, found),
        null_recall=min(1.0, told.on_s / length),
    )


@dataclass(frozen=True)
class _Told:
    """The times of alerts, which preceded a breach and which fell into its first minute; the lead of each breach (NaN: no warning); seconds of alerts."""

    alerts: FloatArray
    right: BoolArray
    late: BoolArray
    leads: FloatArray
    on_s: float


def _tell(on: FloatArray, onsets: FloatArray, found: Breaches) -> _Told:
    """Return the value of alerts, from the moments at which the indicator is over its threshold."""
    alerts = _told(on, found)
    after = np.searchsorted(onsets, alerts, side="right")
    following, before = np.append(onsets, np.inf)[after], np.append(-np.inf, onsets)[after]
    since, until = (
        np.searchsorted(on, onsets - HORIZON_S, side="left"),
        np.searchsorted(on, onsets, side="left"),
    )
    leads = np.where(until > since, onsets - np.append(on, np.nan)[since], np.nan)
    on_s = float(np.minimum(np.diff(on, append=on[-1:] + HORIZON_S), HORIZON_S).sum())
    return _Told(alerts, following <= alerts + HORIZON_S, before >= alerts - LAG_S, leads, on_s)


def _told(over: FloatArray, found: Breaches) -> FloatArray:
    """Return the times of alerts, from the moments at which the indicator is over its threshold.

    It holds for the horizon: until then it is not raised again, however often it falls and rises; afterwards it is, as long as it is on. In the
    middle of a breach it shows nothing new, right or wrong, nor does what is left of it within the horizon.
    """
    begun = np.searchsorted(found.onsets + LAG_S, over, side="left") - 1
    inside = (
        (begun >= 0) & (over < found.ends[np.maximum(begun, 0)])
        if len(found.ends)
        else np.zeros(len(over), np.bool_)
    )
    ahead = np.searchsorted(over, over + HORIZON_S, side="left").tolist()
    told, k = [], 0
    while k < len(over):
        if not inside[k]:
            told.append(k)
        k = ahead[k]
    return over[np.array(told, np.int64)]


def _covered(onsets: FloatArray, found: Breaches) -> float:
    """Return the share of the window in which an alert would be right: within the horizon before a breach."""
    gaps = np.diff(onsets, prepend=onsets[:1] - HORIZON_S)
    return min(
        1.0, float(np.minimum(gaps, HORIZON_S).sum()) / max(found.last_s - found.first_s, 1e-9)
    )
