"""Another engine than the what-if's own, to be wrong about: recordings with and without a fix under the same arrivals and lengths.

Its steps cost differently from those of `overrun.analysis.simulator.engine`: prompt tokens cost less the more of them come together, batches are padded to
multiples of eight, compute and memory bound blend as a cubic mean, every step is noisy and some stall, and every call spends a random time in a
front end that no engine figure shows. It works token by token over lists and shares no code with the product.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from numba import njit


@dataclass(frozen=True)
class Traffic:
    """What arrives: seconds, tokens, tenants by number."""

    arrival: np.ndarray
    prompt: np.ndarray
    cached: np.ndarray
    output: np.ndarray
    tenant: np.ndarray


@dataclass(frozen=True)
class Placement:
    """What a router and an engine know of each call: its share of a replica's load, its place in the line (least first), and the replicas that may serve it."""

    weight: np.ndarray
    rank: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def blind(cls, n: int, replicas: int) -> "Placement":
        """Calls are counted, and served in the order in which they come."""
        return cls(np.ones(n), np.zeros(n), np.zeros(n, np.int64), np.full(n, replicas, np.int64))


@dataclass(frozen=True)
class Server:
    """Settings and cost law of the truth. Seconds."""

    replicas: int = 1
    seats: int = 256
    budget: int = 2048
    kv: int = 200_000
    prefill_first: bool = False
    least_loaded: bool = False
    prompt_cost: float = 9e-5
    power: float = 0.93
    context_cost: float = 1.5e-9
    step: float = 0.012
    kv_cost: float = 6e-8
    seat_cost: float = 4e-5
    noise: float = 0.08
    stall: float = 0.002
    stall_s: float = 0.06
    knee: float = float("inf")
    knee_s: float = 0.0
    speed: tuple[float, ...] = field(default=())


def traffic(
    n: int,
    rate: float,
    *,
    prompt: float = 700.0,
    output: float = 220.0,
    seed: int = 0,
    burst: float = 0.0,
) -> Traffic:
    """Poisson arrivals (with `burst` > 0 of a rate that swings by that share), lognormal lengths."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1.0 / rate, n))
    arrival += burst * 8.0 * np.sin(arrival / 8.0)
    inputs = np.clip(rng.lognormal(np.log(prompt), 0.9, n), 8, 12_000).astype(np.int64)
    outputs = np.clip(rng.lognormal(np.log(output), 0.8, n), 1, 4000).astype(np.int64)
    return Traffic(np.sort(arrival), inputs, np.zeros(n, np.int64), outputs, rng.integers(0, 8, n))


def record(
    load: Traffic, server: Server, seed: int = 1, placed: Placement | None = None
) -> np.ndarray:
    """Return (n, 4): queue, TTFT, E2E in seconds as the engine reports them, and the replica."""
    placed = placed or Placement.blind(len(load.arrival), server.replicas)
    speed = np.array(server.speed) if server.speed else np.ones(server.replicas)
    law = np.array(
        [
            server.prompt_cost,
            server.power,
            server.context_cost,
            server.step,
            server.kv_cost,
            server.seat_cost,
            server.noise,
            server.stall,
            server.stall_s,
            server.knee,
            server.knee_s,
        ]
    )
    out = np.zeros((len(load.arrival), 4))
    front = np.random.default_rng(seed + 17).uniform(0.005, 0.03, len(load.arrival))
    _serve(
        load.arrival + front,
        load.prompt,
        load.cached,
        load.output,
        server.replicas,
        server.seats,
        server.budget,
        server.kv,
        server.prefill_first,
        server.least_loaded,
        placed.weight,
        placed.rank,
        placed.low,
        placed.high,
        law,
        speed,
        seed,
        out,
    )
    out[:, 0] = np.maximum(out[:, 0], 0.0)
    out[:, 1:3] += front[:, None]
    return out


def with_fix(server: Server, **changes: object) -> Server:
    """The server with other settings."""
    return replace(server, **changes)  # type: ignore[arg-type]


@njit(cache=True)
def _serve(  # type: ignore[no-untyped-def]
    arrival,
    prompt,
    cached,
    output,
    replicas,
    seats,
    budget0,
    kv,
    prefill_first,
    least_loaded,
    weight,
    rank,
    low,
    high,
    law,
    speed,
    seed,
    out,
):  # type: ignore[no-untyped-def]
    np.random.seed(seed)
    n = len(arrival)
    owner, busy = np.zeros(n, np.int64), np.zeros(replicas)
    clock = np.zeros(replicas)
    line, line_n, line_at = (
        np.zeros((replicas, 4 * n), np.int64),
        np.full(replicas, 2 * n),
        np.full(replicas, 2 * n),
    )
    run, run_n = np.zeros((replicas, seats), np.int64), np.zeros(replicas, np.int64)
    read, made, started = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.bool_)
    target = (prompt - cached).copy()
    at, done = 0, 0
    while done < n:
        r = -1
        for k in range(replicas):
            if (run_n[k] > 0 or line_at[k] < line_n[k]) and (r < 0 or clock[k] < clock[r]):
                r = k
        if at < n and (r < 0 or arrival[at] <= clock[r]):
            k = low[at] + at % (high[at] - low[at])
            if least_loaded:
                for j in range(low[at], high[at]):
                    if busy[j] < busy[k]:
                        k = j
            if run_n[k] == 0 and line_at[k] == line_n[k]:
                clock[k] = max(clock[k], arrival[at])
            place = line_n[k]
            while (
                place > line_at[k]
                and not started[line[k, place - 1]]
                and rank[line[k, place - 1]] > rank[at]
            ):
                line[k, place] = line[k, place - 1]
                place -= 1
            line[k, place] = at
            line_n[k] += 1
            owner[at] = k
            busy[k] += weight[at]
            at += 1
            continue
        held = 0
        for k in range(run_n[r]):
            i = run[r, k]
            held += 16 * ((target[i] + made[i]) // 16 + 1)
        while run_n[r] > 1 and held + 16 > kv:
            i = run[r, run_n[r] - 1]
            run_n[r] -= 1
            held -= 16 * ((target[i] + made[i]) // 16 + 1)
            target[i], read[i] = prompt[i] - cached[i] + made[i], 0
            line_at[r] -= 1
            line[r, line_at[r]] = i
        chunk = np.zeros(seats, np.int64)
        left, waiting = budget0, False
        tokens, work, context, batch = 0, 0.0, 0, 0
        if not prefill_first:
            for k in range(run_n[r]):
                i = run[r, k]
                if read[i] >= target[i]:
                    left -= 1
        for k in range(run_n[r]):
            i = run[r, k]
            if read[i] < target[i] and left > 0:
                chunk[k] = min(left, target[i] - read[i])
                left -= chunk[k]
        while line_at[r] < line_n[r] and run_n[r] < seats and left > 0:
            i = line[r, line_at[r]]
            if run_n[r] > 0 and held + target[i] + 16 > kv:
                break
            if prefill_first and waiting and target[i] > left:
                break
            line_at[r] += 1
            waiting = True
            if not started[i]:
                started[i] = True
                out[i, 0] = clock[r] - arrival[i]
                out[i, 3] = r
            held += target[i] + 16
            run[r, run_n[r]] = i
            chunk[run_n[r]] = target[i] if prefill_first else min(left, target[i])
            left -= chunk[run_n[r]]
            run_n[r] += 1
        only_read = prefill_first and chunk.sum() > 0
        for k in range(run_n[r]):
            i = run[r, k]
            if chunk[k] > 0:
                tokens += chunk[k]
                work += chunk[k] * (cached[i] + read[i] + chunk[k] / 2)
            elif read[i] >= target[i] and not only_read:
                batch += 1
                context += prompt[i] + made[i]
        padded = 8 * ((batch + 7) // 8)
        compute = law[0] * (tokens + padded) ** law[1] + law[2] * work
        memory = law[3] + law[4] * context
        took = (
            (compute**3 + memory**3) ** (1 / 3)
            + law[5] * padded
            + (law[10] if batch > law[9] else 0.0)
        )
        took *= speed[r] * max(0.3, 1.0 + law[6] * np.random.standard_normal())
        if np.random.random() < law[7]:
            took += np.random.exponential(law[8])
        clock[r] += took
        kept = 0
        for k in range(run_n[r]):
            i = run[r, k]
            ends = False
            if chunk[k] > 0:
                read[i] += chunk[k]
                if read[i] >= target[i]:
                    if made[i] == 0:
                        out[i, 1] = clock[r] - arrival[i]
                    made[i] += 1
                    ends = made[i] >= output[i]
            elif read[i] >= target[i] and not only_read:
                made[i] += 1
                ends = made[i] >= output[i]
            if ends:
                out[i, 2] = clock[r] - arrival[i]
                busy[r] -= weight[i]
                done += 1
            else:
                run[r, kept] = i
                kept += 1
        run_n[r] = kept
