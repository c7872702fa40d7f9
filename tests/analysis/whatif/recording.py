"""Recordings of an engine whose law is known, as the spans of an inference server tell them."""

from typing import Any

import numpy as np
import polars as pl

from overrun.analysis.simulator.engine import Calls, Costs, Setup, apart, simulate
from overrun.analysis.whatif.facts import Facts
from tests.analysis.whatif.builders import calls, facts_of

COSTS = Costs(
    prefill_token=5e-5, attention=2e-9, step=0.010, kv_token=6e-8, sequence=5e-5, call=0.01
)


def arrivals(n: int = 400, *, rate: float = 6.0, seed: int = 0, **changes: Any) -> Calls:
    """Poisson arrivals of lognormal lengths on one replica."""
    rng = np.random.default_rng(seed)
    zero = np.zeros(n, dtype=np.int64)
    made: dict[str, Any] = {
        "arrival_s": np.cumsum(rng.exponential(1.0 / rate, n)),
        "after": zero - 1,
        "prompt_tokens": np.clip(rng.lognormal(6.3, 0.8, n), 8, 8000).astype(np.int64),
        "cached_tokens": zero,
        "output_tokens": np.clip(rng.lognormal(4.8, 0.7, n), 2, 1500).astype(np.int64),
        "replica": zero,
        "pool_from": zero,
        "pool_to": zero + 256,
        "weight": np.ones(n),
        "gated": np.zeros(n, np.bool_),
        **apart(n),
    }
    return Calls(**(made | changes))


def recorded(
    came: Calls,
    setup: Setup | None = None,
    costs: Costs = COSTS,
    *,
    points: pl.DataFrame | None = None,
    **columns: Any,
) -> Facts:
    """What the engine's spans tell of these calls, judged by E2E P95; other columns of the calls as given."""
    run = simulate(came, setup or Setup(), costs)
    ttft, e2e, queue = (
        1000.0 * part for part in (run.ttft_s, run.e2e_s, run.scheduled_s - run.arrived_s)
    )
    given: dict[str, Any] = {
        "start_s": run.arrived_s,
        "ttft_ms": ttft,
        "e2e_ms": e2e,
        "ttft_engine_ms": ttft,
        "engine_e2e_ms": e2e,
        "queue_ms": queue,
        "prefill_ms": ttft - queue,
        "decode_ms": e2e - ttft,
        "input_tokens": came.prompt_tokens,
        "output_tokens": came.output_tokens,
        "cached_tokens": came.cached_tokens,
        "instance": [f"gpu-{r}" for r in run.replica],
    }
    return facts_of(calls(len(came), **(given | columns)), percentile=95.0, points=points)


def hosted(came: Calls) -> Facts:
    """What a client sees of these calls at a provider whose times follow no load of the client's."""
    rng = np.random.default_rng(11)
    ttft = 300.0 * rng.lognormal(0.0, 0.4, len(came))
    e2e = ttft + came.output_tokens * 15.0 * rng.lognormal(0.0, 0.2, len(came))
    unknown = dict.fromkeys(
        ("engine_e2e_ms", "ttft_engine_ms", "prefill_ms", "queue_ms", "decode_ms")
    )
    return recorded(came, ttft_ms=ttft, e2e_ms=e2e, **unknown)
