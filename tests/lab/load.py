"""Which requests come when, how long are they? Drawn once per experiment, sent again for the fault and for the fix."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Load:
    """Open-loop arrivals and their lengths. Rates per second, lengths in tokens, times in seconds."""

    rate: float = 2.5
    seconds: float = 110.0
    burst_every_s: float = (
        0.0  # 0: a Poisson process; else all of an interval arrive within its first tenth
    )
    shared_tokens: int = 600  # the system prompt, the same for all requests
    own_tokens: tuple[int, int] = (60, 240)
    output_median: int = 40
    output_sigma: float = 0.5
    output_most: int = 200
    long_share: float = 0.0  # part of the requests that bring `long_tokens` more
    long_tokens: int = 0
    report_share: float = 0.0  # part of the requests that ask for a report, a route of its own
    report_median: int = 170  # tokens of a report's answer
    tenants: tuple[str, ...] = ("acme", "globex", "initech", "umbrella")
    noisy_factor: float = (
        0.0  # one more tenant, which sends this many times the rate of all others together
    )

    def scaled(self, factor: float) -> Load:
        """The same lengths at another rate."""
        return replace(self, rate=self.rate * factor)


@dataclass(frozen=True)
class Request:
    """One request of the schedule."""

    number: int
    at_s: float
    shared_tokens: int
    own_tokens: int
    output_tokens: int
    tenant: str
    draw: float  # 0..1, decides by its share whether a fault meets this request
    route: str = "/ask"


def arrivals(load: Load, rate: float, rng: random.Random) -> list[float]:
    """Times of arrival in seconds, ascending."""
    times, now = [], 0.0
    while True:
        now += rng.expovariate(rate)
        if now > load.seconds:
            break
        times.append(now)
    if load.burst_every_s > 0:
        every = load.burst_every_s
        times = sorted(t // every * every + (t % every) / 10 for t in times)
    return times


def output_tokens(load: Load, rng: random.Random) -> int:
    """A log-normal length of at least 4 tokens."""
    drawn = load.output_median * math.exp(load.output_sigma * rng.gauss(0, 1))
    return max(4, min(load.output_most, int(drawn)))


def _request(load: Load, at_s: float, tenant: str, rng: random.Random) -> Request:
    own = rng.randint(*load.own_tokens)
    if rng.random() < load.long_share:
        own += load.long_tokens
    usual = Request(
        0, at_s, load.shared_tokens, own, output_tokens(load, rng), tenant, rng.random()
    )
    if not load.report_share or rng.random() >= load.report_share:
        return usual
    report = replace(load, output_median=load.report_median, output_most=600)
    return replace(usual, route="/report", output_tokens=output_tokens(report, rng))


def schedule(load: Load, seed: int) -> list[Request]:
    """The requests of a phase in order of arrival; the same seed gives the same ones."""
    rng = random.Random(seed)
    drawn = [
        _request(load, t, rng.choice(load.tenants), rng) for t in arrivals(load, load.rate, rng)
    ]
    if load.noisy_factor:
        times = arrivals(load, load.rate * load.noisy_factor, rng)
        drawn += [_request(load, t, "noisy", rng) for t in times]
    ordered = sorted(drawn, key=lambda request: request.at_s)
    return [replace(request, number=number) for number, request in enumerate(ordered)]
