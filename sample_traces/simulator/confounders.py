"""What else goes on meanwhile that is not the cause? Growth inside capacity, another mix, a swing of the day, a deploy, a clock that is off, lost spans.

Drawn per seed; a diagnosis must not fall for any of them. The faulty world and the healthy one before it get the same treatment where the
confounder is no change, and only the second half gets it where it is one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from overrun.sample_traces.simulator.settings import Settings, Telemetry
from overrun.sample_traces.simulator.traffic import Plan

NAMES: Final = ("growth", "mix", "diurnal", "deploy", "skew", "lost_spans", "slow_scrape")
_EACH: Final = 0.25


@dataclass(frozen=True)
class Confounded:
    """The plan and the view with their confounders, and what those are."""

    plan: Plan
    telemetry: Telemetry
    names: tuple[str, ...]


def confound(plan: Plan, telemetry: Telemetry, seed: str, *, growth_allowed: bool) -> Confounded:
    """Add each confounder with one chance in four; `growth_allowed` is False where growth is what the scenario is about."""
    dice = random.Random(f"confounders/{seed}")
    chosen = tuple(name for name in NAMES if dice.random() < _EACH)
    amounts = {name: dice.random() for name in NAMES}
    plan = list(plan)
    if "growth" in chosen and growth_allowed and len(plan) > 1:
        at, state = plan[-1]
        plan[-1] = (at, replace(state, growth=state.growth * (1.03 + 0.12 * amounts["growth"])))
    else:
        chosen = tuple(name for name in chosen if name != "growth")
    if "mix" in chosen and not plan[0][1].other_route:
        shares = (0.15 + 0.1 * amounts["mix"], 0.1 + 0.1 * amounts["mix"])
        plan = [
            (at, replace(state, other_route=state.route + "/brief", other_share=shares[min(k, 1)]))
            for k, (at, state) in enumerate(plan)
        ]
    if "diurnal" in chosen:
        plan = [
            (at, replace(state, diurnal=max(state.diurnal, 0.05 + 0.07 * amounts["diurnal"])))
            for at, state in plan
        ]
    if "deploy" in chosen:
        plan = _deployed(
            plan, (plan[1][0] if len(plan) > 1 else 200.0) * (0.3 + 0.5 * amounts["deploy"])
        )
    if "skew" in chosen:
        telemetry = replace(
            telemetry,
            skew_ms=round(
                (50.0 + 450.0 * amounts["skew"]) * (1 if amounts["skew"] > 0.5 else -1), 3
            ),
        )
    if "lost_spans" in chosen:
        telemetry = replace(telemetry, lost_spans=0.01 + 0.04 * amounts["lost_spans"])
    if "slow_scrape" in chosen:
        telemetry = replace(telemetry, scrape_s=30.0)
    return Confounded(plan, telemetry, chosen)


def _deployed(plan: Plan, at: float) -> Plan:
    """Another version from a moment before the onset on: a marker that has nothing to do with what comes later."""

    def newer(state: Settings) -> Settings:
        return replace(state, version=state.version[:-1] + str(int(state.version[-1]) + 1))

    return [plan[0], (at, newer(plan[0][1])), *[(since, newer(state)) for since, state in plan[1:]]]
