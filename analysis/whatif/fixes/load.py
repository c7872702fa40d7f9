"""What if the load were multiplied by a factor? Simulated: the same calls arrive in a shorter or a longer time.

Above 1 the recorded calls arrive faster, below 1 slower (as with rate limits or less traffic). The shape of bursts is kept. A limit of concurrent
sequences that the recording never reached is not known: above 1 the interval also covers an engine that never runs more at once than recorded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
from msgspec import Meta

from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.whatif.engine_replay import SHAKE, Change, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction

# Log units of extra width per doubling: a heavier load visits batches that the recording does not show.
_PER_DOUBLING = 0.05
_SHAKE_PER_DOUBLING = 28.0


def predict(
    facts: Facts,
    *,
    factor: Annotated[
        float, Meta(gt=0.01, lt=100, description="load over today's, such as 1.3 or 0.8")
    ],
) -> Prediction:
    """Return the answer; the fix takes nothing away, someone else brings the load."""
    fix = Fix(
        "load",
        f"Multiply the load by {factor:g}",
        "the mix of lengths stays, and no new bottleneck appears",
        {"factor": factor},
    )

    def change(engine: Engine) -> Change:
        calls = engine.pool.calls
        # What waits for another call of its request keeps its gap; only arrivals from outside move together.
        arrival = np.where(calls.after >= 0, calls.arrival_s, calls.arrival_s / factor)
        return Change(replace(calls, arrival_s=arrival), engine.setup)

    def full(engine: Engine) -> Change:
        more = change(engine)
        return replace(
            more,
            setup=replace(
                more.setup,
                max_sequences=min(more.setup.max_sequences, max(1, engine.pool.most_running)),
            ),
        )

    doublings = float(np.log2(factor))
    # Past the recorded load the queue hangs on the capacity itself, of which the recording shows less the further it was away.
    return predict_simulated(
        facts,
        fix,
        change,
        worse=_PER_DOUBLING * abs(doublings),
        shake=SHAKE * (1.0 + _SHAKE_PER_DOUBLING * max(0.0, doublings)),
        also=[full] if factor > 1.0 else (),
    )
