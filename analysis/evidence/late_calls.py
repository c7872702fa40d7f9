"""Which calls made slow requests slow, how long did each call wait, and had they more to read or to write than others? For facts that part late calls from others."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import Calls, known
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.finding import MIN_BREACHING

# The percentile of the others' lengths over which the median of the late calls is longer.
LONGER: Final = 75.0


def wait_ms(calls: Calls) -> FloatArray:
    """Time to the first token, or the whole call where most tell none."""
    first = calls.of("ttft_ms")
    return first if len(first) and float(known(first).mean()) > 0.5 else calls.of("e2e_ms")


def late_calls(calls: Calls, wait: FloatArray, slow: pl.Series) -> BoolArray:
    """The call of each slow request that waited longest."""
    frame = calls.frame.select("trace_key").with_columns(
        wait=pl.Series(wait), at=pl.int_range(pl.len())
    )
    worst = (
        frame.filter(pl.col("trace_key").is_in(slow.implode()) & pl.col("wait").is_not_nan())
        .sort("wait")
        .group_by("trace_key")
        .agg(pl.col("at").last())["at"]
    )
    out = np.zeros(len(calls), np.bool_)
    out[worst.to_numpy()] = True
    return out


def had_more_to_do(calls: Calls, traces: pl.Series, beside: BoolArray) -> bool:
    """Return whether the calls of these traces had more to read, or where whole calls are compared to write, than three of four of the others among `beside`."""
    theirs = calls.frame["trace_key"].is_in(traces.implode()).to_numpy()
    lengths = [calls.new_tokens]
    if float(known(calls.of("ttft_ms")).mean()) <= 0.5:
        lengths.append(calls.of("output_tokens"))
    for length in lengths:
        sides = [length[side & known(length)] for side in (beside & theirs, beside & ~theirs)]
        if min(map(len, sides)) >= MIN_BREACHING and float(np.median(sides[0])) > float(
            np.percentile(sides[1], LONGER)
        ):
            return True
    return False
