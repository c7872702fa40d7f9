"""What if a slow replica were as quick as the others? Simulated with its step times brought to theirs.

Ejecting it instead leaves one replica less: ask `replicas` for that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
from msgspec import Meta

from analysis.errors import nearest
from analysis.finding import printable
from analysis.whatif.calibrate import Engine
from analysis.whatif.facts import Facts
from analysis.whatif.prediction import Fix, Prediction, refuse
from analysis.whatif.simulate import Change, predict_simulated


def predict(facts: Facts, *, instance: Annotated[str, Meta(description="the replica; by default the slowest")] = "") -> Prediction:
    """Return the answer with `cost.slowdown_now`, its step times over the median replica's."""
    engines, why = facts.engines
    fix = Fix("eject", "Fix or replace the slow replica", "its replacement is as quick as the median replica", {"instance": instance})
    if why is None:
        seen = [(engine, at) for engine in engines for at, name in enumerate(engine.pool.instances) if not instance or name == instance]
        if all(engine.setup.replicas < 2 for engine in engines):
            return refuse(facts, fix, "simulated", "one replica was seen: there is no other to compare it with")
        if not seen:
            names = [printable(name) for engine in engines for name in engine.pool.instances]
            return refuse(facts, fix, "simulated", f"replica {printable(instance)} is not among those seen: {nearest(instance, names)}")
        slow, place = max(seen, key=lambda one: one[0].setup.speed[one[1]])
        name = slow.pool.instances[place]
        fix = Fix(
            "eject", f"Bring replica {printable(name)} to the speed of the others", "its replacement is as quick as the median replica", {"instance": name}
        )

    def change(engine: Engine) -> Change:
        if engine is not slow:
            return Change(engine.pool.calls, engine.setup)
        speed = np.array(engine.setup.speed)
        cost = {"slowdown_now": float(speed[place])}
        speed[place] = min(1.0, float(speed[place]))
        return Change(engine.pool.calls, replace(engine.setup, speed=tuple(speed.tolist())), cost=cost)

    return predict_simulated(facts, fix, change)
