"""What if new replicas were warm before they took traffic? Calls in an instance's first minute wait as its warm neighbours did; resampled.

An instance is new when its first call comes a minute or more after the first call of the window.
"""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
import polars as pl
from msgspec import Meta

from analysis.whatif.draws import POOL, Neighbours
from analysis.whatif.facts import SEED, Facts
from analysis.whatif.prediction import Fix, Prediction, Times, predict_times, recorded, refuse

DRAWS: Final = 8
# Calls per instance that come before the first one of a new one: one that was there is passed over so often once in e^10 times; own default.
CALLS_AHEAD: Final = 10


def predict(
    facts: Facts, *, warm_up_s: Annotated[float, Meta(gt=0, lt=86_400, description="how long a new instance is cold, in seconds")] = 60.0
) -> Prediction:
    """Return the answer with `cost.cold_ratio_now`, the part of the calls that met a cold instance."""
    fix = Fix(
        "warm_pool", "Keep replicas warm before they take traffic", "a warm replica answers as its neighbours of the same minute", {"warm_up_s": warm_up_s}
    )
    start = facts.calls["start_us"].to_numpy() / 1e6
    named = facts.calls.with_columns(name=pl.coalesce("engine_instance", "instance"))
    first = named.select(pl.col("start_us").min().over("name")).to_series().to_numpy() / 1e6
    known = named["name"].is_not_null().to_numpy()
    # An instance that was there would have had one of so many calls before its first.
    ahead = np.searchsorted(np.sort(start[known]), first, side="left")
    fresh = known & (ahead >= CALLS_AHEAD * named["name"].n_unique())
    cold = fresh & (start - first < warm_up_s)
    wait, e2e = facts.call("ttft_ms"), facts.call("e2e_ms")
    seen = np.where(np.isnan(wait), e2e, wait)
    warm = known & ~cold & ~np.isnan(seen) & ~facts.calls["error"].fill_null(False).to_numpy()
    if not cold.any() or int(warm.sum()) < POOL:
        return refuse(
            facts,
            fix,
            "resampled",
            f"no instance appeared after the window began (service.instance.id), or fewer than {POOL} calls met a warm one",
        )
    rows, rng, others, old = np.flatnonzero(cold), np.random.default_rng(SEED), Neighbours(facts, warm), recorded(facts)

    def outcome() -> Times:
        new = seen.copy()
        new[rows] = np.minimum(seen[rows], seen[others.draw(rows, rng)])
        ttft_delta, e2e_delta = facts.per_request(new - seen)
        return Times(old.ttft + ttft_delta, old.e2e + e2e_delta, old.tpot)

    outcomes = [outcome() for _ in range(DRAWS)]
    return predict_times(facts, fix, outcomes[0], method="resampled", draws=outcomes[1:], cost={"cold_ratio_now": float(cold.mean())})
