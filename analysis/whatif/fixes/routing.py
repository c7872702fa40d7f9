"""What if calls were shared out among the replicas by another rule? Simulated with what a router can know when a call arrives.

`least_load` counts calls, `by_input` their input tokens, `least_work` input and predicted output, `by_predicted_length` predicted output, `lanes` keeps
long answers on replicas of their own. The predictions are those of a length predictor where one watched the calls (`overrun serve --artifact`), else
the median answer of calls of the same route and like input, as a router without a trained predictor would have it. Nobody knows at which replica a round
begins: where one is slower, which of the longest calls it gets hangs on that, and the interval covers each beginning.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Final, Literal

import numpy as np
import polars as pl
from msgspec import Meta

from overrun.analysis.simulator.batching import LEAST_LOAD, ROUND_ROBIN
from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.simulator.engine import Calls
from overrun.analysis.whatif.engine_replay import Change, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction, refuse
from overrun.analysis.words.arrays import BoolArray, FloatArray

# Times its share of the tokens that a lane may have: own default, the load over capacity that a quarter of spare room bears.
MOST_OVER: Final = 1.25
# Next longer length over a length from which the two are of different kinds; own default.
APART: Final = 2.0
# Beginnings of a round that are replayed, the recorded one among them: each takes as long as a replay, and more tell little more.
MOST_BEGINNINGS: Final = 8
Policy = Literal[
    "round_robin", "least_load", "by_input", "by_predicted_length", "least_work", "lanes"
]


def predict(
    facts: Facts,
    *,
    policy: Annotated[
        Policy,
        Meta(
            description="round_robin, least_load, by_input, by_predicted_length, least_work or lanes"
        ),
    ],
) -> Prediction:
    """Return the answer; it refuses with a single replica, where there is nothing to choose."""
    fix = Fix(
        "routing", f"Route calls by {policy.replace('_', ' ')}", _knows(facts), {"policy": policy}
    )
    engines, why = facts.engines
    if why is None and all(engine.setup.replicas < 2 for engine in engines):
        return refuse(
            facts, fix, "simulated", "one replica was seen: there is nothing to choose between"
        )
    if why is None and any(engine.unseen for engine in engines):
        return refuse(
            facts,
            fix,
            "simulated",
            "no engine tells which replica served a call: switch tracing on in the inference server",
        )
    expected = expected_tokens(facts.calls)
    fullest = max(
        (
            _fullest(expected[engine.pool.rows], engine.setup.replicas)
            for engine in engines
            if engine.setup.replicas > 1
        ),
        default=0.0,
    )
    if policy == "lanes" and fullest > MOST_OVER:
        why = (
            f"the lengths that a router would expect are too alike for lanes: one would have {fullest:.1f} times its share of the tokens; watch the calls "
            "with a length predictor (overrun serve --artifact)"
        )
        return refuse(facts, fix, "simulated", why)

    def change(engine: Engine, begins: int = 0) -> Change:
        calls, length = engine.pool.calls, expected[engine.pool.rows]
        router = ROUND_ROBIN if policy == "round_robin" else LEAST_LOAD
        fresh = (calls.prompt_tokens - calls.cached_tokens).astype(np.float64)
        costs = engine.costs
        if policy == "by_input":
            calls = replace(calls, weight=fresh)
        elif policy == "by_predicted_length":
            calls = replace(calls, weight=length)
        elif policy == "least_work":
            # Work in seconds of a step: a prompt token costs its compute, an output token its part of a step.
            calls = replace(
                calls,
                weight=fresh * costs.prefill_token
                + length * (costs.sequence + costs.step / max(1.0, engine.pool.most_running)),
            )
        elif policy == "lanes" and engine.setup.replicas > 1:
            calls = _lanes(calls, length, engine.setup.replicas)
        speed = np.roll(engine.setup.speed, -(begins % engine.setup.replicas))
        return Change(calls, replace(engine.setup, router=router, speed=tuple(speed.tolist())))

    uneven = (
        [engine.setup.replicas for engine in engines if len(set(engine.setup.speed)) > 1]
        if policy == "round_robin" and why is None
        else []
    )
    return predict_simulated(
        facts,
        fix,
        change,
        also=[
            partial(change, begins=k)
            for k in range(1, min(MOST_BEGINNINGS, max(uneven, default=1)))
        ],
    )


def _knows(facts: Facts) -> str:
    """What the router is assumed to know."""
    predicted = facts.calls.get_column("predicted_p50").count()
    lengths = (
        f"; lengths as predicted for {predicted:,} of {facts.calls.height:,} calls"
        if predicted
        else "; lengths as usual for route and prompt size"
    )
    return f"the router sees every call and every end{lengths}"


def expected_tokens(calls: pl.DataFrame) -> FloatArray:
    """Return the output tokens that a router would expect of each call: those predicted when it came, else the median of its route and input size."""
    frame = calls.select(
        pl.col("route").fill_null(""),
        pl.col("predicted_p50").cast(pl.Float64),
        size=pl.col("input_tokens").fill_null(1).clip(1).log(2).round(),
        tokens=pl.col("output_tokens").cast(pl.Float64),
    )
    usual = (
        pl.col("tokens")
        .median()
        .over("route", "size")
        .fill_null(pl.col("tokens").median())
        .fill_null(1.0)
    )
    expected: FloatArray = (
        frame.select(pl.col("predicted_p50").fill_null(usual)).to_series().to_numpy()
    )
    return expected


def _lanes(calls: Calls, length: FloatArray, replicas: int) -> Calls:
    """Replicas are split in proportion to the predicted tokens of short and long calls (see `longest_short`)."""
    short = length <= longest_short(length, replicas)
    split = _replicas_for(_part(length, short), replicas)
    low, high = np.where(short, 0, split), np.where(short, split, replicas)
    return replace(calls, pool_from=low.astype(np.int64), pool_to=high.astype(np.int64))


def longest_short(length: FloatArray, replicas: int) -> float:
    """Return up to which predicted length (tokens) calls are short: below the widest gap (`APART`) that leaves neither lane more than `MOST_OVER` times its
    share of the tokens; where there is none, so that half of the tokens are theirs."""
    ordered = np.sort(length)
    tokens = np.cumsum(ordered)
    below = np.flatnonzero(ordered[1:] >= APART * ordered[:-1])
    for k in below[
        np.argsort(-ordered[below + 1] / np.maximum(ordered[below], 1.0), kind="stable")
    ]:
        if _over(float(tokens[k] / max(1.0, tokens[-1])), replicas) <= MOST_OVER:
            return float(ordered[k])
    return float(ordered[min(int(np.searchsorted(tokens, 0.5 * tokens[-1])), len(ordered) - 1)])


def _part(length: FloatArray, short: BoolArray) -> float:
    """The part (0..1) of the predicted tokens that short calls have."""
    return float(length[short].sum() / max(1.0, length.sum()))


def _replicas_for(part: float, replicas: int) -> int:
    """How many replicas short calls get for their part of the tokens."""
    return min(replicas - 1, max(1, round(replicas * part)))


def _over(part: float, replicas: int) -> float:
    """How many times its share of the predicted tokens the fuller lane has, where short calls have this part of them."""
    split = _replicas_for(part, replicas)
    return max(part * replicas / split, (1.0 - part) * replicas / (replicas - split))


def _fullest(length: FloatArray, replicas: int) -> float:
    """How many times its share of the predicted tokens the fuller lane has."""
    return _over(_part(length, length <= longest_short(length, replicas)), replicas)
