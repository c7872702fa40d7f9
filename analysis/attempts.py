"""Which model calls are the same question asked again? One logical call per question, however often it was tried."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from analysis.budget import BoolArray, FloatArray
from analysis.calls import Calls

# Two calls of one session with equally many input tokens within this time are one question; own default (callers give up within it).
AGAIN_WITHIN_S: Final = 60.0


class Attempts(NamedTuple):
    """Per call: whether it repeats an earlier one, whether that one had failed, and how many ms after that one's start it began."""

    repeat: BoolArray
    after_error: BoolArray
    after_ms: FloatArray
    amplification: float


def attempts(calls: Calls) -> Attempts:
    """Find repeats: the same model and number of input tokens within one trace, or within one session in another trace.

    The count of input tokens stands for the prompt, whose text is not stored: an agent's next step has read more and so has more of them.
    """
    frame = calls.frame.with_row_index("row").select(
        "row", "trace_key", "session", "model", "input_tokens", "start_s", "e2e_ms", "error", "http_status")
    repeat = np.zeros(len(calls), dtype=np.bool_)
    failed = np.zeros(len(calls), dtype=np.bool_)
    after = np.full(len(calls), np.nan)
    known = frame.filter(pl.col("input_tokens").is_not_null())
    for keys in (["trace_key", "model", "input_tokens"], ["session", "model", "input_tokens"]):
        chosen = known.drop_nulls(keys[0]).sort("start_s").with_columns(
            gap=pl.col("start_s").diff().over(keys), lost=(pl.col("error") | (pl.col("http_status") >= 400)).shift(1).over(keys))
        hits = chosen.filter(pl.col("gap") <= AGAIN_WITHIN_S)
        rows = hits["row"].to_numpy()
        repeat[rows] = True
        failed[rows] |= hits["lost"].fill_null(False).to_numpy()
        after[rows] = np.fmin(after[rows], hits["gap"].to_numpy() * 1e3)
    once = int((~repeat).sum())
    return Attempts(repeat, failed, after, len(calls) / once if once else 1.0)
