"""What if a slow replica were taken out of rotation, or replaced? Simulated with its calls on the others, or with the step times of the others.

Taken out, it leaves one replica fewer for the same load. All calls go to the others in turn if they did so before, otherwise to the one with the fewest
calls in flight. The router's real choice is not known, so the interval also covers a replica in its place.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated

import numpy as np
from msgspec import Meta

from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.whatif.engine_replay import Change, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction, refuse
from overrun.analysis.words.errors import nearest
from overrun.analysis.words.finding import printable


def predict(
    facts: Facts,
    *,
    instance: Annotated[str, Meta(description="the replica; by default the slowest")] = "",
    replaced: Annotated[
        bool,
        Meta(
            description="true: a replica as fast as the others replaces it; false: the others serve its calls"
        ),
    ] = False,
) -> Prediction:
    """Return the answer with `cost.slowdown_now`, its step times over the median replica's."""
    engines, why = facts.engines
    holds = (
        "its replacement is as fast as the median replica"
        if replaced
        else "the others serve its calls, in turn or fewest in flight first, as before"
    )
    fix = Fix(
        "eject",
        "Replace the slow replica" if replaced else "Take the slow replica out of rotation",
        holds,
        {"instance": instance, "replaced": replaced},
    )
    if why is None and any(engine.unseen for engine in engines):
        return refuse(
            facts,
            fix,
            "simulated",
            "no engine reports which replica served a call: switch tracing on in the inference server",
        )
    if why is None:
        seen = [
            (engine, at)
            for engine in engines
            for at, name in enumerate(engine.pool.instances)
            if not instance or name == instance
        ]
        if all(engine.setup.replicas < 2 for engine in engines):
            return refuse(
                facts,
                fix,
                "simulated",
                "only one replica was seen: there is no other for comparison",
            )
        if not seen:
            names = [printable(name) for engine in engines for name in engine.pool.instances]
            return refuse(
                facts,
                fix,
                "simulated",
                f"replica {printable(instance)} was not seen: {nearest(instance, names)}",
            )
        slow, place = max(seen, key=lambda one: one[0].setup.speed[one[1]])
        name = slow.pool.instances[place]
        title = (
            f"Bring replica {printable(name)} to the speed of the others"
            if replaced
            else f"Take replica {printable(name)} out of rotation"
        )
        fix = replace(fix, title=title, parameters={"instance": name, "replaced": replaced})

    def change(engine: Engine, replaced: bool = replaced) -> Change:
        if engine.pool.rows is not slow.pool.rows:
            return Change(engine.pool.calls, engine.setup)
        calls, setup = engine.pool.calls, engine.setup
        speed, born = np.array(setup.speed), np.array(setup.born_s or (-np.inf,) * setup.replicas)
        cost = {"slowdown_now": float(speed[place])}
        if replaced:
            speed[place] = min(1.0, float(speed[place]))
        else:
            # It is never there, and who ran on it is not bound to it.
            born[place] = np.inf
            calls = replace(calls, replica=np.where(calls.replica == place, -1, calls.replica))
            setup = replace(setup, router=engine.pool.router)
        return Change(
            calls,
            replace(setup, speed=tuple(speed.tolist()), born_s=tuple(born.tolist())),
            cost=cost,
        )

    return predict_simulated(
        facts, fix, change, also=[] if replaced else [partial(change, replaced=True)]
    )
