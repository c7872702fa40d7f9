"""What if weights or KV cache had fewer bits? An estimate: the factors are yours, their effect on queues is simulated.

Fewer bits of weights shorten what a step reads (decode) and free memory for KV blocks; prompts are compute-bound and gain little or nothing. The
quality of answers is not in the figure: test it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from msgspec import Meta

from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.simulator.engine import Costs
from overrun.analysis.whatif.engine_replay import Change, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction
from overrun.analysis.whatif.scaled_model_time import multiplied


def predict(
    facts: Facts,
    *,
    step_factor: Annotated[
        float, Meta(gt=0.01, lt=100, description="time of a decode step over today's, such as 0.65")
    ],
    prefill_factor: Annotated[
        float, Meta(gt=0.01, lt=100, description="time of a prompt token over today's")
    ] = 1.0,
    kv_factor: Annotated[
        float,
        Meta(
            gt=0.01,
            lt=1000,
            description="KV tokens of a replica over today's, such as 2 for an 8-bit cache",
        ),
    ] = 1.0,
) -> Prediction:
    """Return the answer; the interval knows nothing of the factors' own uncertainty."""
    fix = Fix(
        "quantisation",
        f"Quantise: decode in {step_factor:g} times the time",
        "the factors hold for your model and its quality stays good enough",
        {"step_factor": step_factor, "prefill_factor": prefill_factor, "kv_factor": kv_factor},
    )

    def costs(now: Costs) -> Costs:
        return replace(
            now,
            step=now.step * step_factor,
            kv_token=now.kv_token * step_factor,
            prefill_token=now.prefill_token * prefill_factor,
            attention=now.attention * prefill_factor,
        )

    def change(engine: Engine) -> Change:
        setup = engine.setup
        more = replace(
            setup,
            kv_tokens=int(setup.kv_tokens * kv_factor),
            cache_tokens=int(setup.cache_tokens * kv_factor),
        )
        return Change(engine.pool.calls, more, costs=costs)

    answer = predict_simulated(
        facts, fix, change, bound=lambda: multiplied(facts, fix, prefill_factor, step_factor)
    )
    answer.method = "estimate"
    return answer
