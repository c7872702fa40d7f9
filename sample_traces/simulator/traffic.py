"""Who asks what and when? Every request of a run with all its dice, drawn before anything is simulated.

Draws belong to a request and not to the order of events: the same seed with and without a fault, or with and without its fix, brings the
same requests (common random numbers). Candidate arrivals come at a fixed high rate and are thinned to the rate of the moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from overrun.sample_traces.simulator.settings import Settings

DRAWS: Final = 256
# Which of a request's draws decides what; step k of an agent has its own block behind STEP, the nth model call behind CALLS.
(
    OUTPUT,
    INPUT,
    GUARD,
    EMBED,
    SEARCH,
    SEARCH_2,
    SEARCH_3,
    RERANK,
    POST,
    BROKEN,
    LONG,
    HUGE,
    THINK,
    THINK_SIZE,
    SLOW_SEARCH,
    GIVE_UP,
    GIVE_UP_AT,
    ROUTE,
    TENANT,
    SUGGEST,
    REPEAT,
    CONNECT,
    LOOP,
    HANG,
    SILENT,
    SLOW_OUTPUT,
    SLOW_INPUT,
    SEQUENTIAL,
    BUFFERED,
    AFFINITY,
    DEEP,
    QUESTION,
) = range(32)
STEP, STEP_WIDTH, MOST_STEPS = 32, 12, 12
CALLS, CALLS_WIDTH, MOST_CALLS = 180, 8, 9
OVERHEAD, PROVIDER, PROVIDER_SPEED, WAIT, REFUSED, SPIKE, SPIKE_SIZE, GATEWAY = range(8)
_TENANTS: Final = (
    "acme",
    "globex",
    "initech",
    "umbrella",
    "hooli",
    "stark",
    "wayne",
    "wonka",
    "tyrell",
    "cyberdyne",
)
NOISY: Final = "hooli"
TURNS: Final = 7
_THINK_S: Final = 24.0
PEAK: Final = 6.0


@dataclass(slots=True)
class Request:
    """One request as it will arrive; `z` are its standard normal draws."""

    index: int
    at: float
    kind: str  # user, noisy, batch, huge
    tenant: str
    session: str
    turn: int
    z: list[float]

    def uniform(self, which: int) -> float:
        """The same draw as a number between 0 and 1."""
        return 0.5 * math.erfc(-self.z[which] / math.sqrt(2.0))


def call_draw(nth: int, which: int) -> int:
    """Where the draws of a request's nth model call stand (attempts count)."""
    return CALLS + CALLS_WIDTH * (nth % MOST_CALLS) + which


def step_draw(step: int, which: int) -> int:
    """Where the draws of an agent's step stand."""
    return STEP + STEP_WIDTH * (step % MOST_STEPS) + which


def lognormal(median: float, sigma: float, z: float) -> float:
    """A draw with the given median; what latencies and lengths look like."""
    return median * math.exp(sigma * z)


Plan = list[tuple[float, Settings]]
"""The states of the world and since when each holds, in seconds; the first holds from 0."""


def world_at(plan: Plan, t: float) -> Settings:
    """The state that holds at a moment."""
    return next(state for since, state in reversed(plan) if t >= since or since == 0.0)


def draw(plan: Plan, duration_s: float, seed: int) -> list[Request]:
    """All requests of a run, in order of arrival."""
    states = [state for _, state in plan]
    base = states[0]
    # Of the first state alone, so that what is planned later moves no arrival that was there anyway.
    ceiling = PEAK * base.rate_rps
    if base.kind == "chat":
        requests = _sessions(plan, duration_s, seed)
    else:
        requests = _stream(
            lambda t: _rate(world_at(plan, t), t),
            ceiling,
            duration_s,
            [seed, 1],
            "user",
            base.tenants,
        )
    if any(state.noisy_share > 0.0 for state in states):
        requests += _stream(
            lambda t: world_at(plan, t).noisy_share * base.rate_rps,
            ceiling,
            duration_s,
            [seed, 2],
            "noisy",
            base.tenants,
        )
    if any(state.batch_rps > 0.0 for state in states):
        requests += _stream(
            lambda t: world_at(plan, t).batch_rps,
            base.rate_rps,
            duration_s,
            [seed, 3],
            "batch",
            base.tenants,
        )
    for k, (since, state) in enumerate(plan):
        if state.huge_every_s > 0.0:
            until = plan[k + 1][0] if k + 1 < len(plan) else duration_s
            requests += _huge(state, since, until, [seed, 7, k])
    requests.sort(key=lambda request: request.at)
    for index, request in enumerate(requests):
        request.index = index
    return requests


def _rate(s: Settings, t: float) -> float:
    rate = s.rate_rps * s.growth * (1.0 + s.diurnal * math.sin(2.0 * math.pi * t / 1200.0))
    if s.burst_every_s > 0.0:
        # Bursts move arrivals together: the mean stays.
        share = s.burst_s / s.burst_every_s
        calm = (1.0 - min(0.95, share * s.burst_factor)) / (1.0 - share)
        rate *= s.burst_factor if t % s.burst_every_s < s.burst_s else calm
    return rate


def _stream(
    rate: Callable[[float], float],
    ceiling: float,
    duration_s: float,
    seed: list[int],
    kind: str,
    tenants: int,
) -> list[Request]:
    rng = np.random.default_rng(seed)
    n = rng.poisson(ceiling * duration_s)
    times = np.sort(rng.uniform(0.0, duration_s, n))
    marks = rng.uniform(0.0, 1.0, n)
    kept = [i for i in range(n) if marks[i] * ceiling < rate(float(times[i]))]
    # Drawn for every candidate by its own number, so that a request keeps its dice when the rate changes.
    return [_request(float(times[i]), kind, [*seed, i], tenants) for i in kept]


def _request(
    at: float,
    kind: str,
    seed: list[int],
    tenants: int,
    session: str = "",
    turn: int = 0,
    tenant: str = "",
) -> Request:
    rng = np.random.default_rng(seed)
    request = Request(
        0,
        at,
        kind,
        tenant,
        session or f"s-{seed[0]}-{seed[1]}-{seed[-1]}",
        turn,
        rng.standard_normal(DRAWS).tolist(),
    )
    if not tenant:
        weights = [1.0 / (k + 1.5) for k in range(tenants)]
        target = request.uniform(TENANT) * sum(weights)
        k = 0
        while k < tenants - 1 and target > weights[k]:
            target -= weights[k]
            k += 1
        request.tenant = NOISY if kind == "noisy" else _TENANTS[k % len(_TENANTS)]
    return request


def _sessions(plan: Plan, duration_s: float, seed: int) -> list[Request]:
    """Conversations of some turns each; those that began before the window are met in the middle."""
    base = plan[0][1]
    rng = np.random.default_rng([seed, 4])
    spread = TURNS * _THINK_S
    ceiling = PEAK * base.rate_rps / TURNS
    n = rng.poisson(ceiling * (duration_s + spread))
    starts = np.sort(rng.uniform(-spread, duration_s, n))
    requests = []
    for i in range(n):
        own = np.random.default_rng([seed, 5, i])
        mark, turns = own.uniform(), int(own.integers(3, 2 * TURNS - 2))
        tenant = ""
        at = float(starts[i])
        for turn in range(1, turns + 1):
            if 0.0 <= at < duration_s and mark * PEAK * base.rate_rps < _rate(
                world_at(plan, at), at
            ):
                request = _request(
                    at, "user", [seed, 6, i, turn], base.tenants, f"c-{seed}-{i}", turn, tenant
                )
                tenant = request.tenant
                requests.append(request)
            at += 4.0 + float(own.exponential(_THINK_S - 4.0))
    return requests


def _huge(state: Settings, since: float, until: float, seed: list[int]) -> list[Request]:
    times = np.arange(since + 3.0, until, state.huge_every_s)
    return [_request(float(t), "huge", [*seed, i], state.tenants) for i, t in enumerate(times)]
