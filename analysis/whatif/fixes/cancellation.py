"""What if the engine stopped as soon as the client has left? Simulated with calls that are cut at that moment.

A client that left when another call of its request ended leaves when that call ends now. Any other client leaves after its recorded time. The number of
tokens that the engine has written by then depends on its pace, and its pace depends on the tokens that it need not write: both are found in some rounds.

Today's waste is visible if an engine worked on a call for longer than its client waited, or continued beside a call of the same request that was
abandoned. A client that leaves before the answer never learns its id, so the engine's half of that call is not joined to it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.evidence.repeated_calls import impatient
from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.simulator.engine import Calls, simulate
from overrun.analysis.whatif.engine_replay import Change, predict_simulated, routed
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction, refuse
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray

# A client is gone when the engine's end lies this far behind its own, in ms: more than an answer's way back.
GONE_MS: Final = 250.0
# Rounds of simulated calls and where they are cut then; own default, after which the cuts move by less than the replay errs.
ROUNDS: Final = 3
# Log units of extra width: what dropped calls leave in the prefix caches, and where later calls are sent without them, is not simulated; as measured.
UNSIMULATED_WIDTH: Final = {"e2e": 0.045, "tpot": 0.03, "ttft": 0.25}


def predict(facts: Facts) -> Prediction:
    """Return the answer with `cost.wasted_tokens_ratio_now`, the part of output tokens that no client waited for."""
    fix = Fix(
        "cancellation",
        "Cancel abandoned calls in the engine",
        "the engine stops within one step after the client has left",
        {},
    )
    e2e, engine_e2e = stayed_ms(facts), facts.call("engine_e2e_ms")
    wait, output = facts.call("ttft_engine_ms"), facts.call("output_tokens")
    if np.isnan(engine_e2e).all():
        return refuse(
            facts,
            fix,
            "simulated",
            "only the engine's own spans show that it continues after the client has left: switch its tracing on",
        )
    gone = engine_e2e > e2e + GONE_MS
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.clip((e2e - wait) / (engine_e2e - wait), 0.0, 1.0)
    kept = np.where(gone, np.maximum(1.0, np.floor(np.nan_to_num(output * share))), output)
    wasted = float(np.nansum(output - kept) / max(1.0, float(np.nansum(output))))
    if not gone.any():
        return refuse(
            facts,
            fix,
            "simulated",
            "no engine continued after its client had left: there is nothing to cancel",
        )
    other, later_s = left_with(facts, gone, e2e)

    def change(engine: Engine) -> Change:
        tokens = np.maximum(1, np.nan_to_num(kept[engine.pool.rows], nan=1.0)).astype(np.int64)
        calls = replace(
            engine.pool.calls, output_tokens=np.minimum(engine.pool.calls.output_tokens, tokens)
        )
        for _ in range(ROUNDS):
            calls = cut(engine, calls, gone, e2e / 1000.0, other, later_s)
        return Change(calls, engine.setup)

    return predict_simulated(
        facts, fix, change, cost={"wasted_tokens_ratio_now": wasted}, worse=UNSIMULATED_WIDTH
    )


def cut(
    engine: Engine,
    now: Calls,
    gone: BoolArray,
    stayed_s: FloatArray,
    other: IntArray,
    later_s: FloatArray,
) -> Calls:
    """Return the pool's calls with as many tokens of those that their clients leave (`gone`, as the rest of all calls) as these would see where the engine has
    `now` to write: until the end of the `other` call and `later_s` longer, or for `stayed_s`."""
    pool = engine.pool
    run = simulate(now, routed(engine, engine.setup), engine.costs)
    place = np.full(len(gone), -1)
    place[pool.rows] = np.arange(len(pool))
    token_s = (run.end_s - run.first_s) / np.maximum(now.output_tokens - 1, 1)
    written = (now.output_tokens > 1) & ~np.isnan(token_s)
    token_s = np.where(written, token_s, np.median(token_s[written]) if written.any() else 0.0)
    beside = np.where(other[pool.rows] >= 0, place[other[pool.rows]], -1)
    stays_s = np.where(
        beside >= 0, run.end_s[beside] + later_s[pool.rows] - run.arrived_s, stayed_s[pool.rows]
    )
    seen = np.floor(1.0 + np.nan_to_num((stays_s - run.ttft_s) / np.maximum(token_s, 1e-6)))
    whole = pool.calls.output_tokens
    return replace(
        now,
        output_tokens=np.where(gone[pool.rows], np.clip(seen, 1, whole).astype(np.int64), whole),
    )


def left_with(facts: Facts, gone: BoolArray, stayed: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the row of the call of the same request at whose end the client left each call, -1 where there is none, and how long after that end in
    its engine, in seconds."""
    calls = facts.calls.select(
        "trace_id",
        "end_us",
        left_us=pl.col("start_us") + 1000.0 * pl.Series(stayed),
        row=pl.int_range(pl.len()),
        gone=pl.Series(gone),
        over_us=pl.col("start_us") + 1000.0 * pl.col("engine_e2e_ms"),
    )
    others = calls.filter(~pl.col("gone")).select("trace_id", "end_us", "over_us", other="row")
    near = (
        calls.filter("gone")
        .select("trace_id", "left_us", "row")
        .join(others, on="trace_id")
        .with_columns(off=(pl.col("left_us") - pl.col("end_us")).abs())
        .filter((pl.col("off") <= 1000.0 * GONE_MS) & pl.col("over_us").is_not_null())
        .sort("off")
        .unique("row", keep="first")
    )
    other, later_s = np.full(len(gone), -1), np.zeros(len(gone))
    other[near["row"].to_numpy()] = near["other"].to_numpy()
    later_s[near["row"].to_numpy()] = (near["left_us"] - near["over_us"]).to_numpy() / 1e6
    return other, later_s


def stayed_ms(facts: Facts) -> FloatArray:
    """Return how long the client of each call stayed: its own time, for an engine's call by itself until the last call that its request gave up ended."""
    calls = facts.calls
    left = (
        calls.filter(~pl.col("engine_alone") & pl.col("error").fill_null(False) & impatient())
        .group_by("trace_id")
        .agg(left_us=pl.col("end_us").max())
    )
    until = calls.select("trace_id", "start_us", "engine_alone").join(
        left, on="trace_id", how="left", maintain_order="left"
    )
    given_up = (
        until.select(
            pl.when("engine_alone").then((pl.col("left_us") - pl.col("start_us")) / 1000.0)
        )
        .to_series()
        .fill_null(np.nan)
        .to_numpy()
    )
    stayed: FloatArray = np.where(
        np.isnan(given_up), facts.call("e2e_ms"), np.maximum(given_up, 0.0)
    )
    return stayed
