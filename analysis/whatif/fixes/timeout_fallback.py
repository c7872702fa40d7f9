"""What if slow model calls were cut and answered by a fallback? Exact on each recorded call: min(L, T + fallback).

Plan for a P99 of the timeout *plus* the fallback. It is judged where the user waits: at the first token with `until=first_token` (a stream that has begun
is not cut), otherwise at the end of the call. A call that its client abandoned earlier is not cut, and later attempts of a cut call are not needed any
more. A cut call also frees its engine, which is not counted here.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.fixes.retries import chains, repeated
from overrun.analysis.whatif.prediction import (
    Fix,
    Prediction,
    Times,
    predict_times,
    recorded,
    refuse,
)
from overrun.analysis.words.finding import say_ms


def predict(
    facts: Facts,
    *,
    timeout_ms: Annotated[
        float, Meta(gt=0, lt=1e9, description="the timeout, in ms after the start of the call")
    ],
    fallback_ms: Annotated[
        float,
        Meta(ge=0, lt=1e9, description="time of the fallback's whole answer, in ms"),
    ],
    until: Annotated[
        Literal["first_token", "end"],
        Meta(
            description="first_token: cut only calls without a first token; end: cut all unfinished calls"
        ),
    ] = "end",
) -> Prediction:
    """Return the answer with `cost.fallback_ratio`, the share of requests that get the fallback's answer."""
    fix = Fix(
        "timeout_fallback",
        f"Cut calls after {say_ms(timeout_ms)} and answer with a fallback in {say_ms(fallback_ms)}",
        f"the fallback answers in {say_ms(fallback_ms)} at any load, and its quality is good enough",
        {"timeout_ms": timeout_ms, "fallback_ms": fallback_ms, "until": until},
    )
    ttft, e2e = facts.call("ttft_ms"), facts.call("e2e_ms")
    if until == "first_token" and np.isnan(ttft[facts.request_of >= 0]).all():
        return refuse(
            facts,
            fix,
            "exact",
            "no call carries a time to first token: stream the answers, or use until=end",
        )
    # The first token of a call that was given up is the engine's, and came to nobody.
    waited = np.fmin(ttft, e2e) if until == "first_token" else e2e
    cut = waited > timeout_ms
    whole = timeout_ms + fallback_ms
    failed = facts.calls["error"].fill_null(False).to_numpy()
    end = np.where(cut, np.minimum(whole, e2e) if until == "end" else whole, e2e)
    end = np.where(cut & failed, whole, end)
    # A stream that was cut after its first token had shown one already; a fallback is taken to come as a whole.
    first = np.where(
        cut & ~(ttft <= timeout_ms), np.fmin(ttft, whole) if until == "end" else whole, ttft
    )
    for chain in chains(*repeated(facts, keep_after_error=False)):
        answered = next((nth + 1 for nth, row in enumerate(chain) if cut[row]), len(chain))
        end[chain[answered:]] = first[chain[answered:]] = 0.0
        cut[chain[answered:]] = False
    ttft_delta, e2e_delta = facts.per_request(end - e2e, first - ttft)
    old = recorded(facts)
    hit = np.unique(facts.request_of[cut & facts.on_path & (facts.request_of >= 0)])
    return predict_times(
        facts,
        fix,
        Times(old.ttft + ttft_delta, old.e2e + e2e_delta, old.tpot),
        method="exact",
        cost={"fallback_ratio": len(hit) / max(1, len(facts))},
    )
