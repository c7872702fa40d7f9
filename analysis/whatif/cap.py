"""What if no answer were longer than a cap? Exact arithmetic on each request's own speed.

A bound on the remaining time from above: shorter answers also free the engine for everyone else, which is not
modelled here.
"""

import numpy as np

from analysis.budget import FloatArray, StageTimes
from analysis.finding import Predicted
from analysis.whatif.effect import effect


def cap(
    times: StageTimes,
    output_tokens: FloatArray,
    max_tokens: int,
    *,
    metric: str,
    percentile: float,
    rng: np.random.Generator,
    generation_token_ms: float = 0.0,
) -> Predicted:
    """Return the percentile (0..100) of the path's total when every answer ends at `max_tokens` tokens (>= 1).

    Decode of a request with n tokens (NaN: unknown, left as it is) shrinks to (cap - 1) x its own time per token,
    decode / (n - 1). Calls seen only from outside shrink by `generation_token_ms` per token cut, never below 0.
    `cost.truncated_ratio` is the share of requests whose answer the cap cuts.
    """
    none = np.zeros(len(times.total_ms))
    cut = np.nan_to_num(output_tokens, nan=0.0) > max_tokens
    tokens = np.where(cut, output_tokens, max_tokens + 1.0)
    decode = times.ms.get("decode", none)
    saved = decode * (tokens - max_tokens) / (tokens - 1.0)
    saved += np.minimum(times.ms.get("generation", none), (tokens - max_tokens) * generation_token_ms)
    after = times.total_ms - np.where(cut, saved, 0.0)
    cost = {"truncated_ratio": float(cut.mean())}
    return effect(times.total_ms, after, metric=metric, percentile=percentile, cost=cost, rng=rng)
