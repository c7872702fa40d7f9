"""What does a what-if answer? Times before and after a fix as quantiles with intervals, its cost, how it was computed, and how far to trust it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from overrun.analysis.numbers.latency.percentiles import min_n, sorted_quantile
from overrun.analysis.numbers.outcomes.goodput import limits_of
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.quantile_gain import another_run, resampled_quantiles
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.finding import SEED, Method, Predicted

METRICS: Final = ("ttft", "e2e", "tpot")
PERCENTILES: Final = (50.0, 95.0, 99.0)
# Quantiles of a curve: every fortieth of the body, then evenly in the logarithm of the share that exceeds, where an exceedance plot has its room.
_LEVELS: Final = np.unique(
    np.concatenate([np.arange(0.0, 0.9, 0.025), 1.0 - np.geomspace(0.1, 1e-4, 37)]).round(6)
)
# Log units that a quantile moves because calls that come sooner or later meet other batches, also where the fix is arithmetic; as measured.
BATCHES: Final = 0.01
# Why nothing is predicted where the filters leave nothing.
NO_REQUEST: Final = "no successful request of this service, model, route, tenant and workload is in the window: check the spelling, or widen the window"
# Said in place of a prediction where a fix was asked for its part alone.
COLLECTED: Final = "asked for its part of several fixes"
# Two-sided 90 % of a normal distribution.
Z90: Final = 1.645


class WhatIfError(AnalysisError):
    """A fix or a parameter that does not exist, or a value out of its range."""


class Effect(msgspec.Struct, kw_only=True):
    """One quantile (0..1) of one metric before and after the fix, ms, with the 90 % interval of the value after.

    Null below the least number of requests that supports the quantile, or where the calibrated engine does not replay the metric; `reasons` reports it.
    """

    metric: str
    quantile: float
    before: float | None
    after: float | None
    interval: tuple[float, float] | None
    reasons: dict[str, str] = {}


class Curve(msgspec.Struct, kw_only=True):
    """Quantile curves of one metric for an exceedance plot, at most 80 points: a share `exceeded` of the n requests took longer than `*_ms`."""

    metric: str
    n: int
    exceeded: list[float]
    before_ms: list[float]
    after_ms: list[float]


class Fitted(msgspec.Struct, kw_only=True):
    """The calibrated engine behind a simulated answer, one entry per pool of equal replicas.

    `identity_error` is |replay / recorded - 1| of the recorded traffic through the calibrated engine, `holdout_error` the same on calls that
    the calibration had not seen; keys such as `e2e_p99`. `guessed`: this engine sends no telemetry, its settings are those that replay its clients' times best.
    """

    model: str | None
    replicas: int
    calls: int
    scheduler: str
    token_budget: int
    max_sequences: int
    kv_tokens: int | None
    identity_error: dict[str, float]
    holdout_error: dict[str, float]
    seconds: float
    guessed: bool = False


class Prediction(msgspec.Struct, kw_only=True):
    """The answer of one what-if.

    `predicted` is the headline: the judged metric at the SLO's percentile; null where the data does not carry the question (`reasons.predicted`
    gives the reason and what to record). `assumption` completes "this holds if ...". `cost` has ratios (0..1) and amounts by name. `goodput_*` are shares
    of the successful requests that meet the TTFT, TPOT and E2E limits. `bound`: the figure only bounds the effect.
    """

    fix: str
    title: str
    method: Method
    assumption: str
    parameters: dict[str, Any]
    requests: int
    predicted: Predicted | None = None
    effects: list[Effect] = []
    curves: list[Curve] = []
    cost: dict[str, float] = {}
    goodput_before: float | None = None
    goodput_after: float | None = None
    bound: bool = False
    engine: list[Fitted] = []
    reasons: dict[str, str] = {}


@dataclass(frozen=True)
class Fix:
    """A fix's description of itself: id, what is done in a few words, and what must hold for the figure to."""

    id: str
    title: str
    assumption: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Times:
    """Latencies of the requests in ms, arrays of shape (n,), NaN unknown or no longer answered."""

    ttft: FloatArray
    e2e: FloatArray
    tpot: FloatArray

    def of(self, metric: str) -> FloatArray:
        """One of the metrics."""
        values: FloatArray = getattr(self, metric)
        return values


# For a metric and a quantile (0..1): logarithm of the factor on what arithmetic says of it, and the standard deviation of that.
Batches = Callable[[str, float], tuple[float, float]]


@dataclass(frozen=True)
class TimesPart:
    """What a fix makes of each request's times by arithmetic, instead of its prediction; `draws` are other outcomes. A `bound` leaves out what else it changes."""

    fix: Fix
    before: Times
    after: Times
    draws: Sequence[Times]
    method: Method
    cost: Mapping[str, float]
    bound: bool


def recorded(facts: Facts) -> Times:
    """Return the latencies as they were."""
    return Times(facts.ms("ttft_ms"), facts.ms("e2e_ms"), facts.ms("tpot_ms"))


def refuse(facts: Facts, fix: Fix, method: Method, why: str) -> Prediction:
    """Return the answer that there is none, and why: without a request that nothing was recorded, for any other lack."""
    why = why if len(facts) else NO_REQUEST
    return Prediction(
        fix=fix.id,
        title=fix.title,
        method=method,
        assumption=fix.assumption,
        parameters=dict(fix.parameters),
        requests=len(facts),
        reasons={"predicted": why},
    )


def predict_times(  # noqa: PLR0913
    facts: Facts,
    fix: Fix,
    after: Times,
    *,
    method: Method,
    cost: Mapping[str, float] | None = None,
    draws: Sequence[Times] = (),
    before: Times | None = None,
    bound: bool = False,
    reasons: Mapping[str, str] | None = None,
    batches: Batches | None = None,
) -> Prediction:
    """Return the answer of a fix whose effect on each request is known (exact) or drawn (resampled, estimate).

    Intervals are of another run of as many requests (`another_run`); with `draws` (other outcomes of chance or of the assumption) their spread is added.
    `before` replaces the recorded times where the user met others than those. `batches` is what calls that come sooner meet (see `moved.batches`).
    """
    before = before or recorded(facts)
    if facts.parts is not None:
        facts.parts.append(TimesPart(fix, before, after, draws, method, dict(cost or {}), bound))
        return refuse(facts, fix, method, COLLECTED)
    effects = [
        _effect(facts, before, after, draws, metric, percentile, batches)
        for metric in METRICS
        for percentile in _percentiles(facts)
    ]
    touched = _touched(before, after)
    answer = Prediction(
        fix=fix.id,
        title=fix.title,
        method=method,
        assumption=fix.assumption,
        parameters=dict(fix.parameters),
        requests=len(facts),
        effects=effects,
        curves=curves(before, after),
        cost=dict(cost or {}),
        goodput_before=goodput_ratio(facts, before),
        goodput_after=goodput_ratio(facts, after),
        bound=bound,
        reasons=dict(reasons or {}),
    )
    if batches is not None:
        answer.reasons["batches"] = (
            "calls that arrive earlier run in other batches: that part is simulated, the rest is arithmetic"
        )
    set_headline(
        answer,
        facts,
        touched,
        None,
        "arithmetic on the recorded requests: no model whose replay could be checked"
        if method == "exact"
        else "drawn from the recorded requests: no model whose replay could be checked",
        (over_ratio(facts, before), over_ratio(facts, after)),
    )
    return answer


def set_headline(
    answer: Prediction,
    facts: Facts,
    touched: float,
    backtest: float | None,
    why_no_backtest: str,
    over: tuple[float | None, float | None],
) -> None:
    """Put the judged quantile into `predicted`, or the reason why there is none."""
    if touched == 0.0 and len(facts):
        answer.reasons["touched"] = (
            "the fix changes no request of this window, so it gains nothing here"
        )
    if not len(facts):
        answer.reasons["predicted"] = NO_REQUEST
        return
    quantile = facts.percentile / 100.0
    chosen = next(
        (
            e
            for e in answer.effects
            if e.metric == facts.metric and abs(e.quantile - quantile) < 1e-9
        ),
        None,
    )
    if chosen is None or chosen.before is None or chosen.after is None:
        answer.reasons["predicted"] = (
            next(iter(chosen.reasons.values()), None) if chosen else None
        ) or f"{facts.metric} is not predicted"
        return
    reasons = {} if backtest is not None else {"backtest_error_ratio": why_no_backtest}
    unlimited = f"nothing limits {facts.metric.upper()}"
    reasons |= {
        name: unlimited
        for name, share in zip(("over_before_ratio", "over_after_ratio"), over, strict=True)
        if share is None
    }
    answer.predicted = Predicted(
        metric=facts.metric,
        quantile=quantile,
        before=chosen.before,
        after=chosen.after,
        interval=chosen.interval,
        touched_ratio=touched,
        cost=answer.cost,
        backtest_error_ratio=backtest,
        over_before_ratio=over[0],
        over_after_ratio=over[1],
        bound=answer.bound,
        reasons=reasons,
    )


def _percentiles(facts: Facts) -> list[float]:
    return sorted({*PERCENTILES, facts.percentile})


def _effect(
    facts: Facts,
    before: Times,
    after: Times,
    draws: Sequence[Times],
    metric: str,
    percentile: float,
    batches: Batches | None,
) -> Effect:
    old, new = (_sorted(times.of(metric)) for times in (before, after))
    effect = blank(metric, percentile, len(old), len(new))
    if effect.reasons:
        return effect
    q = percentile / 100.0
    effect.before, effect.after = sorted_quantile(old, q), sorted_quantile(new, q)
    sampled = [resampled_quantiles(new, q, np.random.default_rng(SEED))]
    sampled += [
        resampled_quantiles(_sorted(draw.of(metric)), q, np.random.default_rng(SEED))
        for draw in draws
    ]
    low, high = np.percentile(np.concatenate(sampled), [5.0, 95.0])
    moved, met = (0.0, 0.0) if batches is None else batches(metric, q)
    spread = float(np.hypot(met, BATCHES if facts.calls.height else 0.0))
    best = max(1e-3, effect.after)
    below, above = (
        np.hypot(max(0.0, np.log(wide), other), Z90 * spread)
        for wide, other in zip(
            (best / max(1e-3, low), high / best), another_run(after.of(metric), q), strict=True
        )
    )
    effect.after *= float(np.exp(moved))
    effect.interval = (effect.after * float(np.exp(-below)), effect.after * float(np.exp(above)))
    return effect


def blank(metric: str, percentile: float, n_before: int, n_after: int) -> Effect:
    """Return an effect without figures; its reasons show whether so many requests support the percentile."""
    effect = Effect(
        metric=metric,
        quantile=percentile / 100.0,
        before=None,
        after=None,
        interval=None,
        reasons={},
    )
    n = min(n_before, n_after)
    if n < min_n(percentile):
        effect.reasons = {
            "before": f"P{percentile:g} needs at least {min_n(percentile)} requests with {metric.upper()}, there are {n}"
        }
    return effect


def _sorted(values: FloatArray) -> FloatArray:
    known: FloatArray = np.sort(values[~np.isnan(values)])
    return known


def _touched(before: Times, after: Times) -> float:
    changed = np.zeros(len(before.e2e), np.bool_)
    for metric in METRICS:
        old, new = before.of(metric), after.of(metric)
        changed |= (np.isnan(old) != np.isnan(new)) | (
            np.abs(np.nan_to_num(new) - np.nan_to_num(old)) > 1e-6
        )
    return float(changed.mean()) if len(changed) else 0.0


def curves(before: Times, after: Times) -> list[Curve]:
    """Return the quantile curves of each metric that both sides have, to one in n at most."""
    found = []
    for metric in METRICS:
        old, new = _sorted(before.of(metric)), _sorted(after.of(metric))
        n = min(len(old), len(new))
        if n < min_n(50.0):
            continue
        levels = _LEVELS[1.0 - 1.0 / n >= _LEVELS]
        found.append(
            Curve(
                metric=metric,
                n=n,
                exceeded=(1.0 - levels).round(6).tolist(),
                before_ms=np.quantile(old, levels).tolist(),
                after_ms=np.quantile(new, levels).tolist(),
            )
        )
    return found


def over_ratio(facts: Facts, times: Times) -> float | None:
    """Return the share of the requests with the judged metric that are over its limit, each over its own; None where nothing limits it."""
    limit_ms, values = limits_of(facts.requests, facts.slo, facts.metric), times.of(facts.metric)
    known = ~np.isnan(values)
    return None if limit_ms is None or not known.any() else float((values > limit_ms)[known].mean())


def goodput_ratio(facts: Facts, times: Times) -> float | None:
    """Return the share of requests that meet every TTFT, TPOT and E2E limit, each its own where it came with one.

    None with an ITL limit or where a metric is missing for all.
    """
    limits = {
        metric: limit
        for metric in (*METRICS, "itl")
        if (limit := limits_of(facts.requests, facts.slo, metric)) is not None
    }
    if "itl" in limits or not limits or not len(facts):
        return None
    one_token = np.nan_to_num(facts.ms("output_tokens"), nan=2.0) <= 1.0
    meets, known = np.ones(len(facts), np.bool_), np.ones(len(facts), np.bool_)
    for metric, limit_ms in limits.items():
        values = times.of(metric)
        passes = np.isinf(limit_ms) | (one_token & (metric == "tpot"))
        known &= ~np.isnan(values) | passes
        meets &= (values <= limit_ms) | passes
    return float(meets[known].mean()) if known.any() else None
