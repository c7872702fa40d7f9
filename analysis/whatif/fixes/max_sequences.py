"""What if a replica ran at most so many sequences at once? Simulated.

A lower limit makes tokens faster and the queue longer. A higher limit does the opposite, until the KV cache is full and it has no effect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Final, TypeAlias

import numpy as np
from msgspec import Meta

from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.simulator.engine import Costs
from overrun.analysis.whatif.engine_replay import Change, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction

Mixed: TypeAlias = Callable[[Costs, Costs], Costs]

# Log units of extra width per halving of the batches that were recorded: what a step costs in smaller ones is seen at the window's calmer times alone.
PER_HALVING: Final = {"e2e": 0.025, "tpot": 0.025, "ttft": 0.075}
_OF_STEPS: Final = ("prefill_token", "attention", "step", "kv_token", "sequence")


def halfway(costs: Costs, told: Costs) -> Costs:
    """What a step below the knee costs: between what replays best and what recorded rates tell (`regress.knee`).

    A replay of engines past their knee shows little of it and errs to the slow side; rates err to the quick side. The call's own part and the overlap, of which
    rates know nothing, are the replay's. Half and half: own choice.
    """
    return replace(
        costs, **{name: 0.5 * (getattr(costs, name) + getattr(told, name)) for name in _OF_STEPS}
    )


def replayed(costs: Costs, _told: Costs) -> Costs:
    """What replays best, alone."""
    return costs


def as_told(costs: Costs, told: Costs) -> Costs:
    """What recorded rates tell, alone."""
    return replace(told, call=costs.call)


def predict(
    facts: Facts,
    *,
    sequences: Annotated[
        int,
        Meta(
            ge=1,
            le=100_000,
            description="sequences that one replica may run at once (max_num_seqs)",
        ),
    ],
) -> Prediction:
    """Return the answer; the fix takes nothing away."""
    fix = Fix(
        "max_sequences",
        f"Run at most {sequences:,} sequences per replica",
        "the other settings stay",
        {"sequences": sequences},
    )

    def change(engine: Engine, bend: str = "size", below: Mixed = halfway) -> Change:
        """With the knee at these seats where recorded rates break there or above: the one that replays best may lie a little below."""
        left, knee = seats(engine), engine.setup.knee
        # Steps are told by the sequences that decode, of which one less than run is usual: a prompt is being read. One more than the knee is the knee.
        under = left <= 1 + max(knee, 0 if engine.knee is None else getattr(engine.knee, bend))
        setup = replace(
            engine.setup, max_sequences=left, knee=left if knee < left and under else knee
        )
        told = engine.knee.costs if engine.knee is not None and under else None
        return Change(
            engine.pool.calls, setup, lambda costs: costs if told is None else below(costs, told)
        )

    def seats(engine: Engine) -> int:
        """Those for the calls that are simulated: calls whose engine's span was lost take theirs as well."""
        return max(1, round(sequences * engine.pool.told_ratio))

    # Batches of the busiest pool against the seats that are left.
    fewer = max(
        (
            float(np.log2(max(1, engine.pool.most_running) / sequences))
            for engine in facts.engines[0]
        ),
        default=0.0,
    )
    also = [
        *(partial(change, bend=bend) for bend in ("least", "most")),
        *(partial(change, below=mixed) for mixed in (replayed, as_told)),
    ]
    return predict_simulated(
        facts,
        fix,
        change,
        worse={metric: wide * max(0.0, fewer) for metric, wide in PER_HALVING.items()},
        also=also,
    )
