"""What if each replica had another amount of KV cache? Simulated with its blocks times a factor.

More blocks come from a higher --gpu-memory-utilization, an 8-bit KV cache (twice the tokens), weights in fewer bits, or more GPUs per replica; their
own cost in speed or quality is not in the figure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from msgspec import Meta

from analysis.whatif.calibrate import Engine
from analysis.whatif.facts import Facts
from analysis.whatif.prediction import Fix, Prediction
from analysis.whatif.simulate import Change, predict_simulated


def predict(facts: Facts, *, factor: Annotated[float, Meta(gt=0, le=1000, description="KV tokens of a replica over today's, such as 2")]) -> Prediction:
    """Return the answer; it refuses where no capacity is known and nothing shows that it was ever met."""
    fix = Fix("kv_size", f"Hold {factor:g} times as much KV cache", "blocks are all that changes", {"factor": factor})

    def change(engine: Engine) -> Change:
        return Change(engine.pool.calls, replace(engine.setup, kv_tokens=int(engine.setup.kv_tokens * factor)))

    return predict_simulated(facts, fix, change, needs_kv=True)
