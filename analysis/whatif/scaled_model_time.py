"""What if the model's own time were multiplied, with no engine to simulate? Each call by itself, queues as they were."""

from __future__ import annotations

import numpy as np

from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.prediction import Fix, Prediction, Times, predict_times, recorded
from overrun.analysis.words.arrays import BoolArray, FloatArray


def multiplied(
    facts: Facts,
    fix: Fix,
    first: float,
    later: float | None = None,
    *,
    which: BoolArray | None = None,
) -> Prediction:
    """Return the answer where the time to the first token (queue apart where it is known) is multiplied by `first` and the rest by `later`."""
    ttft_delta, e2e_delta = scaled_ms(facts, first, first if later is None else later)
    if which is not None:
        ttft_delta, e2e_delta = np.where(which, ttft_delta, 0.0), np.where(which, e2e_delta, 0.0)
    ttft, e2e = facts.per_request(e2e_delta, ttft_delta)
    old = recorded(facts)
    touched = np.zeros(len(facts), np.bool_)
    chosen = (
        facts.answering >= 0 if which is None else (facts.answering >= 0) & which[facts.answering]
    )
    touched[chosen] = True
    tpot = np.where(touched, old.tpot * (first if later is None else later), old.tpot)
    return predict_times(facts, fix, Times(old.ttft + ttft, old.e2e + e2e, tpot), method="estimate")


def scaled_ms(facts: Facts, first: float, later: float) -> tuple[FloatArray, FloatArray]:
    """Return the change of each call's (TTFT, E2E) in ms."""
    wait, e2e = facts.call("ttft_ms"), facts.call("e2e_ms")
    queue = np.nan_to_num(facts.call("queue_ms"))
    wait = np.where(np.isnan(wait), e2e, wait)
    ttft_delta = (first - 1.0) * np.maximum(wait - queue, 0.0)
    return ttft_delta, ttft_delta + (later - 1.0) * np.maximum(e2e - wait, 0.0)
