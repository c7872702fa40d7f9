"""What if another rule distributed the calls among the replicas? Simulated with the knowledge of a router when a call arrives.

`least_load` counts calls, `by_input` their input tokens, `least_work` input and predicted output, `by_predicted_length` predicted output, `lanes` keeps
long answers on replicas of their own; `shortest_first` admits the shortest call that waits at a replica. The predictions are those of a length predictor
where one watched the calls (`overrun serve --artifact`), else the median answer of calls of the same route and like input, as a router without a trained
predictor would have it. The replica at which a round begins is not known:
if one replica is slower, its share of long calls depends on that, and the interval covers each beginning.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Final

import numpy as np
import polars as pl
from msgspec import Meta

from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.simulator.placement import MOST_OVER, ORDERS, Policy, fullest, placed
from overrun.analysis.whatif.engine_replay import Change, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction, refuse
from overrun.analysis.words.arrays import FloatArray

# Beginnings of a round that are replayed, the recorded one among them: each takes as long as a replay, and more tell little more.
MOST_BEGINNINGS: Final = 8


def predict(
    facts: Facts,
    *,
    policy: Annotated[
        Policy,
        Meta(
            description="round_robin, least_load, by_input, by_predicted_length, least_work, lanes, shortest_first or aged_shortest_first"
        ),
    ],
) -> Prediction:
    """Return the answer; it refuses with a single replica, where there is nothing to choose."""
    fix = Fix(
        "routing",
        f"{'Serve' if policy in ORDERS else 'Route'} calls by {policy.replace('_', ' ')}",
        _knows(facts),
        {"policy": policy},
    )
    engines, why = facts.engines
    alone = all(engine.setup.replicas < 2 for engine in engines)
    if why is None and alone and policy not in ORDERS:
        return refuse(
            facts, fix, "simulated", "one replica was seen: there is nothing to choose between"
        )
    if why is None and any(engine.unseen for engine in engines):
        return refuse(
            facts,
            fix,
            "simulated",
            "no engine reports which replica served a call: switch tracing on in the inference server",
        )
    expected = expected_tokens(facts.calls)
    over = max(
        (
            fullest(expected[engine.pool.rows], engine.setup.replicas)
            for engine in engines
            if engine.setup.replicas > 1
        ),
        default=0.0,
    )
    if policy == "lanes" and over > MOST_OVER:
        why = (
            f"the lengths that a router would expect are too alike for lanes: one would have {over:.1f} times its share of the tokens; watch the calls "
            "with a length predictor (overrun serve --artifact)"
        )
        return refuse(facts, fix, "simulated", why)

    def change(engine: Engine, begins: int = 0) -> Change:
        pool = engine.pool
        calls, setup = placed(
            policy,
            pool.calls,
            engine.setup,
            engine.costs,
            expected[pool.rows],
            pool.arrived_s,
            pool.most_running,
        )
        speed = np.roll(setup.speed, -(begins % setup.replicas))
        return Change(calls, replace(setup, speed=tuple(speed.tolist())))

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
    return f"the router sees the start and end of every call{lengths}"


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
