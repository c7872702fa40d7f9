"""What if there were another number of equal replicas? Simulated with the router that the recording shows, or another one.

Calls go round where they went round, else each to the replica with the fewest calls. New replicas are as quick as the median of those seen. Where only clients
are seen, the interval covers one replica more or less than they suggest. New ones start with empty prefix caches and must be warm; neither is in the figure.
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
    replicas: Annotated[
        int, Meta(ge=1, le=256, description="how many equal replicas there are in all")
    ],
    router: Annotated[
        Literal["as_now", "least_load", "round_robin"],
        Meta(
            description="how calls are shared out: as now where that is seen, fewest calls, or in turn"
        ),
    ] = "as_now",
) -> Prediction:
    """Return the answer with `cost.replicas_factor`, replicas over those seen."""
    fix = Fix(
        "replicas",
        f"Run {replicas} replicas",
        "they are equal, and any of them can serve any call",
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
