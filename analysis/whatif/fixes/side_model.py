"""What if side tasks ran on a smaller model? An estimate: the time of guardrails, routers and classifiers is multiplied by your factor.

Side calls are those with short answers that do not give the request its answer, or those of the named model. Local small models answer in 1 to 3 ms where
a remote large one takes 300 (published example); measure yours.
"""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
from msgspec import Meta

from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction, refuse
from overrun.analysis.whatif.scaled_model_time import multiplied

# Answers below this many tokens are labels, not text: published signature of side tasks.
SHORT: Final = 20


def predict(
    facts: Facts,
    *,
    time_factor: Annotated[
        float, Meta(ge=0, le=10, description="time of a side call over today's, such as 0.05")
    ],
    model: Annotated[str, Meta(description="only calls of this model count as side calls")] = "",
) -> Prediction:
    """Return the answer with `cost.side_calls_ratio`, the part of the calls that move."""
    fix = Fix(
        "side_model",
        f"Run side tasks in {time_factor:g} times the time",
        "the small model decides equally well",
        {"time_factor": time_factor, "model": model},
    )
    side = np.nan_to_num(facts.call("output_tokens"), nan=np.inf) < SHORT
    if model:
        side = (facts.calls["model"] == model).fill_null(False).to_numpy()
    else:
        answers = np.zeros(len(side), np.bool_)
        answers[facts.answering[facts.answering >= 0]] = True
        side &= ~answers
    side &= facts.request_of >= 0
    if not side.any():
        return refuse(
            facts,
            fix,
            "estimate",
            f"no call of a side task is recorded (answers under {SHORT} tokens beside the answering call)",
        )
    answer = multiplied(facts, fix, time_factor, which=side)
    answer.cost["side_calls_ratio"] = float(side.sum() / (facts.request_of >= 0).sum())
    return answer
