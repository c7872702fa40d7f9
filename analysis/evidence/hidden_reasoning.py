"""How many reasoning tokens are counted as output but not reported as reasoning? They come no later than the first visible token.

OpenLLMetry, for one, sends no reasoning tokens of a stream, and its output tokens hold them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.demand import slope_within
from overrun.analysis.evidence.observed import Observed

MIN_REQUESTS: Final = 5
# Part of the former time after the first token, and of a token's time there, that must be left: a proxy that holds the stream back leaves none, and what waits
# in it is no thought; own default.
STILL_WRITTEN: Final = 0.2
# Part of the usual time per token that each further token adds to the wait for the first one where it was thought; own default.
PACE: Final = 0.5
# Part of the output from which thought is told from chance; own default, as for thought that is told of.
MIN_HIDDEN: Final = 0.1


class Unsaid(NamedTuple):
    """Mean output tokens of a slow and of a reference request, the tokens of thought that slow ones have more, and the time of one in ms."""

    slow: float
    reference: float
    added: float
    token_ms: float


def told(rows: pl.DataFrame) -> int:
    """The number of requests that report reasoning; zero counts of checks beside their answers do not count as reports."""
    return rows.filter(pl.col("reasoning_tokens") > 0).height


def unsaid_thought(case: Observed) -> Unsaid | None:
    """Return the thought that slow requests have more of than the reference, None where it is told of, or their further tokens came after the first one.

    What the reference writes in as much time after the first token is taken for the answer; the rest of the growth was written before.
    """
    first = "ttft_first_token_ms" if case.times.path == "ttft" else "first_token_ms"
    sides = [
        rows.filter(
            (pl.col("output_tokens") > 0)
            & (pl.col("first_token_ms") > 0)
            & (pl.col("decode_ms") > 0)
        )
        for rows in (case.slow, case.reference)
    ]
    if (
        min(side.height for side in sides) < MIN_REQUESTS
        or max(told(rows) for rows in sides) >= MIN_REQUESTS
    ):
        return None
    (n1, d1), (n0, d0) = (
        (float(side["output_tokens"].to_numpy().mean()), float(side["decode_ms"].to_numpy().mean()))
        for side in sides
    )
    added = min(n1 - n0, n1 - n0 * d1 / d0)
    points = [
        side.select("output_tokens", first).drop_nulls().to_numpy().astype(np.float64)
        for side in sides
    ]
    token_ms = slope_within([(side[:, 0], side[:, 1]) for side in points])
    if (
        d1 < STILL_WRITTEN * d0
        or not STILL_WRITTEN * token_ms <= d0 / n0 <= token_ms / PACE
        or added < MIN_HIDDEN * n1
    ):
        return None
    return Unsaid(n1, n0, added, token_ms)
