"""What do fewer tokens save in each recorded call, at its own speed? The bound that stands where the engine cannot be simulated.

It leaves the load as it was; fewer tokens also free the engine for everyone else.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.whatif.facts import Facts
from overrun.analysis.words.arrays import BoolArray, FloatArray

# Calls that hardly met anybody: their part of all.
_QUICK: Final = 0.1


def behind_thought(facts: Facts) -> BoolArray:
    """Return for each call whether its client's first token came behind thought: what follows it then shows nothing of how many tokens came before."""
    by_client = (facts.calls["ttft_source"].fill_null("none") != "engine").to_numpy() & ~np.isnan(
        facts.call("ttft_ms")
    )
    thought: BoolArray = by_client & (np.nan_to_num(facts.call("reasoning_tokens")) > 0.0)
    return thought


def output_saved_ms(facts: Facts, kept_tokens: FloatArray) -> FloatArray:
    """Return the time that each call saves when its answer ends at `kept_tokens` (shape of the calls; NaN where its length is unknown).

    The time behind the first token shrinks to (kept - 1) x its own time per token. Of a call whose first token was not seen, or came behind thought, the
    wait is what the line of time over tokens of its model's calls has at no token, and the rest its own pace: long answers, which are cut, hardly show it.
    """
    tokens, e2e, ttft = facts.call("output_tokens"), facts.call("e2e_ms"), facts.call("ttft_ms")
    cut = np.maximum(tokens - np.maximum(kept_tokens, 1.0), 0.0)
    blind = (np.isnan(ttft) | behind_thought(facts)) & ~np.isnan(e2e) & ~np.isnan(tokens)
    wait = np.where(blind, _lines(facts, np.where(blind, tokens, np.nan), e2e)[1], ttft)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Without a wait to separate the first token is one of the others.
        own = np.where(tokens > 1, np.maximum(e2e - wait, 0.0) / (tokens - (wait > 0.0)), 0.0)
    saved: FloatArray = np.nan_to_num(np.minimum(cut * own, e2e))
    return saved


def input_saved_ms(facts: Facts, kept_tokens: FloatArray) -> FloatArray:
    """Return the time before the first token that each call saves when only `kept_tokens` of its input are read again.

    The engine's prefill time where it is known, else the slope of TTFT over input tokens among its model's calls (what does not depend on length stays).
    """
    tokens, prefill, ttft = (
        facts.call("input_tokens"),
        facts.call("prefill_ms"),
        facts.call("ttft_ms"),
    )
    fresh = np.maximum(tokens - np.nan_to_num(facts.call("cached_tokens")), 1.0)
    gone = np.maximum(fresh - np.maximum(kept_tokens, 0.0), 0.0)
    slope, _ = _lines(facts, fresh, ttft)
    own = np.where(
        np.isnan(prefill),
        np.minimum(gone * slope, 0.9 * np.nan_to_num(ttft)),
        gone * prefill / fresh,
    )
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
    told = facts.calls.select(
        "model", size=size, wait=pl.Series(wait).fill_nan(None), pace=pl.Series(pace).fill_nan(None)
    )
    quick = told.select(
        pl.col("wait").quantile(_QUICK).over("model", "size"),
        pl.col("pace").quantile(_QUICK).over("model"),
    )
    first = -np.nan_to_num(np.maximum(wait - quick["wait"].fill_null(np.nan).to_numpy(), 0.0))
    later = -np.nan_to_num(
        np.maximum(pace - quick["pace"].fill_null(np.nan).to_numpy(), 0.0)
        * np.maximum(tokens - 1.0, 0.0)
    )
    return np.where(np.isnan(ttft), 0.0, first), first + later


def _lines(facts: Facts, tokens: FloatArray, ms: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return for each call the least-squares line of time over tokens of its model's calls: its slope in ms per token, never below 0 and 0 where lengths do
    not vary, and what it has at no token, never below 0. A small model that checks prompts is quick because it is small, not because they are short."""
    told = facts.calls.select(
        "model", x=pl.Series(tokens).fill_nan(None), y=pl.Series(ms).fill_nan(None)
    ).with_row_index()
    both = pl.col("x").is_not_null() & pl.col("y").is_not_null()
    x, y = (pl.when(both).then(pl.col(name)) for name in ("x", "y"))
    lines = told.group_by("model").agg(
        mean_x=x.mean(),
        mean_y=y.mean(),
        spread=((x - x.mean()) ** 2).sum(),
        together=((x - x.mean()) * (y - y.mean())).sum(),
    )
    slope = (
        pl.when(pl.col("spread") > 0.0)
        .then((pl.col("together") / pl.col("spread")).clip(0.0))
        .otherwise(0.0)
    )
    # Where all are as long as each other, nothing tells the wait apart.
    rest_ms = (
        pl.when(pl.col("spread") > 0.0)
        .then((pl.col("mean_y") - pl.col("slope") * pl.col("mean_x")).clip(0.0))
        .otherwise(0.0)
    )
    lines = lines.with_columns(slope=slope).with_columns(rest=rest_ms)
    own = told.select("index", "model").join(
        lines, on="model", how="left", nulls_equal=True, maintain_order="left"
    )
    slopes, rest = (own[name].fill_null(0.0).to_numpy() for name in ("slope", "rest"))
    return slopes, rest
