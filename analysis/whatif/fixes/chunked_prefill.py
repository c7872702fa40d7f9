"""What if prompts were read in chunks of another size? Simulated; chunks can also be switched off.

A smaller token budget per step makes decode steadier and first tokens later. The setting moves the engine outside the recorded range. A step is limited by
memory and by compute; their overlap hardly matters at today's chunk size, but it decides the cost of smaller chunks. So several engines with different
overlap are fitted, and the interval covers all that reproduce the recording about equally well.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

from msgspec import Meta

from overrun.analysis.simulator.calibrate import Engine, parted
from overrun.analysis.whatif.engine_replay import Change, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction

# Log units of extra width: what is left where the part that hides is known, as measured (docs/results/whatif.json, "chunks of 512 tokens").
OUTSIDE: Final = {"e2e": 0.05, "tpot": 0.05, "ttft": 0.12}


def predict(
    facts: Facts,
    *,
    token_budget: Annotated[
        int, Meta(ge=16, le=1_000_000, description="tokens of one step (max_num_batched_tokens)")
    ],
    enabled: Annotated[
        bool, Meta(description="false: whole prompts are read first and decoding waits")
    ] = True,
) -> Prediction:
    """Return the answer; the fix takes nothing away."""
    title = (
        f"Read prompts in chunks of at most {token_budget:,} tokens per step"
        if enabled
        else "Read whole prompts first"
    )
    fix = Fix(
        "chunked_prefill",
        title,
        "steps of that size take the time of the fitted cost model",
        {"token_budget": token_budget, "enabled": enabled},
    )

    def change(engine: Engine) -> Change:
        return Change(
            engine.pool.calls,
            replace(engine.setup, token_budget=token_budget, prefill_first=not enabled),
        )

    # The settings that the recording ran with are not outside of it, but they are read off it and may not be what they seem.
    same = all(
        (engine.setup.token_budget, engine.setup.prefill_first) == (token_budget, not enabled)
        for engine in facts.engines[0]
    )
    part = 0.5 if same else 1.0
    return predict_simulated(
        facts,
        fix,
        change,
        worse={metric: part * wide for metric, wide in OUTSIDE.items()},
        told=parted,
    )
