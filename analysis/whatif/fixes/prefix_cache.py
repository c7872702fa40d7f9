"""What if a given part of the input came from the prefix cache? Simulated with that part of the prompts already read.

It is restored by a stable order of the prompt (changing parts, such as a timestamp, at its end), by session affinity of the router, or by more KV cache. A
call that misses then hits as much as calls with equally long prompts hit now: a shared beginning has the same length in every prompt, so a long prompt has
more left to read. If too few calls hit anything, the given part of each prompt is used. Calls that hit more keep their hits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

import numpy as np
from msgspec import Meta

from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.whatif.engine_replay import Change, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.fewer_tokens import input_saved_ms
from overrun.analysis.whatif.prediction import Fix, Prediction, Times, predict_times, recorded
from overrun.analysis.words.arrays import IntArray
from overrun.analysis.words.finding import say_ratio

# Calls with about as long a prompt of which the middle one shows what such a call finds; own default, as for means of either side.
ALIKE_PROMPTS: Final = 31
# A call has found the shared prefix when it hit this part of what is asked for; own default.
_FOUND: Final = 0.5
# Log units of extra width: steps that read fewer tokens than the recorded ones cost more a token than the fitted law says; as measured.
SMALLER: Final = {"e2e": 0.015, "tpot": 0.015, "ttft": 0.07}


def predict(
    facts: Facts,
    *,
    hit_ratio: Annotated[
        float,
        Meta(
            ge=0,
            lt=1,
            description="part of the input tokens that hit the cache, 0..1 (such as its former value)",
        ),
    ],
) -> Prediction:
    """Return the answer; it costs no answers, `cost.cached_ratio_now` is the recorded hit ratio."""
    fix = Fix(
        "prefix_cache",
        f"Bring the prefix cache to {say_ratio(hit_ratio)} of input tokens",
        "every call shares a prefix of that length",
        {"hit_ratio": hit_ratio},
    )
    tokens, cached = facts.call("input_tokens"), np.nan_to_num(facts.call("cached_tokens"))
    begun = facts.calls["start_us"].to_numpy() >= int(
        facts.requests["start_us"].to_numpy().min(initial=np.iinfo(np.int64).max)
    )
    total = float(np.nansum(tokens[begun]))

    def change(engine: Engine) -> Change:
        calls = engine.pool.calls
        return Change(
            replace(
                calls, cached_tokens=restored(calls.prompt_tokens, calls.cached_tokens, hit_ratio)
            ),
            replace(engine.setup, cache_tokens=0),
        )

    def bound() -> Prediction:
        left, known = tokens.copy(), tokens >= 1.0
        left[known] -= restored(
            tokens[known].astype(np.int64), cached[known].astype(np.int64), hit_ratio
        )
        ttft, e2e = facts.per_request(-input_saved_ms(facts, left))
        old = recorded(facts)
        return predict_times(
            facts, fix, Times(old.ttft + ttft, old.e2e + e2e, old.tpot), method="exact"
        )

    return predict_simulated(
        facts,
        fix,
        change,
        bound=bound,
        worse=SMALLER,
        cost={"cached_ratio_now": float(cached[begun].sum() / total) if total else 0.0},
    )


def restored(prompt: IntArray, cached: IntArray, hit_ratio: float) -> IntArray:
    """Return the cached tokens of each call (shape of `prompt`, >= 1) were this part (0..1) of all input tokens in the cache; never fewer than there are."""
    wanted = prompt * hit_ratio
    found = cached > _FOUND * wanted
    if int(found.sum()) >= ALIKE_PROMPTS and hit_ratio > 0.0:
        hits, missing = np.flatnonzero(found)[np.argsort(prompt[found], kind="stable")], ~found
        middle = np.median(
            np.lib.stride_tricks.sliding_window_view(cached[hits], ALIKE_PROMPTS), axis=1
        )
        alike = np.interp(
            prompt, prompt[hits][ALIKE_PROMPTS // 2 : len(hits) - ALIKE_PROMPTS // 2], middle
        )
        lacking = max(0.0, float(wanted.sum() - cached[found].sum()))
        # What the calls that miss have to find for all to come to that part, as far as calls like them find it now; the rest is for everyone.
        own = np.where(
            missing,
            np.maximum(cached, alike * min(1.0, lacking / max(float(alike[missing].sum()), 1.0))),
            cached,
        )
        wanted = own + (prompt - own) * np.clip(
            (wanted.sum() - own.sum()) / max(float((prompt - own).sum()), 1.0), 0.0, 1.0
        )
    now: IntArray = np.clip(np.maximum(cached, np.floor(wanted).astype(np.int64)), 0, prompt - 1)
    return now
