"""What if application and model were in one region? Each model call gets your network time; simulated, because calls then run in other batches.

The network time of a call is its client's time beyond the engine's own time. A call with only one of the two spans gets the usual network time of its
model. It is split into the way there and back as recorded, or in halves if the clocks do not allow that. If the engine cannot be simulated, the arithmetic
alone is used; without engine spans, the request's network stage.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
import polars as pl
from msgspec import Meta

from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.whatif.engine_replay import Change, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import (
    Fix,
    Prediction,
    Times,
    predict_times,
    recorded,
    refuse,
)
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import say_ms


def predict(
    facts: Facts,
    *,
    network_ms: Annotated[
        float,
        Meta(ge=0, lt=1e6, description="network time of one call and its answer, in ms, such as 2"),
    ],
) -> Prediction:
    """Return the answer; it costs a move."""
    fix = Fix(
        "co_location",
        f"Bring the network time of a model call to {say_ms(network_ms)}",
        "nothing but the network time changes",
        {"network_ms": network_ms},
    )
    way = facts.call("e2e_ms") - facts.call("engine_e2e_ms")
    old = recorded(facts)
    if not np.isnan(way[facts.request_of >= 0]).all():
        alone = facts.calls["engine_alone"].fill_null(False).to_numpy()
        saved = np.maximum(way - network_ms, 0.0)
        first = np.minimum(
            saved, np.maximum(facts.call("ttft_client_ms") - facts.call("ttft_engine_ms"), 0.0)
        )
        there = np.where(
            alone | np.isnan(way) | (way <= 0.0), 0.5, facts.way_there_ms / np.maximum(way, 1e-9)
        )
        saved, first = (
            _usual(facts, np.where(alone, np.nan, saved)),
            _usual(facts, np.where(alone, np.nan, first)),
        )

        def change(engine: Engine) -> Change:
            pool, saved_s = engine.pool, saved[engine.pool.rows] / 1000.0
            ahead_s = there[pool.rows] * saved_s
            after, gap = pool.calls.after, pool.calls.arrival_s
            # A call that follows another leaves earlier by the way back of that one, and arrives earlier by its own way there.
            back = np.where(after >= 0, (saved_s - ahead_s)[np.maximum(after, 0)], 0.0)
            sooner = gap - back - ahead_s
            return Change(
                replace(
                    pool.calls, arrival_s=np.where(after >= 0, np.maximum(sooner, 0.0), sooner)
                ),
                engine.setup,
                spent_s=pool.e2e_s + saved_s,
            )

        def bound() -> Prediction:
            ttft_delta, e2e_delta = facts.per_request(-saved, -first)
            return predict_times(
                facts,
                fix,
                Times(old.ttft + ttft_delta, old.e2e + e2e_delta, old.tpot),
                method="exact",
            )

        return predict_simulated(facts, fix, change, bound=bound)
    spent, before = (
        np.nan_to_num(facts.ms("network_ms")),
        np.nan_to_num(facts.ms("ttft_network_ms")),
    )
    if not spent.any():
        return refuse(
            facts,
            fix,
            "exact",
            "network time and model time are not separated: record the engine's spans beside the client's",
        )
    calls = np.maximum(np.nan_to_num(facts.ms("llm_calls"), nan=1.0), 1.0)
    saved = np.maximum(spent - network_ms * calls, 0.0)
    return predict_times(
        facts,
        fix,
        Times(old.ttft - np.minimum(saved, before), old.e2e - saved, old.tpot),
        method="exact",
    )


def _usual(facts: Facts, ms: FloatArray) -> FloatArray:
    """The times with unknown ones (NaN) as the median of the known ones of their model, of all where a call names none, 0 for a model without known ones."""
    own = pl.col("ms").median().over("model")
    told = facts.calls.select("model", ms=pl.Series(ms)).with_columns(pl.col("ms").fill_nan(None))
    every = pl.when(pl.col("model").is_null()).then(pl.col("ms").median())
    filled: FloatArray = (
        told.select(
            pl.coalesce("ms", pl.when(pl.col("model").is_not_null()).then(own), every).fill_null(
                0.0
            )
        )
        .to_series()
        .to_numpy()
    )
    return filled
