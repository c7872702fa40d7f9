"""What if repeated questions were answered from a cache? Exact for prompts that were repeated word for word, an estimate for a share that you give.

Without `hit_ratio` a call is a hit of an exact cache if an earlier call of the same model had already answered its prompt hash (`overrun.prompt_hash`, a
hash and not the text). With it, that share of the requests is drawn, as for a semantic cache, which also answers similar prompts: the cost of wrong
answers is not in the figure. Hits also free the engine, which is simulated if possible.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import numpy as np
import polars as pl
from msgspec import Meta

from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.whatif.engine_replay import Change, predict_simulated, without
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import (
    METRICS,
    Fix,
    Prediction,
    Times,
    predict_times,
    recorded,
    refuse,
)
from overrun.analysis.words.arrays import BoolArray
from overrun.analysis.words.finding import SEED, say_ms, say_ratio

DRAWS: Final = 16
# Other draws that are replayed: each takes a run of the engine.
REPLAYED: Final = 3
# Fewest calls with a hash to speak of how many repeat; as in the rule of this name.
MIN_HASHED: Final = 50


def predict(
    facts: Facts,
    *,
    hit_ratio: Annotated[
        Annotated[float, Meta(gt=0, lt=1)] | None,
        Meta(
            description="share of requests that the cache answers, 0..1; by default the repeats by prompt hash"
        ),
    ] = None,
    hit_ms: Annotated[
        float, Meta(ge=0, lt=60_000, description="time of an answer from the cache, in ms")
    ] = 50.0,
) -> Prediction:
    """Return the answer with `cost.cached_answers_ratio`, the share of the requests that are answered from the cache."""
    if (facts.answering < 0).all() and not (facts.request_of >= 0).any():
        fix = Fix(
            "response_cache",
            "Answer repeated questions from a cache",
            "cached answers are still right",
            {"hit_ms": hit_ms},
        )
        return refuse(
            facts,
            fix,
            "exact" if hit_ratio is None else "estimate",
            "no request has a model call that a cache could save",
        )
    return _exact(facts, hit_ms) if hit_ratio is None else _drawn(facts, hit_ratio, hit_ms)


def _exact(facts: Facts, hit_ms: float) -> Prediction:
    """The calls that an exact cache would have answered."""
    fix = Fix(
        "response_cache",
        f"Answer repeated prompts from a cache in {say_ms(hit_ms)}",
        "cached answers are still right when they are used again",
        {"hit_ms": hit_ms},
    )
    hashed = facts.calls.get_column(
        "prompt_hash", default=pl.Series([None] * facts.calls.height, dtype=pl.String)
    ).count()
    if hashed < MIN_HASHED:
        why = (
            f"{hashed} calls carry overrun.prompt_hash, at least {MIN_HASHED} are needed to count repeats: record it on model calls (a hash, not the text), "
            "or give hit_ratio"
        )
        return refuse(facts, fix, "exact", why)
    mine = repeated(facts) & (facts.request_of >= 0)
    if not mine.any():
        return refuse(
            facts,
            fix,
            "exact",
            f"none of {hashed} prompts had been answered before: an exact cache saves nothing here",
        )
    whole, wait = (np.nan_to_num(facts.call(name)) for name in ("e2e_ms", "ttft_ms"))
    left = np.where(mine, np.maximum(whole - hit_ms, 0.0), 0.0)
    ttft, e2e = facts.per_request(-left, np.where(mine, -np.maximum(wait - hit_ms, 0.0), 0.0))
    old = recorded(facts)
    after = Times(np.maximum(old.ttft + ttft, 0.0), np.maximum(old.e2e + e2e, 0.0), old.tpot)
    hit = np.zeros(len(facts), np.bool_)
    hit[facts.request_of[mine & facts.on_path]] = True
    # Who is answered from the cache needs no engine any more; of others that asked one repeated question among several, the engine answers the rest.
    answering = facts.answering
    answered = Times(
        *(
            np.where((answering >= 0) & mine[answering], after.of(metric), np.nan)
            for metric in METRICS
        )
    )

    def change(engine: Engine) -> Change:
        gone, pool = mine[engine.pool.rows], engine.pool
        return Change(
            without(pool.calls, gone),
            engine.setup,
            removed=gone,
            spent_s=np.where(gone, left[pool.rows] / 1000.0, pool.e2e_s),
            answered=answered,
        )

    return predict_simulated(
        facts,
        fix,
        change,
        bound=lambda: predict_times(facts, fix, after, method="exact"),
        cost={"cached_answers_ratio": float(hit.mean())},
    )


def repeated(facts: Facts) -> BoolArray:
    """Return which calls ask what an earlier one to the same model had been answered when they came, by the hash of their prompts."""
    calls = facts.calls.select(
        "start_us", "end_us", "model", "prompt_hash", answered=~pl.col("error").fill_null(False)
    ).with_row_index("row")
    known = calls.filter(pl.col("prompt_hash").is_not_null()).sort("start_us")
    ready = pl.when("answered").then("end_us").cum_min().shift(1).over("model", "prompt_hash")
    rows = known.filter((ready <= pl.col("start_us")).fill_null(False))["row"].to_numpy()
    out = np.zeros(facts.calls.height, np.bool_)
    out[rows] = True
    return out


def _drawn(facts: Facts, hit_ratio: float, hit_ms: float) -> Prediction:
    """A share of the requests that is given: which ones is drawn."""
    fix = Fix(
        "response_cache",
        f"Answer {say_ratio(hit_ratio)} of the requests from a cache",
        "repeats are spread evenly over all requests, and cached answers are still right",
        {"hit_ratio": hit_ratio, "hit_ms": hit_ms},
    )
    rng, old = np.random.default_rng(SEED), recorded(facts)
    e2e, wait = facts.call("e2e_ms"), facts.call("ttft_ms")
    hits = [rng.random(len(facts)) < hit_ratio for _ in range(DRAWS)]

    def saved(hit: BoolArray) -> BoolArray:
        """The calls of these requests."""
        return (facts.request_of >= 0) & hit[np.maximum(facts.request_of, 0)]

    def outcome(hit: BoolArray) -> Times:
        mine = saved(hit)
        ttft_delta, e2e_delta = facts.per_request(
            np.where(mine, -np.nan_to_num(e2e), 0.0), np.where(mine, -np.nan_to_num(wait), 0.0)
        )
        paid = np.where(hit, hit_ms, 0.0)
        return Times(
            np.minimum(old.ttft, np.maximum(old.ttft + ttft_delta, 0.0) + paid),
            np.minimum(old.e2e, np.maximum(old.e2e + e2e_delta, 0.0) + paid),
            old.tpot,
        )

    def change(engine: Engine, hit: BoolArray = hits[0]) -> Change:
        gone, times = saved(hit)[engine.pool.rows], outcome(hit)
        answered = Times(*(np.where(hit, times.of(metric), np.nan) for metric in METRICS))
        return Change(
            without(engine.pool.calls, gone), engine.setup, removed=gone, answered=answered
        )

    def bound() -> Prediction:
        outcomes = [outcome(hit) for hit in hits]
        return predict_times(facts, fix, outcomes[0], method="estimate", draws=outcomes[1:])

    answer = predict_simulated(
        facts,
        fix,
        change,
        bound=bound,
        cost={"cached_answers_ratio": hit_ratio},
        also=[partial(change, hit=hit) for hit in hits[1 : 1 + REPLAYED]],
    )
    answer.method = "estimate"
    return answer
