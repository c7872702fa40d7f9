"""What if a replica ran at most so many sequences at once? Simulated.

Fewer seats make tokens quicker and the queue longer; more seats the other way round, until the KV cache is full and they change nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from msgspec import Meta

from analysis.whatif.calibrate import Engine
from analysis.whatif.facts import Facts
from analysis.whatif.prediction import Fix, Prediction
from analysis.whatif.simulate import Change, predict_simulated


def predict(facts: Facts, *, sequences: Annotated[int, Meta(ge=1, le=100_000, description="seats of a replica (max_num_seqs)")]) -> Prediction:
    """Return the answer; the fix takes nothing away."""
    fix = Fix("max_sequences", f"Run at most {sequences:,} sequences per replica", "the other settings stay", {"sequences": sequences})

    def change(engine: Engine) -> Change:
        return Change(engine.pool.calls, replace(engine.setup, max_sequences=sequences))

    return predict_simulated(facts, fix, change)
