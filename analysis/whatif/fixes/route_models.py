"""What if one route used another model? An estimate: the model time of its calls is multiplied by your factors.

Take the factors from the two models' own calls on like prompts (`overrun compare`), not from data sheets. Queues stay as they were.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction, refuse
from overrun.analysis.whatif.scaled_model_time import multiplied
from overrun.analysis.words.finding import printable


def predict(
    facts: Facts,
    *,
    route: Annotated[str, Meta(description="the route whose calls change model")],
    first_factor: Annotated[
        float, Meta(gt=0, le=100, description="time to the first token over today's")
    ],
    token_factor: Annotated[float, Meta(gt=0, le=100, description="time per token over today's")],
) -> Prediction:
    """Return the answer with `cost.moved_ratio`, the part of the calls that change model."""
    fix = Fix(
        "route_models",
        f"Serve {printable(route)} by a model with {first_factor:g} times the TTFT and {token_factor:g} times the TPOT",
        "its answers have the same length and are good enough",
        {"route": route, "first_factor": first_factor, "token_factor": token_factor},
    )
    mine = (facts.calls["route"] == route).fill_null(False).to_numpy() & (facts.request_of >= 0)
    if not mine.any():
        return refuse(
            facts,
            fix,
            "estimate",
            f"no call of that route is in the window: {facts.known('route', route)}",
        )
    answer = multiplied(facts, fix, first_factor, token_factor, which=mine)
    answer.cost["moved_ratio"] = float(mine.sum() / (facts.request_of >= 0).sum())
    return answer
