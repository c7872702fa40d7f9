"""How strong must a fault be for a severity? Finds the amounts of `faults.py` by simulation:
`python -m overrun.sample_traces.simulator.calibrate [SCENARIO ...]`.

Shortens the window and looks for the amount whose share of requests over the limit after the onset, over two seeds, is within a fifth of the severity's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from overrun.sample_traces.simulator.faults import FURTHER, SCENARIOS
from overrun.sample_traces.simulator.run import simulate
from overrun.sample_traces.simulator.scenarios import BREACH, SEVERITIES, Scenario
from overrun.sample_traces.simulator.settings import Telemetry
from overrun.sample_traces.simulator.truth import breach_ratio, users

_SEEDS: Final = (9001, 9002)  # in no other use
_ONSET_S, _END_S = 60.0, 360.0
_STEPS: Final = 7


def breach(scenario: Scenario, amount: float) -> float:
    """Mean share of requests over the limit after the onset."""
    shares = []
    for seed in _SEEDS:
        plan = [(0.0, scenario.world), (_ONSET_S, scenario.fault(scenario.world, amount))]
        window = simulate(
            plan, duration_s=_END_S, seed=seed, telemetry=Telemetry(engine_metrics=False)
        )
        shares.append(breach_ratio(users(window.outcomes, _ONSET_S, _END_S), scenario.slo) or 0.0)
    return sum(shares) / len(shares)


def find(scenario: Scenario) -> list[tuple[float, float]]:
    """(amount, share) per severity, by bisection between the scenario's bounds, taking up what was simulated before."""
    known = {bound: breach(scenario, bound) for bound in scenario.bounds}
    found = []
    for severity in SEVERITIES:
        wanted = BREACH[severity]
        for _ in range(_STEPS):
            best = min(known, key=lambda amount: abs(known[amount] - wanted))
            if abs(known[best] - wanted) <= 0.2 * wanted:
                break
            low = max((a for a in known if known[a] < wanted), default=None)
            high = min((a for a in known if known[a] >= wanted), default=None)
            if low is None or high is None:
                break
            amount = float(f"{(low + high) / 2:.3g}")
            if amount in known:
                break
            known[amount] = breach(scenario, amount)
        found.append((best, known[best]))
    return found


def main(names: Sequence[str]) -> None:
    """Print the amounts of the named scenarios, or of all."""
    for name in names or SCENARIOS:
        scenario = (SCENARIOS | FURTHER)[name]
        found = find(scenario)
        print(
            name,
            "amounts",
            tuple(amount for amount, _ in found),
            "shares",
            tuple(round(share, 3) for _, share in found),
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
