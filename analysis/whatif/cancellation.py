"""What if the engine stopped as soon as nobody waited for the answer? Simulated with calls cut where their client had gone.

Today's waste is seen where an engine worked on a call for longer than its client waited.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from analysis.whatif.calibrate import Engine
from analysis.whatif.facts import Facts
from analysis.whatif.prediction import Fix, Prediction, refuse
from analysis.whatif.simulate import Change, predict_simulated

# A client is gone when the engine's end lies this far behind its own, in ms: more than an answer's way back.
GONE_MS: Final = 250.0


def predict(facts: Facts) -> Prediction:
    """Return the answer with `cost.wasted_tokens_ratio_now`, the part of output tokens that nobody waited for."""
    fix = Fix("cancellation", "Cancel in the engine what the client has given up", "the engine stops within a step of the client's end", {})
    e2e, engine_e2e = facts.call("e2e_ms"), facts.call("engine_e2e_ms")
    wait, output = facts.call("ttft_engine_ms"), facts.call("output_tokens")
    if np.isnan(engine_e2e).all():
        return refuse(facts, fix, "simulated", "only an engine's own spans show that it works on after the client has gone: switch its tracing on")
    gone = engine_e2e > e2e + GONE_MS
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.clip((e2e - wait) / (engine_e2e - wait), 0.0, 1.0)
    kept = np.where(gone, np.maximum(1.0, np.floor(np.nan_to_num(output * share))), output)
    wasted = float(np.nansum(output - kept) / max(1.0, float(np.nansum(output))))
    if not gone.any():
        return refuse(facts, fix, "simulated", "no engine worked on after its client had gone: there is nothing to cancel")

    def change(engine: Engine) -> Change:
        tokens = np.maximum(1, np.nan_to_num(kept[engine.pool.rows], nan=1.0)).astype(np.int64)
        return Change(replace(engine.pool.calls, output_tokens=np.minimum(engine.pool.calls.output_tokens, tokens)), engine.setup)

    return predict_simulated(facts, fix, change, cost={"wasted_tokens_ratio_now": wasted})
