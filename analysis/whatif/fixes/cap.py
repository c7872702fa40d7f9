"""What if no answer were longer than a cap? Simulated, because shorter answers free the engine for other calls.

Without engine data it is exact arithmetic on each call's own pace: an upper bound of the remaining time.
"""

from typing import Annotated

import numpy as np
from msgspec import Meta

from overrun.analysis.numbers.stages.budget import StageTimes
from overrun.analysis.simulator.calibrate import Engine
from overrun.analysis.simulator.conversations import answered
from overrun.analysis.whatif.engine_replay import Change, predict_simulated
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.fewer_tokens import output_saved_ms
from overrun.analysis.whatif.prediction import Fix, Prediction, Times, predict_times, recorded
from overrun.analysis.whatif.quantile_gain import effect
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import Predicted


def cap(  # noqa: PLR0913
    times: StageTimes,
    output_tokens: FloatArray,
    max_tokens: int,
    *,
    metric: str,
    percentile: float,
    rng: np.random.Generator,
    generation_token_ms: float = 0.0,
    calls_saved_ms: FloatArray | None = None,
    limits_ms: float | FloatArray | None = None,
) -> Predicted:
    """Return the percentile (0..100) of the path's total when every answer ends at `max_tokens` tokens (>= 1).

    Decode of a request with n tokens (NaN: unknown, left as it is) shrinks to (cap - 1) x its own time per token,
    decode / (n - 1). Calls seen only from outside shrink by `generation_token_ms` per token cut, never below 0.
    A cap holds for each call: `calls_saved_ms` (shape of the requests) is what the calls of a request with several save, NaN for one with a single call.
    `cost.truncated_ratio` is the share of requests in which the cap cuts an answer, `cost.tokens_saved_ratio` of the output tokens where each has one call;
    `limits_ms` is the limit of the metric.
    """
    none = np.zeros(len(times.total_ms))
    cut = np.nan_to_num(output_tokens, nan=0.0) > max_tokens
    tokens = np.where(cut, output_tokens, max_tokens + 1.0)
    decode = times.ms.get("decode", none)
    saved = decode * (tokens - max_tokens) / (tokens - 1.0)
    saved += np.minimum(
        times.ms.get("generation", none), (tokens - max_tokens) * generation_token_ms
    )
    if calls_saved_ms is not None:
        several = ~np.isnan(calls_saved_ms)
        theirs = np.minimum(
            np.nan_to_num(calls_saved_ms), decode + times.ms.get("generation", none)
        )
        saved, cut = np.where(several, theirs, saved), np.where(several, theirs > 0.0, cut)
    after = times.total_ms - np.where(cut, saved, 0.0)
    cost = {"truncated_ratio": float(cut.mean())}
    written = np.nan_to_num(output_tokens, nan=0.0)
    if written.sum() > 0.0 and (calls_saved_ms is None or np.isnan(calls_saved_ms).all()):
        cost["tokens_saved_ratio"] = float(
            np.maximum(written - max_tokens, 0.0).sum() / written.sum()
        )
    return effect(
        times.total_ms,
        after,
        metric=metric,
        percentile=percentile,
        cost=cost,
        rng=rng,
        limits_ms=limits_ms,
    )


def predict(
    facts: Facts,
    *,
    max_tokens: Annotated[
        int, Meta(ge=1, le=10_000_000, description="most output tokens per answer")
    ],
) -> Prediction:
    """Return the answer with `cost.truncated_ratio`, the share of requests in which the cap cuts an answer, and `cost.tokens_saved_ratio` of output tokens."""
    fix = Fix(
        "cap",
        f"Cap answers at {max_tokens:,} tokens",
        f"an answer cut at {max_tokens:,} tokens is still useful",
        {"max_tokens": max_tokens},
    )
    tokens = facts.call("output_tokens")
    known = (facts.request_of >= 0) & ~np.isnan(tokens)
    tokens, request = tokens[known], facts.request_of[known]
    cost = {
        "truncated_ratio": len(np.unique(request[tokens > max_tokens])) / len(np.unique(request))
        if len(tokens)
        else 0.0,
        "tokens_saved_ratio": float(np.maximum(tokens - max_tokens, 0.0).sum() / tokens.sum())
        if len(tokens)
        else 0.0,
    }

    def change(engine: Engine) -> Change:
        calls = engine.pool.calls
        return Change(answered(calls, np.minimum(calls.output_tokens, max_tokens)), engine.setup)

    def bound() -> Prediction:
        ttft, e2e = facts.per_request(
            -output_saved_ms(facts, np.full(facts.calls.height, float(max_tokens))),
            np.zeros(facts.calls.height),
        )
        old = recorded(facts)
        return predict_times(
            facts, fix, Times(old.ttft + ttft, old.e2e + e2e, old.tpot), method="exact"
        )

    return predict_simulated(facts, fix, change, bound=bound, cost=cost)
