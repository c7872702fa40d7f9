"""Windows in which load comes and goes near a limit of seats, KV blocks or prefill, or a full KV cache fills by chance: breaches without one lasting change.

Worlds of the scenarios' simulator (`overrun.sample_traces.simulator`) under a load of their own; requests are judged at P99.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Final

from overrun.sample_traces.simulate import START, Made
from overrun.sample_traces.simulator.run import simulate
from overrun.sample_traces.simulator.scenarios import CHAT, CHAT_SLO, RAG, RAG_SLO, TIGHT, changed
from overrun.sample_traces.simulator.settings import Settings, Telemetry

DURATION_S: Final = 3600.0
_AT_P99: Final = " percentile:99 goodput_target:0.99"
# By name: the world, its limits, its load in calm times, and the least and the most of a wave (None: there are none).
WAVES: Final[dict[str, tuple[Settings, str, float, tuple[float, float] | None]]] = {
    "seats_waves": (TIGHT, RAG_SLO, 1.0, (1.15, 1.75)),
    "kv_waves": (
        changed(CHAT, kv_tokens=23_000, rate_rps=7.0, max_num_seqs=22),
        CHAT_SLO,
        0.8,
        (0.9, 1.35),
    ),
    "kv_steady": (
        changed(CHAT, kv_tokens=17_000, rate_rps=7.0, max_num_seqs=16),
        CHAT_SLO,
        1.0,
        None,
    ),
    "prompt_waves": (
        changed(RAG, system_tokens=3600, input_tokens=500.0),
        RAG_SLO,
        1.0,
        (1.3, 2.6),
    ),
}


def waves(name: str, seed: int) -> Made:
    """Simulate an hour of one of `WAVES`."""
    world, limits, calm, peaks = WAVES[name]
    telemetry = Telemetry()
    window = simulate(
        _plan(world, calm, peaks, f"waves/{name}/{seed}"),
        duration_s=DURATION_S,
        seed=seed,
        telemetry=telemetry,
        start_ns=int(START.timestamp()) * 10**9,
        name=name,
    )
    return Made(
        window,
        telemetry,
        {
            "slo": limits + _AT_P99,
            "start": START.isoformat(),
            "end": (START + timedelta(seconds=DURATION_S)).isoformat(),
            "scenario": name,
            "seed": seed,
        },
    )


def load_of(name: str, seed: int) -> tuple[list[float], list[float]]:
    """Return the seconds at which the load of a window changes and what it is from there on, without the chance of single arrivals; empty where it stays."""
    world, _, calm, peaks = WAVES[name]
    plan = _plan(world, calm, peaks, f"waves/{name}/{seed}") if peaks is not None else []
    return [at for at, _ in plan], [settings.growth for _, settings in plan]


def _plan(
    world: Settings, calm: float, peaks: tuple[float, float] | None, seed: str
) -> list[tuple[float, Settings]]:
    """Calm load, and waves that rise in eight steps, stay and fall in four, some minutes apart."""
    dice = random.Random(seed)
    plan = [(0.0, changed(world, growth=calm))]
    t = dice.uniform(60.0, 200.0)
    while peaks is not None and t < DURATION_S - 60.0:
        peak, rise, hold, fall = (
            dice.uniform(*peaks),
            dice.uniform(40.0, 120.0),
            dice.uniform(15.0, 60.0),
            dice.uniform(30.0, 80.0),
        )
        plan += [
            (t + rise * k / 8, changed(world, growth=calm + (peak - calm) * (k + 1) / 8))
            for k in range(8)
        ]
        t += rise + hold
        plan += [
            (t + fall * k / 4, changed(world, growth=peak + (calm - peak) * (k + 1) / 4))
            for k in range(4)
        ]
        t += fall + dice.uniform(80.0, 260.0)
    return plan
