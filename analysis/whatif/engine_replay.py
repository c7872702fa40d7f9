"""What would the requests have met with the fix in place? Replays the recorded arrivals through the calibrated engines, changed by the fix.

Calls go to the replica that they went to, or, where the recording's router looked for the fewest in flight, to the one that it would choose now. Turns of a
conversation find what the prefix cache still holds of it then, and do not overtake the answer before them (`conversations`).
Per call the change is simulated with the fix minus simulated without; it is put on the recorded request, so what the simulator does not know (the
application, the network) stays as recorded. Requests whose call has no engine times (its span was lost) are left out of the
figures after: they would keep their recorded times, and a few per cent of those are the tail of what a fix has emptied. Quantiles are then corrected by how
far the identity replay is off, and their interval carries how far another run of as many requests scatters, the spread of the refits, what steps a few per cent
dearer or cheaper would do, the hold-out error, and a part of the size of the effect: the further from the recording, the less it vouches for. A quantile that
the replay misses is withheld by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from overrun.analysis.numbers.latency.percentiles import sorted_quantile
from overrun.analysis.simulator.batching import LEAST_LOAD, RECORDED
from overrun.analysis.simulator.calibrate import E2E_GATE, TTFT_GATE, Engine
from overrun.analysis.simulator.engine import Calls, Costs, Setup, simulate
from overrun.analysis.simulator.pool import UNLIMITED_KV
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.fewer_tokens import idle_ms
from overrun.analysis.whatif.prediction import (
    COLLECTED,
    METRICS,
    PERCENTILES,
    Z90,
    Effect,
    Fitted,
    Fix,
    Prediction,
    Times,
    blank,
    curves,
    goodput_ratio,
    over_ratio,
    recorded,
    refuse,
    set_headline,
)
from overrun.analysis.whatif.quantile_gain import another_run
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.finding import say_count

# Shares of an interval's width: of the hold-out error, of the logarithm of the effect, and at the least. Chosen so that engines of other laws, the nearer
# ones and the furthest, lie inside about as far above 90 % as below (docs/results/whatif.json, "inside").
HOLDOUT_SHARE: Final = 0.6
EFFECT_SHARE: Final = 0.02
MIN_WIDTH: Final = {"e2e": 0.01, "ttft": 0.03, "tpot": 0.01}
# Steps are taken to cost this much more or less than fitted: next to capacity that moves a queue by multiples.
SHAKE: Final = 0.006
# Log units of extra width where the engine was guessed from what its clients saw; as measured.
GUESSED_WIDTH: Final = {"e2e": 0.07, "tpot": 0.07, "ttft": 0.12}
# Said with an answer whose engines nobody tells of.
CLIENT_ONLY: Final = (
    "no engine sends telemetry, so answers are exact, resampled or estimated; this is an estimate, by engines guessed from the clients' own "
    "times"
)
# What may be changed of an engine that nobody sees into: how many there are, what is let through to them, and how many tokens a step yields.
_OUTSIDE: Final = (
    "replicas",
    "speed",
    "born_s",
    "gate_limit",
    "gate_rejects",
    "tokens_per_step",
    "drafted",
    "draft_share",
)
# Part of the draws that must be off the fitted engine's replay by more than its gate for them to be of another regime; own default.
OTHER_REGIME_SHARE: Final = 0.5
# A draw that is off by this factor is of another regime by itself: an engine past its knee is full, or it is not; own default.
ANOTHER: Final = 1.5
# A request counts as touched when the fix moves its time by more than this part.
TOUCHED: Final = 0.01


@dataclass(frozen=True)
class Change:
    """What a fix makes of one pool. `cost` is by name.

    `removed` calls (see `without`) take no time any more. `spent_s` is what each call's simulated time stands for in the recording, where that is not the
    call's own time (an attempt that stands for all attempts). `answered` has the times of requests that need no engine any more, NaN for the others.
    """

    calls: Calls
    setup: Setup
    costs: Callable[[Costs], Costs] = lambda costs: costs
    removed: BoolArray | None = None
    spent_s: FloatArray | None = None
    answered: Times | None = None
    cost: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SimulatedPart:
    """What a fix makes of the engines, instead of its prediction; the arguments of `predict_simulated`."""

    fix: Fix
    change: Callable[[Engine], Change]
    cost: Mapping[str, float]
    worse: Mapping[str, float]
    shake: float
    needs_kv: bool


def predict_simulated(  # noqa: PLR0913
    facts: Facts,
    fix: Fix,
    change: Callable[[Engine], Change],
    *,
    bound: Callable[[], Prediction] | None = None,
    cost: Mapping[str, float] | None = None,
    worse: float | Mapping[str, float] = 0.0,
    shake: float = SHAKE,
    needs_kv: bool = False,
    also: Sequence[Callable[[Engine], Change]] = (),
    told: Callable[[Engine], Engine] = lambda engine: engine,
    moved: Callable[[Times], Times] = lambda times: times,
) -> Prediction:
    """Return the simulated answer, the exact bound where the engine cannot be simulated, or a refusal with the reason.

    `worse` (log units, for all metrics or by metric) widens the interval where the fix leaves what the calibration has seen, `shake` is how much more or
    less than fitted the steps may cost then; `needs_kv` refuses where no engine's KV capacity is
    known. `cost` stands beside what the changes cost. `also` are other ways in which the same fix may turn out: the interval covers them as well. `told` says
    what the fix needs to know of an engine beyond its calibration. `moved` is what else changes of the requests' times, outside of the engines.
    """
    wider = worse if isinstance(worse, Mapping) else dict.fromkeys(METRICS, worse)
    if facts.parts is not None:
        facts.parts.append(SimulatedPart(fix, change, dict(cost or {}), wider, shake, needs_kv))
        return refuse(facts, fix, "simulated", COLLECTED)
    engines, why = facts.engines
    if (
        why is None
        and needs_kv
        and all(engine.setup.kv_tokens >= UNLIMITED_KV for engine in engines)
    ):
        why = "the KV cache size is not known, so the simulated cache never fills: scrape the engines' metrics (cache usage, or vllm:cache_config_info)"
    if why is not None:
        return _bounded(facts, fix, bound, cost, engines, why)
    changes = [change(engine) for engine in engines]
    unseen = [engine for engine in engines if engine.unseen]
    if any(
        engine.unseen
        and replace(one.setup, **{name: getattr(engine.setup, name) for name in _OUTSIDE})
        != engine.setup
        for engine, one in zip(engines, changes, strict=True)
    ):
        return _bounded(
            facts,
            fix,
            bound,
            cost,
            engines,
            "no engine reports its settings, and the clients' times do not show the effect of other settings",
        )
    engines = [told(engine) for engine in engines]
    before = _seen(facts, engines)
    identity = _identity(facts, engines, before)
    after = moved(_replayed(facts, engines, before, changes))
    draws = []
    for k in range(min(len(engine.refits) for engine in engines)):
        drawn = [replace(engine, pool=engine.pool.drawn(k)) for engine in engines]
        draws.append(
            (
                _replayed(facts, drawn, before, None, k),
                moved(_replayed(facts, drawn, before, [change(engine) for engine in drawn], k)),
            )
        )
    others = [
        moved(_replayed(facts, engines, before, [other(engine) for engine in engines]))
        for other in also
    ]
    shaken = [
        moved(_replayed(facts, engines, before, changes, scale=scale))
        for scale in (1.0 - shake, 1.0 + shake)
    ]
    percentiles = sorted({*PERCENTILES, facts.percentile})
    effects = [
        _effect(
            engines,
            recorded(facts),
            before,
            identity,
            after,
            draws,
            shaken,
            others,
            metric,
            p,
            float(np.hypot(wider.get(metric, 0.0), GUESSED_WIDTH[metric] if unseen else 0.0)),
        )
        for metric in METRICS
        for p in percentiles
    ]
    same, corrected = _corrected(before, identity, identity), _corrected(before, identity, after)
    rejected = (np.isnan(after.e2e) & ~np.isnan(before.e2e))[~np.isnan(before.e2e)]
    spent = (
        dict(cost or {})
        | _cost(engines, changes)
        | ({"rejected_ratio": float(rejected.mean())} if rejected.any() else {})
    )
    answer = Prediction(
        fix=fix.id,
        title=fix.title,
        method="estimate" if unseen else "simulated",
        assumption=fix.assumption,
        parameters=dict(fix.parameters),
        requests=len(facts),
        effects=effects,
        curves=curves(before, corrected),
        cost=spent,
        goodput_before=goodput_ratio(facts, recorded(facts)),
        goodput_after=_good_after(facts, same, corrected, rejected),
    )
    if unseen:
        guessed = " and ".join(say_count(engine.setup.replicas, "replica") for engine in unseen)
        answer.assumption += f", and if the calls are served by {guessed} without other clients, as these clients' times suggest"
        answer.reasons["client_only"] = CLIENT_ONLY
    missing = int(np.isnan(before.e2e).sum())
    if missing:
        answer.reasons["unseen"] = (
            f"{missing} of {len(facts)} requests have a model call without engine times. The figures after the fix leave them out"
        )
    _with_engines(answer, engines)
    set_headline(
        answer,
        facts,
        _touched(identity, after),
        _backtest(engines, facts),
        "the held-out calls have no such quantile",
        (
            over_ratio(facts, recorded(facts)),
            _added(*(over_ratio(facts, times) for times in (recorded(facts), same, corrected))),
        ),
    )
    return answer


def _bounded(
    facts: Facts,
    fix: Fix,
    bound: Callable[[], Prediction] | None,
    cost: Mapping[str, float] | None,
    engines: list[Engine],
    why: str,
) -> Prediction:
    """The exact bound, or the refusal, where the engine cannot be simulated."""
    if bound is None:
        return _with_engines(
            refuse(facts, fix, "simulated", f"what-if not available: {why}"), engines
        )
    answer = bound()
    answer.cost |= dict(cost or {})
    answer.bound = True
    if answer.predicted is not None:
        answer.predicted.bound = True
    answer.reasons["simulated"] = f"not simulated, so this is a bound at unchanged load: {why}"
    _opened(facts, answer)
    return _with_engines(answer, engines)


def _opened(facts: Facts, answer: Prediction) -> None:
    """Let the intervals of a bound reach down to what is left where the fix frees the engine of all waiting: by as much as an idle one is quicker today."""
    old, (first, whole) = recorded(facts), idle_ms(facts)
    ttft, e2e = facts.per_request(whole, first)
    idle = Times(np.maximum(old.ttft + ttft, 0.0), np.maximum(old.e2e + e2e, 0.0), old.tpot)
    for effect in answer.effects:
        if effect.interval is not None and effect.metric != "tpot":
            share = min(
                1.0,
                _quantile(idle, effect.metric, effect.quantile)
                / _quantile(old, effect.metric, effect.quantile),
            )
            effect.interval = (effect.interval[0] * share, effect.interval[1])
    chosen = next(
        (
            e
            for e in answer.effects
            if e.metric == facts.metric and abs(e.quantile - facts.percentile / 100.0) < 1e-9
        ),
        None,
    )
    if answer.predicted is not None and chosen is not None and chosen.interval is not None:
        answer.predicted.interval = chosen.interval


def _seen(facts: Facts, engines: list[Engine]) -> Times:
    """The recorded times of the requests that can be replayed: NaN where a call on the path went to one of these engines and no span of it is there."""
    replayed = np.zeros(facts.calls.height, np.bool_)
    for engine in engines:
        replayed[engine.pool.rows[engine.pool.told]] = True
    models = [engine.pool.model for engine in engines]
    theirs = (
        facts.calls["model"]
        .is_in([model for model in models if model is not None])
        .fill_null(None in models)
        .to_numpy()
    )
    failed = facts.calls["error"].fill_null(False).to_numpy()
    blind = facts.request_of[theirs & ~replayed & ~failed & facts.on_path]
    told = np.ones(len(facts), np.bool_)
    told[blind[blind >= 0]] = False
    return Times(*(np.where(told, recorded(facts).of(metric), np.nan) for metric in METRICS))


def _good_after(facts: Facts, same: Times, corrected: Times, rejected: BoolArray) -> float | None:
    """What was good, and what the fix adds to it between two replays (`same` without it); requests that are turned away miss the SLO."""
    good = _added(*(goodput_ratio(facts, times) for times in (recorded(facts), same, corrected)))
    return None if good is None else good * float(1.0 - rejected.mean())


def _added(now: float | None, without: float | None, fixed: float | None) -> float | None:
    """A recorded share and what the fix adds to it between two replays."""
    return (
        None
        if now is None or without is None or fixed is None
        else min(1.0, max(0.0, now + fixed - without))
    )


def _identity(facts: Facts, engines: list[Engine], old: Times) -> Times:
    """The requests as replayed without a change, each call sent where the router would; where it went, if only that gives the recorded times.

    Engines past their knee stay full or never become so, which hangs on a call or two.
    """

    def off(times: Times) -> float:
        if np.isnan(old.e2e).all() or np.isnan(times.e2e).all():
            return float(np.inf)
        told, given = (_quantile(one, "e2e", facts.percentile / 100.0) for one in (old, times))
        return abs(float(np.log(given / told)))

    identity = _replayed(facts, engines, old, None)
    if off(identity) > np.log(1.0 + E2E_GATE) and any(
        routed(engine, engine.setup) != engine.setup for engine in engines
    ):
        identity = min(identity, _replayed(facts, engines, old, None, as_sent=True), key=off)
    return identity


def _replayed(
    facts: Facts,
    engines: list[Engine],
    old: Times,
    changes: list[Change] | None,
    draw: int | None = None,
    scale: float = 1.0,
    as_sent: bool = False,
) -> Times:
    """The requests' recorded times (`old`) with simulated calls in place of the recorded ones; the recording's own settings where there is no change.

    `as_sent`: calls go where they went, not where the router would send them.
    """
    n = facts.calls.height
    whole, first = np.zeros(n), np.zeros(n)
    token_ms = facts.call("tpot_ms").copy()
    lost = np.zeros(len(facts), np.bool_)
    for at, engine in enumerate(engines):
        change = Change(engine.pool.calls, engine.setup) if changes is None else changes[at]
        costs = change.costs(engine.costs if draw is None else engine.refits[draw]).scaled(scale)
        run = simulate(
            change.calls, change.setup if as_sent else routed(engine, change.setup), costs
        )
        pool, rows = engine.pool, engine.pool.rows
        spent = pool.e2e_s if change.spent_s is None else change.spent_s
        whole[rows] = 1000.0 * (run.e2e_s - spent)
        # What was spent beyond the call's own time lay before its first token.
        first[rows] = 1000.0 * (run.ttft_s - pool.ttft_s - (spent - pool.e2e_s))
        tokens = change.calls.output_tokens
        with np.errstate(divide="ignore", invalid="ignore"):
            token_ms[rows] = np.where(
                tokens > 1, 1000.0 * (run.end_s - run.first_s) / (tokens - 1), np.nan
            )
        gone = np.isnan(run.end_s)
        if change.removed is not None:
            whole[rows[change.removed]] = first[rows[change.removed]] = (
                -1000.0 * spent[change.removed]
            )
            gone &= ~change.removed
        requests = facts.request_of[rows[gone]]
        lost[requests[requests >= 0]] = True
    ttft_delta, e2e_delta = facts.per_request(whole, first)
    answering = facts.answering
    tpot = np.where((answering >= 0) & ~np.isnan(old.tpot), token_ms[answering], np.nan)
    times = Times(
        np.maximum(old.ttft + ttft_delta, 0.0), np.maximum(old.e2e + e2e_delta, 0.0), tpot
    )
    for metric in METRICS:
        times.of(metric)[lost] = np.nan
    for answered in (change.answered for change in changes or () if change.answered is not None):
        own = ~np.isnan(answered.e2e) & ~np.isnan(old.e2e)
        times = Times(*(np.where(own, answered.of(metric), times.of(metric)) for metric in METRICS))
    return times


def routed(engine: Engine, setup: Setup) -> Setup:
    """Return the setup with the recording's own router, where calls would now choose as it did."""
    return (
        replace(setup, router=LEAST_LOAD)
        if setup.router == RECORDED and engine.pool.router == LEAST_LOAD
        else setup
    )


def _quantile(times: Times, metric: str, q: float) -> float:
    values = times.of(metric)
    return max(1e-3, sorted_quantile(np.sort(values[~np.isnan(values)]), q))


def _effect(  # noqa: PLR0913
    engines: list[Engine],
    told: Times,
    before: Times,
    identity: Times,
    after: Times,
    draws: list[tuple[Times, Times]],
    shaken: list[Times],
    others: list[Times],
    metric: str,
    percentile: float,
    worse: float,
) -> Effect:
    """One quantile: before of all requests (`told`), after from those that were seen."""
    effect = blank(
        metric, percentile, *(int((~np.isnan(times.of(metric))).sum()) for times in (before, after))
    )
    if effect.reasons:
        return effect
    q = percentile / 100.0
    name = f"{'e2e' if metric == 'tpot' else metric}_p{_nearest(percentile)}"
    refused = next((engine.withheld[name] for engine in engines if name in engine.withheld), None)
    if refused is not None:
        effect.before, effect.reasons = (
            _quantile(told, metric, q),
            {"after": f"not available: {refused}"},
        )
        return effect
    old, same, new = (_quantile(times, metric, q) for times in (before, identity, after))
    best = new * float(_correction(old, same, new))
    drawn = np.array([[_quantile(times, metric, q) for times in draw] for draw in draws]).reshape(
        -1, 2
    )
    moved = _moved(same, drawn, TTFT_GATE if metric == "ttft" else E2E_GATE)
    spread = float(np.std(moved - np.log(new / same))) if len(moved) else 0.0
    if any(len(engine.pool.meant.at_s) > 1 for engine in engines):
        # One draw of when turns would have come is as good as another one.
        best *= float(same / new * np.exp(moved.mean()))
    holdout = max(engine.holdout_error.get(name, 0.0) for engine in engines)
    low, high = (_quantile(times, metric, q) for times in shaken)
    near = 0.5 * abs(float(np.log(high / low)))
    sd = float(
        np.sqrt(
            spread**2
            + near**2
            + (HOLDOUT_SHARE * holdout / Z90) ** 2
            + (EFFECT_SHARE * np.log(new / same)) ** 2
            + MIN_WIDTH[metric] ** 2
            + worse**2
        )
    )
    effect.before, effect.after = _quantile(told, metric, q), best
    ways = [
        best,
        *(
            float(way * _correction(old, same, way))
            for way in (_quantile(times, metric, q) for times in others)
        ),
    ]
    below, above = (float(np.hypot(Z90 * sd, wide)) for wide in another_run(after.of(metric), q))
    effect.interval = (min(ways) * float(np.exp(-below)), max(ways) * float(np.exp(above)))
    return effect


def _moved(same: float, draws: FloatArray, gate: float) -> FloatArray:
    """Logarithm of what the fix does in each draw (its quantile without, with the fix), where the fitted engine's quantile without it is `same`.

    An engine beyond its knee is slow because it is slow: full batches take longer, so they stay full. Where most draws do not come to that, or one is far from
    it, they tell how it is with the fix, and not what it was without: that is the fitted engine's.
    """
    without, fixed = np.log(draws).T
    off = np.abs(without - np.log(same)) > np.log(1.0 + gate)
    elsewhere = off & (int(off.sum()) > OTHER_REGIME_SHARE * len(off)) | (
        np.abs(without - np.log(same)) > np.log(ANOTHER)
    )
    moved: FloatArray = fixed - np.where(elsewhere, np.log(same), without)
    return moved


def _nearest(percentile: float) -> int:
    return min((50, 95, 99), key=lambda known: abs(known - percentile))


def _correction(
    old: FloatArray | float, same: FloatArray | float, new: FloatArray | float
) -> FloatArray:
    """How far the identity replay is off, as a factor on the prediction; it fades as the fix leads away from what was recorded.

    A replay that is a tenth off in a queue of a minute shows nothing about a queue that is gone.
    """
    old, same, new = (np.maximum(value, 1e-3) for value in (old, same, new))
    factor: FloatArray = np.asarray((old / same) ** np.minimum(new / same, same / new))
    return factor


def _corrected(before: Times, identity: Times, after: Times) -> Times:
    """The requests' times after the fix with their quantiles corrected as the effects are, for curves and goodput."""
    out = []
    for metric in METRICS:
        new = after.of(metric).copy()
        known = ~np.isnan(new)
        old, same = (
            np.sort(times.of(metric)[~np.isnan(times.of(metric))]) for times in (before, identity)
        )
        if len(old) and known.any():
            rank = (np.argsort(np.argsort(new[known], kind="stable")) + 0.5) / known.sum()
            # np.quantile with as many ranks as values takes seconds.
            was, is_ = (
                np.interp(rank * (len(values) - 1), np.arange(len(values)), values)
                for values in (old, same)
            )
            new[known] *= _correction(was, is_, new[known])
        out.append(new)
    return Times(*out)


def _touched(identity: Times, after: Times) -> float:
    changed = np.zeros(len(identity.e2e), np.bool_)
    for metric in ("ttft", "e2e"):
        old, new = identity.of(metric), after.of(metric)
        changed |= (np.isnan(old) != np.isnan(new)) | (np.abs(new - old) > TOUCHED * old)
    seen = ~np.isnan(identity.e2e)
    return float(changed[seen].mean()) if seen.any() else 0.0


def _cost(engines: list[Engine], changes: list[Change]) -> dict[str, float]:
    """Costs of the pools together: shares weighted by their calls."""
    total = sum(len(engine.pool) for engine in engines)
    out: dict[str, float] = {}
    for engine, change in zip(engines, changes, strict=True):
        for name, value in change.cost.items():
            share = len(engine.pool) / total if name.endswith("_ratio") else 1.0
            out[name] = out.get(name, 0.0) + share * value
    return out


def _backtest(engines: list[Engine], facts: Facts) -> float | None:
    metric = "e2e" if facts.metric == "tpot" else facts.metric
    found = [
        engine.holdout_error[f"{metric}_p{_nearest(facts.percentile)}"]
        for engine in engines
        if metric in ("e2e", "ttft")
    ]
    return max(found) if found else None


def _with_engines(answer: Prediction, engines: list[Engine]) -> Prediction:
    answer.engine = [_fitted(engine) for engine in engines]
    return answer


def _fitted(engine: Engine) -> Fitted:
    setup = engine.setup
    return Fitted(
        model=engine.pool.model,
        replicas=setup.replicas,
        calls=len(engine.pool),
        scheduler="prefill first" if setup.prefill_first else "chunked prefill",
        token_budget=setup.token_budget,
        max_sequences=setup.max_sequences,
        kv_tokens=setup.kv_tokens if setup.kv_tokens < UNLIMITED_KV else None,
        identity_error=engine.identity_error,
        holdout_error=engine.holdout_error,
        seconds=engine.seconds,
        guessed=engine.unseen,
    )


def without(calls: Calls, removed: BoolArray) -> Calls:
    """The calls without some: those never arrive, and what waited for one of them follows what it had waited for."""
    arrival, after = calls.arrival_s.copy(), calls.after.copy()
    for i in np.flatnonzero(removed):
        for child in np.flatnonzero(after == i):
            after[child], arrival[child] = after[i], arrival[child] + arrival[i]
        after[i] = -1
    follows = calls.follows.copy()
    for i in np.flatnonzero(removed[np.maximum(follows, 0)] & (follows >= 0)):
        while follows[i] >= 0 and removed[follows[i]]:
            follows[i] = follows[follows[i]]
    return replace(
        calls, arrival_s=np.where(removed, np.inf, arrival), after=after, follows=follows
    )
