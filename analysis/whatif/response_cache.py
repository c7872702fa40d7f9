"""What if repeated questions were answered from a cache? An estimate: the share of repeats is yours, which requests they are is drawn.

Prompts are not stored, so repeats cannot be counted here; count normalised prompts in the application. Hits also free the engine, which is simulated where it
can be. A semantic cache answers what is only alike: what wrong answers cost is not in the figure.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

import numpy as np
from msgspec import Meta

from analysis.finding import say_ratio
from analysis.whatif.calibrate import Engine
from analysis.whatif.facts import SEED, Bools, Facts
from analysis.whatif.prediction import Fix, Prediction, Times, predict_times, recorded, refuse
from analysis.whatif.simulate import Change, predict_simulated, without

DRAWS: Final = 16
# Other draws that are replayed: each takes a run of the engine.
REPLAYED: Final = 3


def predict(
    facts: Facts,
    *,
    hit_ratio: Annotated[float, Meta(gt=0, lt=1, description="share of requests that the cache answers, 0..1")],
    hit_ms: Annotated[float, Meta(ge=0, lt=60_000, description="what an answer from the cache takes, in ms")] = 50.0,
) -> Prediction:
    """Return the answer with `cost.cached_answers_ratio`."""
    fix = Fix(
        "response_cache",
        f"Answer {say_ratio(hit_ratio)} of the requests from a cache",
        "repeats are spread over all requests alike, and cached answers still hold",
        {"hit_ratio": hit_ratio, "hit_ms": hit_ms},
    )
    if (facts.answering < 0).all() and not (facts.request_of >= 0).any():
        return refuse(facts, fix, "estimate", "no request has a model call to save")
    rng, old = np.random.default_rng(SEED), recorded(facts)
    e2e, wait = facts.call("e2e_ms"), facts.call("ttft_ms")
    hits = [rng.random(len(facts)) < hit_ratio for _ in range(DRAWS)]

    def saved(hit: Bools) -> Bools:
        """The calls of these requests."""
        return (facts.request_of >= 0) & hit[np.maximum(facts.request_of, 0)]

    def outcome(hit: Bools) -> Times:
        mine = saved(hit)
        ttft_delta, e2e_delta = facts.per_request(np.where(mine, -np.nan_to_num(e2e), 0.0), np.where(mine, -np.nan_to_num(wait), 0.0))
        paid = np.where(hit, hit_ms, 0.0)
        return Times(
            np.minimum(old.ttft, np.maximum(old.ttft + ttft_delta, 0.0) + paid), np.minimum(old.e2e, np.maximum(old.e2e + e2e_delta, 0.0) + paid), old.tpot
        )

    def change(engine: Engine, hit: Bools = hits[0]) -> Change:
        gone, times = saved(hit)[engine.pool.rows], outcome(hit)
        answered = Times(*(np.where(hit, times.of(metric), np.nan) for metric in ("ttft", "e2e", "tpot")))
        return Change(without(engine.pool.calls, gone), engine.setup, removed=gone, answered=answered)

    def bound() -> Prediction:
        outcomes = [outcome(hit) for hit in hits]
        return predict_times(facts, fix, outcomes[0], method="estimate", draws=outcomes[1:])

    answer = predict_simulated(facts, fix, change, bound=bound, cost={"cached_answers_ratio": hit_ratio},
                               also=[partial(change, hit=hit) for hit in hits[1 : 1 + REPLAYED]])
    answer.method = "estimate"
    return answer
