"""What if so large a part of the input came from the prefix cache again? Simulated with that part of each prompt already read.

Restored by a stable order of the prompt (what changes, such as a timestamp, at its end), by session affinity of the router, or by more KV. Calls
that hit more than that keep what they have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
from msgspec import Meta

from analysis.finding import say_ratio
from analysis.whatif.calibrate import Engine
from analysis.whatif.facts import Facts
from analysis.whatif.prediction import Fix, Prediction, Times, predict_times, recorded
from analysis.whatif.shorter import input_saved_ms
from analysis.whatif.simulate import Change, predict_simulated


def predict(
    facts: Facts, *, hit_ratio: Annotated[float, Meta(ge=0, lt=1, description="part of the input tokens that the cache holds, 0..1 (what it was before)")]
) -> Prediction:
    """Return the answer; it costs no answers, `cost.cached_ratio_now` is the recorded hit ratio."""
    fix = Fix("prefix_cache", f"Bring the prefix cache to {say_ratio(hit_ratio)} of input tokens", "the shared prefix is that long in every call",
              {"hit_ratio": hit_ratio})
    tokens, cached = facts.call("input_tokens"), np.nan_to_num(facts.call("cached_tokens"))
    total = float(np.nansum(tokens))

    def change(engine: Engine) -> Change:
        calls = engine.pool.calls
        wanted = np.floor(calls.prompt_tokens * hit_ratio).astype(np.int64)
        return Change(replace(calls, cached_tokens=np.clip(np.maximum(calls.cached_tokens, wanted), 0, calls.prompt_tokens - 1)), engine.setup)

    def bound() -> Prediction:
        ttft, e2e = facts.per_request(-input_saved_ms(facts, tokens * (1.0 - hit_ratio)))
        old = recorded(facts)
        return predict_times(facts, fix, Times(old.ttft + ttft, old.e2e + e2e, old.tpot), method="exact")

    return predict_simulated(facts, fix, change, bound=bound, cost={"cached_ratio_now": float(cached.sum() / total) if total else 0.0})
