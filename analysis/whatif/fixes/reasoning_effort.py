"""What if the model reasoned less? Simulated with a part of the reasoning tokens of each answer; its effect on quality is not in the figure.

Hidden reasoning comes before the first visible token, so the client's TTFT falls with it if the client measured it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
from msgspec import Meta

from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.whatif.engine_replay import Change, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.fewer_tokens import behind_thought, output_saved_ms
from overrun.analysis.whatif.prediction import (
    Fix,
    Prediction,
    Times,
    predict_times,
    recorded,
    refuse,
)


def predict(
    facts: Facts,
    *,
    factor: Annotated[
        float, Meta(ge=0, lt=1, description="reasoning tokens over today's, such as 0.3")
    ],
) -> Prediction:
    """Return the answer with `cost.reasoning_tokens_cut_ratio` of output tokens."""
    fix = Fix(
        "reasoning_effort",
        f"Reason with {factor:g} times the tokens",
        "answers stay good enough with less reasoning",
        {"factor": factor},
    )
    reasoning, output = facts.call("reasoning_tokens"), facts.call("output_tokens")
    if not np.nansum(reasoning) > 0.0:
        return refuse(
            facts,
            fix,
            "simulated",
            "no call carries reasoning tokens: send gen_ai.usage.reasoning.output_tokens",
        )
    gone = np.floor(np.minimum(np.nan_to_num(reasoning), np.nan_to_num(output)) * (1.0 - factor))
    kept = output - gone
    cost = {"reasoning_tokens_cut_ratio": float(gone.sum() / max(1.0, float(np.nansum(output))))}

    def change(engine: Engine) -> Change:
        calls = engine.pool.calls
        return Change(
            replace(
                calls,
                output_tokens=np.maximum(
                    1, calls.output_tokens - gone[engine.pool.rows].astype(np.int64)
                ),
            ),
            engine.setup,
        )

    def bound() -> Prediction:
        # Hidden reasoning fills the time before the client's first token.
        wait, e2e, hidden = facts.call("ttft_ms"), facts.call("e2e_ms"), behind_thought(facts)
        saved = output_saved_ms(facts, kept)
        first = np.where(hidden, np.minimum(saved, np.nan_to_num(wait)), 0.0)
        ttft_delta, e2e_delta = facts.per_request(-np.minimum(saved, np.nan_to_num(e2e)), -first)
        old = recorded(facts)
        return predict_times(
            facts, fix, Times(old.ttft + ttft_delta, old.e2e + e2e_delta, old.tpot), method="exact"
        )

    return predict_simulated(facts, fix, change, bound=bound, cost=cost)
