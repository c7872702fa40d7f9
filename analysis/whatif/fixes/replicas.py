"""What if there were another number of equal replicas? Simulated with the router that the recording shows, or another one.

Calls go in turn if they did so before, otherwise each to the replica with the fewest calls. New replicas are as fast as the median of the recorded ones.
If only clients send spans, the interval covers one replica more or fewer than they suggest. New replicas start with empty prefix caches and must be warmed
up; neither is in the figure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Final, Literal

from msgspec import Meta

from overrun.analysis.simulator.batching import LEAST_LOAD, ROUND_ROBIN
from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.whatif.engine_replay import Change, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction

# Log units of extra width per doubling of the replicas, beside what other splits of a step make of it: each then runs batches that the recording does not
# show, on which the first token hangs more than the rest; as measured (docs/results/whatif.json, "replicas").
PER_DOUBLING: Final[Mapping[str, float]] = {"e2e": 0.025, "tpot": 0.025, "ttft": 0.06}


def predict(
    facts: Facts,
    *,
    replicas: Annotated[int, Meta(ge=1, le=256, description="total number of equal replicas")],
    router: Annotated[
        Literal["as_now", "least_load", "round_robin"],
        Meta(
            description="how calls are distributed: as now where that is recorded, fewest calls in flight, or in turn"
        ),
    ] = "as_now",
) -> Prediction:
    """Return the answer with `cost.replicas_factor`, replicas over those seen."""
    fix = Fix(
        "replicas",
        f"Run {replicas} replicas",
        "the replicas are equal and any of them can serve any call",
        {"replicas": replicas, "router": router},
    )

    def change(engine: Engine, apart: int = 0) -> Change:
        in_turn = router == "round_robin" or (
            router == "as_now" and engine.pool.router == ROUND_ROBIN
        )
        rule = ROUND_ROBIN if in_turn else LEAST_LOAD
        now = engine.setup.replicas
        # Behind clients one replica more or less replays about as well: then as many are the more, or the less, for the fix.
        told = now + apart if engine.unseen and now + apart >= 1 else now
        many = max(1, round(replicas * now / told))
        setup = replace(
            engine.setup, replicas=many, router=rule, speed=engine.setup.speed[:many], born_s=()
        )
        return Change(engine.pool.calls, setup, cost={"replicas_factor": replicas / now})

    seen = max((engine.setup.replicas for engine in facts.engines[0]), default=replicas)
    doublings = abs(math.log2(replicas / seen))
    guessed = any(engine.unseen for engine in facts.engines[0])
    return predict_simulated(
        facts,
        fix,
        change,
        worse={metric: wide * doublings for metric, wide in PER_DOUBLING.items()},
        also=[partial(change, apart=apart) for apart in (-1, 1)] if guessed else [],
    )
