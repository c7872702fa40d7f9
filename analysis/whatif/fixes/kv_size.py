"""What if each replica had another amount of KV cache? Simulated with its blocks times a factor.

More blocks come from a higher --gpu-memory-utilization, an 8-bit KV cache (twice the tokens), weights in fewer bits, or more GPUs per replica. Their own
cost in speed or quality is not in the figure. Turns of conversations that another size would still hold (or no longer hold) are simulated. If no
conversation is recorded, calls hit the prefix cache as before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

import numpy as np
from msgspec import Meta

from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.whatif.engine_replay import Change, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction

# Log units of extra width where a prefix cache is in use: of a cache that had been cut to a quarter the what-if left out what its return brought, 14 to
# 25 % too long at P95 and P99 (docs/results/whatif.json, "kv_size"), because the prompts that were pushed out came back too.
HITS_UNKNOWN: Final = 0.15
# ...and where the turns of the recorded conversations tell them; as measured.
HITS_TOLD: Final = 0.04
# ...and where no gauge tells the capacity, which waits suggest then; as measured (docs/results/whatif.json, "KV x 2": TTFT P90 65 % off).
GUESSED: Final = {"e2e": 0.05, "tpot": 0.05, "ttft": 0.3}


def predict(
    facts: Facts,
    *,
    factor: Annotated[
        float, Meta(gt=0, le=1000, description="KV tokens of a replica over today's, such as 2")
    ],
) -> Prediction:
    """Return the answer; it refuses where no capacity is known and nothing shows that it was ever met."""
    cached = float(np.nansum(facts.call("cached_tokens"))) > 0.0
    told = cached and all(engine.setup.cache_tokens > 0 for engine in facts.engines[0])
    hits = (
        "conversations continue as recorded"
        if told
        else "prompts hit the prefix cache as before"
        if cached
        else "no prompt is cached"
    )
    fix = Fix(
        "kv_size",
        f"Use a KV cache of {factor:g} times the size",
        f"only the number of blocks changes, and {hits}",
        {"factor": factor},
    )

    def change(engine: Engine) -> Change:
        setup = engine.setup
        return Change(
            engine.pool.calls,
            replace(
                setup,
                kv_tokens=int(setup.kv_tokens * factor),
                cache_tokens=int(setup.cache_tokens * factor),
            ),
        )

    hit = HITS_TOLD if told else HITS_UNKNOWN if cached else 0.0
    guessed = any(engine.pool.kv_tokens is None for engine in facts.engines[0])
    worse = {
        metric: float(np.hypot(hit, wide if guessed else 0.0)) for metric, wide in GUESSED.items()
    }
    return predict_simulated(facts, fix, change, needs_kv=True, worse=worse)
