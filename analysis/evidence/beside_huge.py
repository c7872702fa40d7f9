"""For how long does a call run beside the reading of huge prompts, and is that more than chance gives?"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import Calls, known
from overrun.analysis.evidence.overlap import Flow
from overrun.analysis.words.arrays import BoolArray, FloatArray

# Reading a huge prompt takes at most so many times what its tokens cost among usual ones (attention grows with the square, others are served between).
AT_MOST: Final = 3.0


def beside_huge(calls: Calls, huge: BoolArray, token_ms: float) -> FloatArray:
    """Return the milliseconds of each call, from its start to its end, in which its engine read a huge prompt of somebody else.

    Without engine times, a huge call counts until its first token, from its start but no longer than reading it may take at `token_ms` a token
    (it waits itself).
    """
    out = np.zeros(len(calls))
    begin = np.where(np.isnan(calls.scheduled_s), calls.of("start_s"), calls.scheduled_s)
    end = np.where(np.isnan(calls.first_s), calls.end_s, calls.first_s)
    begin = np.where(
        calls.has_engine,
        begin,
        np.maximum(begin, end - AT_MOST * token_ms * calls.new_tokens / 1e3),
    )
    for engine in np.unique(calls.engine):
        mine = calls.engine == engine
        culprits = mine & huge
        if culprits.any():
            flow = Flow(begin[culprits], end[culprits], (end - begin)[culprits])
            met = 1e3 * flow.between(calls.of("start_s")[mine], calls.end_s[mine])
            out[mine] = np.minimum(met, calls.of("e2e_ms")[mine])
    return np.where(huge, 0.0, out)


def beyond_chance(
    calls: Calls, beside: FloatArray, slow: BoolArray, huge: BoolArray, keys: pl.Series
) -> float:
    """Mean time of a slow request beside huge prompts, less what requests that last as long meet by chance: others meet them at that rate, too."""
    others = ~slow & ~huge & known(calls.of("e2e_ms"))
    whole = float(calls.of("e2e_ms")[others].sum())
    rate = float(beside[others].sum()) / whole if whole > 0.0 else 0.0
    return max(0.0, _per_request(beside - rate * np.nan_to_num(calls.of("e2e_ms")), slow, keys))


def _per_request(beside: FloatArray, chosen: BoolArray, keys: pl.Series) -> float:
    """Mean over requests of the time of their calls beside huge prompts."""
    frame = (
        pl.DataFrame({"key": keys, "ms": beside})
        .filter(pl.Series(chosen))
        .group_by("key")
        .agg(pl.col("ms").sum())
    )
    return float(frame["ms"].to_numpy().mean()) if frame.height else 0.0
