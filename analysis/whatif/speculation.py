"""What if speculative decoding were switched on or off? Simulated with several tokens a step, each step dearer by the draft's cost.

What decides is the mean accepted length against the draft's cost, not an acceptance of 50 %: a cheap draft pays at 30 %. At full batches the engine is
compute-bound and checking drafts costs what it saves: a step checks all drafted tokens of every sequence, so that part of it that grows with the batch is
divided by them when drafting ends.
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

# Log units of extra width: what drafts cost is nowhere told, and half a step instead of 0.2 of one makes a quarter more or less.
COST_UNKNOWN: Final = 0.2
# What proposing one token adds to a step, as a part of it: a head of one or two layers on a model of some thirty, and its launch; own default. Taken
# for three tokens where it is not told how many are drafted.
COST_A_TOKEN: Final = 0.05
USUAL_DRAFT: Final = 3.0


def predict(
    facts: Facts,
    *,
    enabled: Annotated[bool, Meta(description="true: switch it on; false: switch it off")] = True,
    accepted_length: Annotated[
        float, Meta(ge=0, le=64, description="tokens that a step yields with it; 0: as the engine's metrics tell (to switch it off)")
    ] = 0.0,
    draft_cost_ratio: Annotated[
        float, Meta(ge=-1, le=10, description="what drafting adds to a step, as a part of it; -1: 0.05 for each token that is drafted")
    ] = -1.0,
) -> Prediction:
    """Return the answer: an estimate from the given length and cost."""
    length, drafted = accepted_length or recorded_length(facts.points), recorded_draft(facts.points)
    if draft_cost_ratio < 0.0:
        draft_cost_ratio = COST_A_TOKEN * (drafted or USUAL_DRAFT)
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

    checked = 1.0 if enabled else 1.0 + drafted

    def costs(now: Costs) -> Costs:
        return replace(now, step=now.step * dearer, kv_token=now.kv_token * dearer, sequence=now.sequence * dearer / checked)

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


def recorded_draft(points: pl.DataFrame) -> float:
    """Return how many tokens are drafted for each step by the engines' counters, 0 where they do not tell."""
    drafted, steps = _mean(points, "spec_draft_tokens"), _steps(points)
    return drafted / steps if drafted and steps else 0.0


def recorded_length(points: pl.DataFrame) -> float:
    """Return the tokens that a step yields by the engines' gauges, else by their counters; 0 where neither is there.

    A step of a sequence yields one token and those accepted beside it.
    """
    told = points.filter(pl.col("indicator") == "spec_accept_length")["value"]
    if len(told):
        return float(told.median())  # type: ignore[arg-type]
    accepted, steps = _mean(points, "spec_accepted_tokens"), _steps(points)
    return 1.0 + accepted / steps if accepted and steps else 0.0


def _steps(points: pl.DataFrame) -> float:
    """Steps of sequences a second: as counted, else the output tokens that were not accepted from a draft."""
    counted, written, accepted = (_mean(points, name) for name in ("spec_drafts", "output_tokens", "spec_accepted_tokens"))
    return counted or max(0.0, written - accepted)


def _mean(points: pl.DataFrame, indicator: str) -> float:
    values = points.filter(pl.col("indicator") == indicator)["value"]
    return float(values.mean()) if len(values) else 0.0  # type: ignore[arg-type]
