"""What else do users wait for, beside the latencies that are judged? The worst gap in a stream, the gap of a token, and the moment an answer is usable."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import duckdb
import msgspec
import numpy as np

from overrun.analysis.numbers.latency.percentiles import Percentiles, percentiles
from overrun.analysis.numbers.window import Window, filter_of, query
from overrun.analysis.words.arrays import FloatArray
from overrun.collector.store.answers import fetch_frame


class Further(msgspec.Struct, kw_only=True):
    """One latency that no limit is on, in ms over the successful requests that carry it; `what` says it in words."""

    metric: str
    what: str
    ms: Percentiles


# Each with the column it is of, the metric whose doubts are its own, and what it is.
_KINDS: Final = (
    ("itl_worst", "itl_max_ms", "itl", "worst gap between tokens of a request", "chunk events"),
    (
        "itl_token",
        "itl_ms",
        "itl",
        "gap before a token, each request counted once a token",
        "chunk events",
    ),
    (
        "usable_answer",
        "usable_ms",
        "e2e",
        "until the answer is usable, as the application marks it",
        "overrun.usable_answer",
    ),
    (
        "first_model_token",
        "first_model_token_ms",
        "ttft",
        "first token of any model call, if the answer's call is not known",
        "model calls",
    ),
)


def further(
    con: duckdb.DuckDBPyConnection,
    window: Window,
    *,
    weighted: bool = False,
    spoiled: Collection[str] = (),
) -> list[Further]:
    """Return those that any request of the window carries; with `weighted` each request stands for as many as its sampler says.

    Left out is what rests on a `spoiled` metric.
    """
    rows = fetch_frame(con, query("further_latency"), filter_of(window))
    sampled: FloatArray = rows["sample_weight"].to_numpy() if weighted else np.ones(rows.height)
    out = []
    for name, column, rests_on, what, source in _KINDS:
        known = rows[column].is_not_null().to_numpy()
        weights = sampled * (rows["later_tokens"].to_numpy() if name == "itl_token" else 1.0)
        known &= weights > 0.0
        if known.any() and rests_on not in spoiled:
            out.append(
                Further(
                    metric=name,
                    what=what,
                    ms=percentiles(
                        rows[column].to_numpy()[known], source=source, weights=weights[known]
                    ),
                )
            )
    return out
