"""What if repeated questions were answered from a cache? An estimate: the share of repeats is yours, which requests they are is drawn.

Prompts are not stored, so repeats cannot be counted here; count normalised prompts in the application. Hits also free the engine, which is not counted.
A semantic cache answers what is only alike: what wrong answers cost is not in the figure.
"""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
from msgspec import Meta

from analysis.finding import say_ratio
from analysis.whatif.facts import SEED, Facts
from analysis.whatif.prediction import Fix, Prediction, Times, predict_times, recorded, refuse

DRAWS: Final = 16


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

    def outcome() -> Times:
        hit = rng.random(len(facts)) < hit_ratio
        mine = (facts.request_of >= 0) & hit[np.maximum(facts.request_of, 0)]
        ttft_delta, e2e_delta = facts.per_request(np.where(mine, -np.nan_to_num(e2e), 0.0), np.where(mine, -np.nan_to_num(wait), 0.0))
        paid = np.where(hit, hit_ms, 0.0)
        return Times(
            np.minimum(old.ttft, np.maximum(old.ttft + ttft_delta, 0.0) + paid), np.minimum(old.e2e, np.maximum(old.e2e + e2e_delta, 0.0) + paid), old.tpot
        )

    outcomes = [outcome() for _ in range(DRAWS)]
    return predict_times(facts, fix, outcomes[0], method="estimate", draws=outcomes[1:], cost={"cached_answers_ratio": hit_ratio})
