"""What if the engine kept part of its capacity spare? Simulated with a limit on the calls in flight.

The limit is the given part of the most calls that were served at once. Calls above it are refused with 429 and Retry-After, or wait at the gateway. There
waiting is cheaper than in the engine but still counts. Published advice is to keep 20 to 30 % spare.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
from msgspec import Meta

from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.whatif.engine_replay import Change, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction
from overrun.analysis.words.finding import say_ratio


def predict(
    facts: Facts,
    *,
    spare_ratio: Annotated[
        float, Meta(ge=0, lt=1, description="part of the capacity kept free, 0..1")
    ] = 0.25,
    rejects: Annotated[
        bool,
        Meta(
            description="true: calls above the limit are refused; false: they wait at the gateway"
        ),
    ] = True,
) -> Prediction:
    """Return the answer over the requests that are still served, with `cost.rejected_ratio` and `cost.in_flight_limit`."""
    fix = Fix(
        "admission",
        f"Admit calls with {say_ratio(spare_ratio)} of capacity spare",
        "refused calls are not retried at once"
        if rejects
        else "the gateway forwards calls in order",
        {"spare_ratio": spare_ratio, "rejects": rejects},
    )

    def change(engine: Engine) -> Change:
        limit = max(1, int((1.0 - spare_ratio) * engine.pool.most_running * engine.setup.replicas))
        calls = replace(engine.pool.calls, gated=np.ones(len(engine.pool), np.bool_))
        return Change(
            calls,
            replace(engine.setup, gate_limit=limit, gate_rejects=rejects),
            cost={"in_flight_limit": float(limit)},
        )

    return predict_simulated(facts, fix, change)
