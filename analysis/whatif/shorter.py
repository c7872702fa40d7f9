"""What do fewer tokens save in each recorded call, at its own speed? The bound that stands where the engine cannot be simulated.

It leaves the load as it was; fewer tokens also free the engine for everyone else.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from analysis.latency import FloatArray
from analysis.whatif.facts import Facts

# Calls that hardly met anybody: their part of all.
_QUICK: Final = 0.1


def output_saved_ms(facts: Facts, kept_tokens: FloatArray) -> FloatArray:
    """Return the time that each call saves when its answer ends at `kept_tokens` (shape of the calls; NaN where its length is unknown).

    The time behind the first token shrinks to (kept - 1) x its own time per token. A call whose first token was not seen saves by the slope of
    time over tokens of its like.
    """
    tokens, e2e, ttft = facts.call("output_tokens"), facts.call("e2e_ms"), facts.call("ttft_ms")
    cut = np.maximum(tokens - np.maximum(kept_tokens, 1.0), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.where(tokens > 1, (e2e - ttft) / (tokens - 1), 0.0)
    blind = np.isnan(ttft) & ~np.isnan(e2e) & ~np.isnan(tokens)
    own[blind] = _slope(tokens[blind], e2e[blind])
    saved: FloatArray = np.nan_to_num(np.minimum(cut * own, e2e))
    return saved


def input_saved_ms(facts: Facts, kept_tokens: FloatArray) -> FloatArray:
    """Return the time before the first token that each call saves when only `kept_tokens` of its input are read anew.

    The engine's prefill time where it is known, else the slope of TTFT over input tokens among calls (what does not depend on length stays).
    """
    tokens, prefill, ttft = facts.call("input_tokens"), facts.call("prefill_ms"), facts.call("ttft_ms")
    fresh = np.maximum(tokens - np.nan_to_num(facts.call("cached_tokens")), 1.0)
    gone = np.maximum(fresh - np.maximum(kept_tokens, 0.0), 0.0)
    known = ~np.isnan(ttft) & ~np.isnan(fresh)
    slope = _slope(fresh[known], ttft[known])
    own = np.where(np.isnan(prefill), np.minimum(gone * slope, 0.9 * np.nan_to_num(ttft)), gone * prefill / fresh)
    saved: FloatArray = np.nan_to_num(own)
    return saved


def idle_ms(facts: Facts) -> tuple[FloatArray, FloatArray]:
    """Return the change of each call's (TTFT, E2E) were nobody beside it: the first token as soon as in the quickest tenth of its model's calls with about as
    long an input, the others at the pace of the quickest tenth."""
    ttft, e2e, tokens = facts.call("ttft_ms"), facts.call("e2e_ms"), facts.call("output_tokens")
    wait = np.where(np.isnan(ttft), e2e, ttft)
    with np.errstate(divide="ignore", invalid="ignore"):
        pace = np.where(tokens > 1, (e2e - wait) / (tokens - 1), np.nan)
    size = pl.col("input_tokens").fill_null(1).clip(1).log(2).round()
    told = facts.calls.select("model", size=size, wait=pl.Series(wait).fill_nan(None), pace=pl.Series(pace).fill_nan(None))
    quick = told.select(pl.col("wait").quantile(_QUICK).over("model", "size"), pl.col("pace").quantile(_QUICK).over("model"))
    first = -np.nan_to_num(np.maximum(wait - quick["wait"].fill_null(np.nan).to_numpy(), 0.0))
    later = -np.nan_to_num(np.maximum(pace - quick["pace"].fill_null(np.nan).to_numpy(), 0.0) * np.maximum(tokens - 1.0, 0.0))
    return np.where(np.isnan(ttft), 0.0, first), first + later


def _slope(tokens: FloatArray, ms: FloatArray) -> float:
    """Least-squares slope in ms per token, never below 0; 0 where lengths do not vary."""
    if len(tokens) < 2:
        return 0.0
    spread = float(((tokens - tokens.mean()) ** 2).sum())
    return max(0.0, float(((tokens - tokens.mean()) * (ms - ms.mean())).sum()) / spread) if spread > 0.0 else 0.0
