"""A simulated week with noise, deploys and restarts: each incident fires once and resolves once, and nothing else pages.

Requests arrive every 10 s and are bad by chance; burn rates are those of the product over them, and the verdict of the last 15 minutes is a stand-in that is as
careful as the report's: over the limit only where chance does not explain it. Time is an argument, so that a week takes seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from overrun.analysis.front.alerts.conditions import BURN_S, DOWN_S, LASTING_S, firing, lasts
from overrun.analysis.front.alerts.incidents import Condition, Notice, Seen, State, step
from overrun.analysis.numbers.outcomes.burn_rate import PAIRS, Aged, burning

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0
T0 = 1_795_600_000.0
EVERY_S, GAP_S = 120.0, 10.0
TARGET = 0.95


@dataclass(frozen=True)
class Trouble:
    """From `at` on for `lasts` seconds this share of requests is bad."""

    at: float
    lasts: float
    bad: float


# Three incidents that last, and what happens every week besides: deploys of a minute or two, and short spikes.
INCIDENTS = (
    Trouble(1 * DAY + 3 * HOUR, 45 * MINUTE, 0.40),
    Trouble(3 * DAY + 14 * HOUR, 90 * MINUTE, 0.90),
    Trouble(5 * DAY + 9 * HOUR, 5 * HOUR, 0.25),
)
DEPLOYS = tuple(Trouble(day * DAY + 10 * HOUR, 90.0, 0.8) for day in range(7))
SPIKES = tuple(Trouble(day * DAY + 20 * HOUR, 3 * MINUTE, 0.5) for day in (0, 2, 4, 6))
# The server is off: within an incident, and on a quiet day.
RESTARTS = ((1 * DAY + 3.25 * HOUR, 4 * MINUTE), (2 * DAY, 20 * MINUTE))


def week(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """When each request began (seconds of the week), and whether it was bad; 2 % are on an ordinary day."""
    random = np.random.default_rng(seed)
    times = np.arange(0.0, 7 * DAY, GAP_S)
    chance = np.full(len(times), 0.02)
    for trouble in (*INCIDENTS, *DEPLOYS, *SPIKES):
        inside = (times >= trouble.at) & (times < trouble.at + trouble.lasts)
        chance[inside] = trouble.bad
    return times, random.random(len(times)) < chance


def looked(times: np.ndarray, bad: np.ndarray, now: float, down: bool) -> Seen:
    """One evaluation, with one target that is down during its restart."""
    first, last = np.searchsorted(times, (now - PAIRS[-1][0], now))
    ages, wrong = now - times[first:last], bad[first:last]
    known = np.ones(len(ages), dtype=bool)
    pairs = burning(Aged(ages, wrong, known, np.ones(len(ages))), TARGET)
    conditions = [
        Condition(
            group="requests",
            key=f"burn_{pair.long_s}s",
            severity="critical" if pair.threshold > 3 else "warning",
            summary="burns",
            for_s=BURN_S,
        )
        for pair in firing(pairs)
    ]
    recent = wrong[ages <= 900.0]
    if lasts(pairs) and _surely_over(int(recent.sum()), len(recent)):
        conditions.append(
            Condition(
                group="requests",
                key="budget_prefill",
                severity="warning",
                summary="slow",
                for_s=LASTING_S,
            )
        )
    if down:
        conditions.append(
            Condition(
                group="targets", key="gpu-0", severity="warning", summary="down", for_s=DOWN_S
            )
        )
    return Seen(at=T0 + now, conditions=conditions)


def _surely_over(bad: int, n: int) -> bool:
    """Whether the lower end of the share's 95 % interval (Wilson) is above what the limit allows."""
    if n < 59:
        return False
    z, share = 1.96, bad / n
    middle = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (middle - half) / (1 + z * z / n) > 1.0 - TARGET


@pytest.mark.parametrize("seed", [1])
def test_each_incident_of_a_week_fires_once_and_resolves_once(seed: int) -> None:
    times, bad = week(seed)
    state, notices = State(), list[Notice]()
    for now in np.arange(HOUR, 7 * DAY, EVERY_S):
        if any(at <= now < at + lasts for at, lasts in RESTARTS):
            continue
        down = any(trouble.at <= now < trouble.at + 2 * MINUTE for trouble in DEPLOYS)
        state, found = step(
            state, looked(times, bad, float(now), down), every_s=EVERY_S, resolve_after_s=900.0
        )
        notices += found
    fired = [n.at - T0 for n in notices if n.event == "fired"]
    resolved = [n.at - T0 for n in notices if n.event == "resolved"]
    assert len(fired) == len(resolved) == len(INCIDENTS)
    for trouble, began, ended in zip(INCIDENTS, fired, resolved, strict=True):
        assert trouble.at < began < trouble.at + 30 * MINUTE
        # The windows that saw it pass, then the quiet time.
        assert trouble.at + trouble.lasts < ended < trouble.at + trouble.lasts + 90 * MINUTE
    assert state.open == {}
    # More severe at most once each.
    raised = [n.incident.id for n in notices if n.event == "raised"]
    assert len(raised) == len(set(raised))
