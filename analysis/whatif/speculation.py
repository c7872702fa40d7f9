"""What if speculative decoding were switched on or off? Simulated with several tokens a step, each step dearer by the draft's cost.

What decides is the mean accepted length against the draft's cost, not an acceptance of 50 %: a cheap draft pays at 30 %. At full batches the engine is
compute-bound and checking drafts costs what it saves; the simulated step knows that as far as the recording shows such batches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

import numpy as np
import polars as pl
from msgspec import Meta

from analysis.whatif.calibrate import Engine
from analysis.whatif.engine import Costs
from analysis.whatif.facts import Facts
from analysis.whatif.prediction import Fix, Prediction, refuse
from analysis.whatif.scaled import multiplied
from analysis.whatif.simulate import Change, predict_simulated

# Log units of extra width: what drafts cost is nowhere told, and half a step instead of 0.15 of one makes a third more or less.
COST_UNKNOWN: Final = 0.2


def predict(
    facts: Facts,
    *,
    enabled: Annotated[bool, Meta(description="true: switch it on; false: switch it off")] = True,
    accepted_length: Annotated[
        float, Meta(ge=0, le=64, description="tokens that a step yields with it; 0: as the engine's metrics tell (to switch it off)")
    ] = 0.0,
    draft_cost_ratio: Annotated[float, Meta(ge=0, le=10, description="what drafting and checking add to a step, as a part of it")] = 0.15,
) -> Prediction:
    """Return the answer: an estimate from the given length and cost."""
    length = accepted_length or recorded_length(facts.points)
    fix = Fix(
        "speculation",
        f"Speculative decoding {'on' if enabled else 'off'}",
        f"a step with it yields {length:.2f} tokens and costs {1 + draft_cost_ratio:.2f} times one without, whatever the batch",
        {"enabled": enabled, "accepted_length": length, "draft_cost_ratio": draft_cost_ratio},
    )
    if length < 1.0:
        return refuse(facts, fix, "estimate", "the accepted length is not known: give accepted_length (1 or more), or scrape the engine's metrics")
    tokens = length if enabled else 1.0 / length
    dearer = 1.0 + draft_cost_ratio if enabled else 1.0 / (1.0 + draft_cost_ratio)

    def costs(now: Costs) -> Costs:
        return replace(now, step=now.step * dearer, kv_token=now.kv_token * dearer, sequence=now.sequence * dearer)

    def change(engine: Engine) -> Change:
        calls = engine.pool.calls
        if enabled:
            return Change(calls, replace(engine.setup, tokens_per_step=length), costs=costs)
        # Without it every token takes a step of its own: the recorded steps yield `length` tokens each.
        longer = np.maximum(1, np.ceil(calls.output_tokens * length)).astype(np.int64)
        return Change(replace(calls, output_tokens=longer), replace(engine.setup, tokens_per_step=1.0), costs=costs)

    answer = predict_simulated(facts, fix, change, bound=lambda: multiplied(facts, fix, 1.0, dearer / tokens), worse=COST_UNKNOWN)
    answer.method = "estimate"
    return answer


def recorded_length(points: pl.DataFrame) -> float:
    """Return the tokens that a step yields by the engines' gauges, else by their counters; 0 where neither is there.

    A step yields one token and those accepted beside it: output tokens over those that were not accepted from a draft.
    """
    values = {name: points.filter(pl.col("indicator") == name)["value"] for name in ("spec_accept_length", "spec_accepted_tokens", "output_tokens")}
    told, accepted, written = values.values()
    if len(told):
        return float(told.median())  # type: ignore[arg-type]
    if not len(accepted) or not len(written):
        return 0.0
    mean, beside = float(written.mean()), float(accepted.mean())  # type: ignore[arg-type]
    return mean / (mean - beside) if 0.0 < beside < mean else 0.0
