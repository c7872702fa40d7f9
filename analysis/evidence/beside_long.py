"""How much slower are short answers beside long ones, now and before?"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.overlap import Flow
from overrun.analysis.evidence.token_speed import MIN_TOKENS, fit
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray
from overrun.analysis.words.finding import (
    MIN_BREACHING,
)


class Beside(NamedTuple):
    """What short calls met, all shape (n,): their batches' sizes and how many in them were long, new input tokens per second read beside, and their
    time per token (ms)."""

    trace_key: IntArray
    running: FloatArray
    long: FloatArray
    prefill: FloatArray
    token_ms: FloatArray

    @property
    def share(self) -> float:
        """Return the mean share of long answers in the batch."""
        return float((self.long / np.maximum(self.running, 1.0)).mean())

    def of(self, requests: pl.DataFrame) -> Beside | None:
        """Return the calls of these requests, None of fewer than a cause needs."""
        some: BoolArray = np.isin(self.trace_key, requests["trace_key"].to_numpy())
        if int(some.sum()) < MIN_BREACHING:
            return None
        return Beside(
            self.trace_key[some],
            self.running[some],
            self.long[some],
            self.prefill[some],
            self.token_ms[some],
        )


def per_long(before: Beside, now: Beside) -> tuple[float, float]:
    """Return the time (ms) that each long call in the batch adds to a short one's token: among the calls of now, and among those of both periods.

    Where every replica has its share of the long ones their number hardly varies now, and tells of them too low: that they add something shows there, how
    much shows beside the calls of before.
    """
    _, running, prefill, _ = fit(before.token_ms, before.running, before.prefill, before.long)
    within = fit(now.token_ms - running * now.running - prefill * now.prefill, now.long)[1]
    token, *met = (
        np.r_[getattr(before, name), getattr(now, name)]
        for name in ("token_ms", "running", "prefill", "long")
    )
    return within, max(within, fit(token, *met)[-1])


def beside_long(calls: Calls, least: float) -> Beside | None:
    """Return what the short ones of these calls met beside them; None below 30 of them whose engine reports."""
    out, seconds = calls.of("output_tokens"), calls.last_s - calls.first_s
    usable = known(out, calls.token_ms, calls.running, calls.prefill_meanwhile) & calls.has_engine
    long = usable & (out >= least)
    beside = np.full(len(calls), np.nan)
    for engine in np.unique(calls.engine):
        here: BoolArray = usable & (calls.engine == engine)
        flow = Flow(calls.first_s[here & long], calls.last_s[here & long], seconds[here & long])
        spent = np.maximum(seconds[here], 1e-3)
        beside[here] = flow.between(calls.first_s[here], calls.first_s[here] + spent) / spent
    chosen = usable & ~long & (out >= MIN_TOKENS)
    if long.any():
        # Of the first of these calls those long ones are missed that began before, of the last those that have not ended.
        takes = float(np.median(seconds[long]))
        chosen &= (calls.first_s >= calls.first_s[usable].min() + takes) & (
            calls.last_s <= calls.last_s[usable].max() - takes
        )
    if int(chosen.sum()) < MIN_CALLS:
        return None
    keys = calls.frame["trace_key"].to_numpy()
    return Beside(
        keys[chosen],
        calls.running[chosen],
        beside[chosen],
        calls.prefill_meanwhile[chosen],
        calls.token_ms[chosen],
    )
