"""What if two faults come at once? Any two scenarios of one kind of application as one: `slow_dependency+long_outputs`.

The world is the first one's with what the second one's needs, the onset is the same for both, and both grow together until their common share of
requests over the limit is the severity's. What each does alone is simulated too: a fault that harms nobody on its own need not be named.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

import numpy as np

from overrun.sample_traces.simulator.faults import FURTHER, SCENARIOS
from overrun.sample_traces.simulator.scenarios import AGENT, CHAT, HOSTED, RAG, Scenario, changed
from overrun.sample_traces.simulator.settings import Settings
from overrun.sample_traces.simulator.truth import limits_s

AND: Final = "+"
_USUAL: Final = {(world.kind, world.provider): world for world in (RAG, CHAT, AGENT, HOSTED)}


def find(name: str) -> Scenario | None:
    """A scenario by its id, or two joined by a plus; None where there is none of that name. ValueError: the two cannot come together."""
    if name in FURTHER:
        return FURTHER[name]
    first, _, second = name.partition(AND)
    if first not in SCENARIOS or (second and second not in SCENARIOS):
        return None
    return _together(SCENARIOS[first], SCENARIOS[second]) if second else SCENARIOS[first]


def _together(first: Scenario, second: Scenario) -> Scenario:
    world = _world(first, second)

    def one(settings: Settings, strength: float) -> Settings:
        return first.fault(settings, _amount(first, strength))

    def other(settings: Settings, strength: float) -> Settings:
        return second.fault(settings, _amount(second, strength))

    turned = [_turned(world, fault(world, 2.0)) for fault in (one, other)]
    both = {
        knob for knob in turned[0].keys() & turned[1].keys() if turned[0][knob] != turned[1][knob]
    }
    if both:
        raise ValueError(
            f"{first.id} and {second.id} both turn {', '.join(sorted(both))}: choose two that do not"
        )
    return Scenario(
        id=first.id + AND + second.id,
        number="M",
        title=f"{first.title}; {second.title[0].lower()}{second.title[1:]}",
        world=world,
        slo=_slo(first.slo, second.slo),
        fault=lambda settings, strength: other(one(settings, strength), strength),
        amounts=(3.0, 2.0, 1.0),
        bounds=(0.2, 4.0),
        causes=(*first.causes, *second.causes),
        stages=(*first.stages, *second.stages),
        client_causes=(*first.client_causes, *second.client_causes),
        client_stages=(*first.client_stages, *second.client_stages),
        accepted=(*first.accepted, *second.accepted),
        chain=(*first.chain, *second.chain),
        chunk_events=first.chunk_events or second.chunk_events,
        alone=(one, other),
    )


def _world(first: Scenario, second: Scenario) -> Settings:
    kind = (first.world.kind, first.world.provider)
    if kind != (second.world.kind, second.world.provider):
        raise ValueError(
            f"{first.id} and {second.id} are faults of different applications: {first.world.kind} and {second.world.kind}"
        )
    return changed(first.world, **_turned(_USUAL.get(kind, Settings()), second.world))


def _turned(before: Settings, after: Settings) -> dict[str, Any]:
    return {
        field.name: getattr(after, field.name)
        for field in fields(Settings)
        if getattr(after, field.name) != getattr(before, field.name)
    }


def _amount(scenario: Scenario, strength: float) -> float:
    """Its amount for a strength from 0 to 4: 1, 2 and 3 are hard, medium and easy, as calibrated."""
    mild, strong = scenario.bounds
    return float(np.interp(strength, range(5), [mild, *reversed(scenario.amounts), strong]))


def _slo(first: str, second: str) -> str:
    """The wider one of each limit, and the stricter target."""
    limits = [limits_s(slo) for slo in (first, second)]
    wider = {key: max(side.get(key, 0.0) for side in limits) for key in (limits[0] | limits[1])}
    target = next(
        (slo[slo.index(" percentile") :] for slo in (first, second) if " percentile" in slo), ""
    )
    return " ".join(f"{key}:{1000.0 * limit:g}" for key, limit in wider.items()) + target
