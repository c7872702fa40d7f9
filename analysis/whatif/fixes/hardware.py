"""What if every engine step took another time? An estimate: the factor of other hardware is yours, its effect on queues is simulated.

Measure the factor on the new hardware with your own mix; data sheets promise more than requests see. Without engine data the model's own time is
multiplied, queues excluded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from msgspec import Meta

from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.whatif.engine_replay import Change, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction
from overrun.analysis.whatif.scaled_model_time import multiplied


def predict(
    facts: Facts,
    *,
    time_factor: Annotated[
        float, Meta(gt=0.01, lt=100, description="time of a step over today's, such as 0.6")
    ],
    kv_factor: Annotated[
        float, Meta(gt=0.01, lt=1000, description="KV tokens of a replica over today's")
    ] = 1.0,
) -> Prediction:
    """Return the answer; the interval knows nothing of the factor's own uncertainty."""
    fix = Fix(
        "hardware",
        f"Run engine steps in {time_factor:g} times the time",
        f"every step takes {time_factor:g} times as long, at any batch size",
        {"time_factor": time_factor, "kv_factor": kv_factor},
    )

    def change(engine: Engine) -> Change:
        setup = replace(engine.setup, kv_tokens=int(engine.setup.kv_tokens * kv_factor))
        return Change(engine.pool.calls, setup, costs=lambda costs: costs.scaled(time_factor))

    answer = predict_simulated(
        facts, fix, change, bound=lambda: multiplied(facts, fix, time_factor)
    )
    answer.method = "estimate"
    return answer
