"""What if new replicas were warm before they took traffic? Simulated with every replica at its own pace from its first call on.

The pace of a cold engine and the time until it is warm are fitted to its calls. Without engine times, calls in an instance's first minute take the first
token and the time per token of calls on a warm one at that time; requests of a new instance of the application take its own work (searches, tools) from
warm ones of their route; resampled. An instance is new if many calls of the window went elsewhere before its first call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

import numpy as np
import polars as pl
from msgspec import Meta

from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.simulator.pool import CALLS_AHEAD
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
from overrun.analysis.whatif.substitute_calls import POOL, Neighbours
from overrun.analysis.words.arrays import IntArray
from overrun.analysis.words.finding import SEED

DRAWS: Final = 8
# What an application's own instance does beside the model's calls; a guardrail may be such a call.
OWN_STAGES: Final = ("retrieval", "prompt", "tool", "post", "other")


def predict(
    facts: Facts,
    *,
    warm_up_s: Annotated[
        float, Meta(gt=0, lt=86_400, description="how long a new instance is cold, in seconds")
    ] = 60.0,
) -> Prediction:
    """Return the answer with `cost.cold_ratio_now`, the part of the calls that met a cold instance."""
    fix = Fix(
        "warm_pool",
        "Keep replicas warm before they take traffic",
        "a warm replica is as fast as the others of the same minute",
        {"warm_up_s": warm_up_s},
    )
    start = facts.calls["start_us"].to_numpy() / 1e6
    named = facts.calls.with_columns(name=pl.coalesce("engine_instance", "instance"))
    first = named.select(pl.col("start_us").min().over("name")).to_series().to_numpy() / 1e6
    known = named["name"].is_not_null().to_numpy()
    # An instance that was there would have had one of so many calls before its first.
    ahead = np.searchsorted(np.sort(start[known]), first, side="left")
    fresh = known & (ahead >= CALLS_AHEAD * named["name"].n_unique())
    cold = fresh & (start - first < warm_up_s)
    if (
        cold.any()
        and any(engine.setup.cold > 0.0 for engine in facts.engines[0])
        and facts.engines[1] is None
    ):
        return predict_simulated(facts, fix, _warm, cost={"cold_ratio_now": float(cold.mean())})
    wait, e2e, tokens = facts.call("ttft_ms"), facts.call("e2e_ms"), facts.call("output_tokens")
    seen = np.where(np.isnan(wait), e2e, wait)
    warm = known & ~cold & ~np.isnan(seen) & ~facts.calls["error"].fill_null(False).to_numpy()
    if not cold.any() or int(warm.sum()) < POOL:
        return refuse(
            facts,
            fix,
            "resampled",
            f"no instance appeared after the window began (service.instance.id), or fewer than {POOL} calls went to a warm one",
        )
    rows, rng, others, old = (
        np.flatnonzero(cold),
        np.random.default_rng(SEED),
        Neighbours(facts, warm),
        recorded(facts),
    )
    steps = np.maximum(np.nan_to_num(tokens, nan=1.0) - 1.0, 0.0)
    token_ms = np.where(steps > 0.0, (e2e - seen) / np.maximum(steps, 1.0), np.nan)

    theirs = facts.request_of[cold & named["engine_instance"].is_null().to_numpy()]
    mine = np.unique(theirs[theirs >= 0])
    own, own_before = (
        np.sum([np.nan_to_num(facts.ms(f"{prefix}{stage}_ms")) for stage in OWN_STAGES], axis=0)
        for prefix in ("", "ttft_")
    )

    def outcome() -> Times:
        drawn = others.draw(rows, rng)
        first, whole = seen.copy(), e2e.copy()
        first[rows] = np.minimum(seen[rows], seen[drawn])
        whole[rows] = first[rows] + np.fmin((e2e - seen)[rows], steps[rows] * token_ms[drawn])
        ttft_delta, e2e_delta = facts.per_request(whole - e2e, first - seen)
        like = _warm_requests(facts, mine, rng)
        e2e_delta[mine] -= np.maximum(own[mine] - own[like], 0.0)
        ttft_delta[mine] -= np.maximum(own_before[mine] - own_before[like], 0.0)
        moved = np.full(len(seen), -1, dtype=np.int64)
        moved[rows] = drawn
        at = moved[facts.answering]
        tpot = np.where(
            (facts.answering >= 0) & (at >= 0), np.fmin(old.tpot, token_ms[at]), old.tpot
        )
        return Times(old.ttft + ttft_delta, old.e2e + e2e_delta, tpot)

    outcomes = [outcome() for _ in range(DRAWS)]
    return predict_times(
        facts,
        fix,
        outcomes[0],
        method="resampled",
        draws=outcomes[1:],
        cost={"cold_ratio_now": float(cold.mean())},
    )


def _warm_requests(facts: Facts, cold: IntArray, rng: np.random.Generator) -> IntArray:
    """Return for each of the requests `cold` another one of its route that is none of them, itself where there is none."""
    route = facts.requests["route"].fill_null("").to_numpy()
    warm = np.setdiff1d(np.arange(len(facts)), cold)
    out = cold.copy()
    for name in np.unique(route[cold]):
        pool, places = warm[route[warm] == name], np.flatnonzero(route[cold] == name)
        if len(pool):
            out[places] = rng.choice(pool, len(places))
    return out


def _warm(engine: Engine) -> Change:
    """The engine with no replica cold; a router that looks for the least load gives those that were more."""
    return Change(engine.pool.calls, replace(engine.setup, cold=0.0, router=engine.pool.router))
