"""What if no prompt were longer than a limit? Longer ones are trimmed to it; simulated, because batches get shorter for all calls.

Trimming removes content: summarise instead where it matters, and add the summariser's own call. To send long prompts to a separate lane is `routing`. The
trimmed part comes after the cached prefix, and shorter prompts evict less of the cache. The interval also covers an unchanged hit rate; trimming of the
oldest turns, after which nothing hits any more; and, if the cache size is not known, a cache that keeps all of the shorter prompts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated

import numpy as np
from msgspec import Meta

from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.simulator.conversations import shortened
from overrun.analysis.simulator.engine import Calls, Setup
from overrun.analysis.simulator.pool import UNLIMITED_KV
from overrun.analysis.whatif.engine_replay import Change, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.fewer_tokens import input_saved_ms
from overrun.analysis.whatif.prediction import Fix, Prediction, Times, predict_times, recorded
from overrun.analysis.words.arrays import IntArray


def predict(
    facts: Facts,
    *,
    max_input_tokens: Annotated[
        int, Meta(ge=1, le=10_000_000, description="most input tokens per call")
    ],
) -> Prediction:
    """Return the answer with `cost.trimmed_ratio`, the share of calls that lose input, and `cost.input_saved_ratio` of input tokens."""
    fix = Fix(
        "context_limit",
        f"Limit prompts to {max_input_tokens:,} tokens",
        "the trimmed text was not needed for the answer",
        {"max_input_tokens": max_input_tokens},
    )
    tokens = facts.call("input_tokens")
    own = tokens[(facts.request_of >= 0) & ~np.isnan(tokens)]
    cost = {
        "trimmed_ratio": float((own > max_input_tokens).mean()) if len(own) else 0.0,
        "input_saved_ratio": float(
            np.maximum(own - max_input_tokens, 0.0).sum() / max(1.0, float(own.sum()))
        ),
    }

    def change(
        engine: Engine, hits: Callable[[Calls, Setup], IntArray | None] | None = None
    ) -> Change:
        calls = engine.pool.calls
        # The head of a prompt is what is cached; trimming takes from what comes behind it.
        shorter = shortened(calls, np.minimum(calls.prompt_tokens, max_input_tokens))
        found = None if hits is None else hits(shorter, engine.setup)
        if found is None:
            return Change(shorter, engine.setup)
        trimmed = shorter.prompt_tokens < calls.prompt_tokens
        return Change(
            replace(shorter, cached_tokens=np.where(trimmed, found, shorter.cached_tokens)),
            replace(engine.setup, cache_tokens=0),
        )

    def bound() -> Prediction:
        fresh = np.minimum(tokens, max_input_tokens) - np.nan_to_num(facts.call("cached_tokens"))
        delta = -input_saved_ms(facts, fresh)
        ttft, e2e = facts.per_request(delta)
        old = recorded(facts)
        return predict_times(
            facts, fix, Times(old.ttft + ttft, old.e2e + e2e, old.tpot), method="exact"
        )

    return predict_simulated(
        facts,
        fix,
        change,
        bound=bound,
        cost=cost,
        also=[partial(change, hits=hits) for hits in (_as_they_were, _head_alone, all_found)],
    )


def _as_they_were(calls: Calls, setup: Setup) -> IntArray:
    """Recorded hits, as far as they lie in what is kept."""
    return calls.cached_tokens


def _head_alone(calls: Calls, setup: Setup) -> IntArray:
    """A prompt whose old turns go differs from the one before it behind the head that all have."""
    return np.where(
        calls.head >= 0, np.minimum(calls.cached_tokens, calls.head), calls.cached_tokens
    )


def all_found(calls: Calls, setup: Setup) -> IntArray | None:
    """Return the cached tokens of each call were shorter prompts all kept by a cache of unknown size: each turn finds what the one before it left.

    None where the size is known.
    """
    return (
        None
        if setup.kv_tokens < UNLIMITED_KV
        else np.maximum(calls.cached_tokens, np.where(calls.reach > 0, calls.head + calls.reach, 0))
    )
