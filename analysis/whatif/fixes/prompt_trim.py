"""What if every prompt were shorter by so many tokens? Simulated, such as a trimmed system prompt or fewer raw turns.

Uncached tokens are removed first: a cached system prompt costs little, so trimming it gains little.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta

from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.simulator.conversations import shortened
from overrun.analysis.whatif.engine_replay import Change, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.fewer_tokens import input_saved_ms
from overrun.analysis.whatif.prediction import (
    Fix,
    Prediction,
    Times,
    WhatIfError,
    predict_times,
    recorded,
)
from overrun.analysis.words.arrays import IntArray
from overrun.analysis.words.finding import say_ratio


def predict(
    facts: Facts,
    *,
    tokens: Annotated[
        int, Meta(ge=0, le=10_000_000, description="input tokens removed from every call")
    ] = 0,
    ratio: Annotated[
        float, Meta(ge=0, lt=1, description="part of every call's input that is removed, 0..1")
    ] = 0.0,
) -> Prediction:
    """Return the answer with `cost.input_saved_ratio` of input tokens.

    Raises:
        WhatIfError: neither tokens nor ratio was given.
    """
    if tokens == 0 and ratio == 0.0:
        raise WhatIfError(
            "prompt_trim needs tokens or ratio above 0: give the part of the prompt to remove"
        )
    title = " and ".join(
        [*([f"{tokens:,} tokens"] if tokens else []), *([say_ratio(ratio)] if ratio else [])]
    )
    fix = Fix(
        "prompt_trim",
        f"Trim {title} from every prompt",
        "the trimmed text was not needed for the answer",
        {"tokens": tokens, "ratio": ratio},
    )

    def kept(prompt: IntArray) -> IntArray:
        left: IntArray = np.maximum(1, np.floor(prompt * (1.0 - ratio)).astype(np.int64) - tokens)
        return left

    def change(engine: Engine) -> Change:
        calls = engine.pool.calls
        prompt = kept(calls.prompt_tokens)
        return Change(shortened(calls, prompt), engine.setup)

    own = np.nan_to_num(facts.call("input_tokens")[facts.request_of >= 0]).astype(np.int64)
    cost = {
        "input_saved_ratio": float((own - np.minimum(own, kept(own))).sum() / max(1, own.sum()))
    }

    def bound() -> Prediction:
        left = kept(np.nan_to_num(facts.call("input_tokens")).astype(np.int64)).astype(np.float64)
        fresh = left - np.nan_to_num(facts.call("cached_tokens"))
        ttft, e2e = facts.per_request(-input_saved_ms(facts, fresh))
        old = recorded(facts)
        return predict_times(
            facts, fix, Times(old.ttft + ttft, old.e2e + e2e, old.tpot), method="exact"
        )

    return predict_simulated(facts, fix, change, bound=bound, cost=cost)
