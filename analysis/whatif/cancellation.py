"""What if the engine stopped as soon as nobody waited for the answer? Simulated with calls cut where their client had gone.

Today's waste is seen where an engine worked on a call for longer than its client waited, or on beside a call of the same request that was given up:
who leaves before the answer is there never learns its id, so the engine's half of that call stands by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from analysis.latency import FloatArray
from analysis.repeats import impatient
from analysis.whatif.calibrate import Engine
from analysis.whatif.facts import Facts
from analysis.whatif.prediction import Fix, Prediction, refuse
from analysis.whatif.simulate import Change, predict_simulated

# A client is gone when the engine's end lies this far behind its own, in ms: more than an answer's way back.
GONE_MS: Final = 250.0
# Log units of extra width: what dropped calls leave in the prefix caches, and where later calls are sent without them, is not simulated; as measured.
UNSEEN: Final = {"e2e": 0.02, "tpot": 0.02, "ttft": 0.12}


def predict(facts: Facts) -> Prediction:
    """Return the answer with `cost.wasted_tokens_ratio_now`, the part of output tokens that nobody waited for."""
    fix = Fix("cancellation", "Cancel in the engine what the client has given up", "the engine stops within a step of the client's end", {})
    e2e, engine_e2e = stayed_ms(facts), facts.call("engine_e2e_ms")
    wait, output = facts.call("ttft_engine_ms"), facts.call("output_tokens")
    if np.isnan(engine_e2e).all():
        return refuse(facts, fix, "simulated", "only an engine's own spans show that it works on after the client has gone: switch its tracing on")
    gone = engine_e2e > e2e + GONE_MS
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.clip((e2e - wait) / (engine_e2e - wait), 0.0, 1.0)
    kept = np.where(gone, np.maximum(1.0, np.floor(np.nan_to_num(output * share))), output)
    wasted = float(np.nansum(output - kept) / max(1.0, float(np.nansum(output))))
    if not gone.any():
        return refuse(facts, fix, "simulated", "no engine worked on after its client had gone: there is nothing to cancel")

    def change(engine: Engine) -> Change:
        tokens = np.maximum(1, np.nan_to_num(kept[engine.pool.rows], nan=1.0)).astype(np.int64)
        return Change(replace(engine.pool.calls, output_tokens=np.minimum(engine.pool.calls.output_tokens, tokens)), engine.setup)

    return predict_simulated(facts, fix, change, cost={"wasted_tokens_ratio_now": wasted}, worse=UNSEEN)


def stayed_ms(facts: Facts) -> FloatArray:
    """Return how long the client of each call stayed: its own time, for an engine's call by itself until the last call that its request gave up ended."""
    calls = facts.calls
    left = calls.filter(~pl.col("engine_alone") & pl.col("error").fill_null(False) & impatient()).group_by("trace_id").agg(left_us=pl.col("end_us").max())
    until = calls.select("trace_id", "start_us", "engine_alone").join(left, on="trace_id", how="left", maintain_order="left")
    given_up = until.select(pl.when("engine_alone").then((pl.col("left_us") - pl.col("start_us")) / 1000.0)).to_series().fill_null(np.nan).to_numpy()
    stayed: FloatArray = np.where(np.isnan(given_up), facts.call("e2e_ms"), np.maximum(given_up, 0.0))
    return stayed
