"""What happens inside a model call before the answer's own HTTP request begins? The caller's waits, refused or failed attempts, and the pauses between them.

From the spans that a client's HTTP instrumentation puts below the call. What passes before the first of them is the caller's own (a full connection pool), and so
are attempts that failed and the pauses behind them (back-off within the SDK). What follows is the provider's.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import MIN_CALLS, Calls
from overrun.analysis.evidence.refusals import refused
from overrun.analysis.evidence.span_tree import Tree

# Names of the spans of what a new connection takes (otelhttptrace, Netty and their like).
HANDSHAKE: Final = (
    r"(?i)(?:^|[^a-z])(?:dns|resolve|connect|tls|ssl|handshake|getconn|tcp)(?:$|[^a-z])"
)
# Clocks and rounding: one that ends this long after the next one starts has made place for it; as in `span_tree`.
TOLERANCE_S: Final = 0.0005
# Where attempts are guessed from a first token that the engine gave much earlier.
SUSPECTED: Final = "hidden"
_SCHEMA: Final = {
    "trace_key": pl.UInt64(),
    "call_key": pl.UInt64(),
    "waited_ms": pl.Float64(),
    "lost_ms": pl.Float64(),
    "attempts": pl.UInt32(),
    "refused": pl.UInt32(),
}


def inside_calls(tree: Tree) -> pl.DataFrame:
    """Return one row per model call with HTTP requests of its own below it: `waited_ms` before the first of them, less what opening a connection takes,
    `lost_ms` in failed attempts and the pauses after them, its `attempts`, and how many of these were `refused` (429)."""
    frame = tree.frame
    below = frame.filter((pl.col("parent_role") == "llm") & pl.col("parent_key").is_not_null())
    http = (
        below.filter(pl.col("method").is_not_null() | pl.col("url").is_not_null())
        .filter(pl.col("kind") == "client")
        .sort("trace_key", "parent_key", "start_s")
    )
    if http.is_empty():
        return pl.DataFrame(schema=_SCHEMA)
    call = ["trace_key", "parent_key"]
    first = http.group_by(call, maintain_order=True).agg(first_s=pl.col("start_s").min())
    opened = (
        below.filter(pl.col("name").str.contains(HANDSHAKE))
        .join(first, on=call)
        .filter(pl.col("end_s") <= pl.col("first_s"))
        .group_by(call)
        .agg(opened_ms=pl.col("duration_ms").sum())
    )
    failed = (pl.col("http_status") >= 400).fill_null(value=False) | pl.col(
        "error_type"
    ).is_not_null()
    until_next = (pl.col("start_s").shift(-1).over(call) - pl.col("start_s")) * 1e3
    return (
        http.with_columns(
            lost=pl.when(failed).then(until_next).otherwise(0.0), hit=refused().cast(pl.UInt32)
        )
        .group_by(call, maintain_order=True)
        .agg(
            waited_ms=(pl.col("start_s").min() - pl.col("parent_start_s").first()) * 1e3,
            lost_ms=pl.col("lost").fill_null(0.0).sum(),
            attempts=pl.len(),
            refused=pl.col("hit").sum(),
        )
        .join(opened, on=call, how="left", maintain_order="left")
        .select(
            "trace_key",
            pl.col("parent_key").alias("call_key"),
            (pl.col("waited_ms") - pl.col("opened_ms").fill_null(0.0)).clip(0.0),
            "lost_ms",
            "attempts",
            "refused",
        )
    )


def counted_attempts(calls: Calls, others: Calls) -> pl.DataFrame:
    """Return one row per call of which its sender counted several attempts without a span for each, as `inside_calls` does: lost is what it took beyond the
    median of its model's calls among `others` that were answered at once; none where these are fewer than `MIN_CALLS`."""
    # Who counts attempts often leaves out the one that was enough.
    once = others.frame.filter(
        (pl.col("attempts").fill_null(1) == 1) & pl.col("e2e_ms").is_not_null()
    )
    several = calls.frame.filter(
        (pl.col("attempts") > 1) & (pl.col("attempts_source") != SUSPECTED)
    )
    if once.height < MIN_CALLS or several.is_empty():
        return pl.DataFrame(schema=_SCHEMA)
    usual = once.group_by("model").agg(usual_ms=pl.col("e2e_ms").median())
    return several.join(
        usual, on="model", how="left", nulls_equal=True, maintain_order="left"
    ).select(
        "trace_key",
        call_key=pl.lit(None, pl.UInt64),
        waited_ms=pl.lit(0.0),
        lost_ms=(pl.col("e2e_ms") - pl.col("usual_ms")).clip(0.0).fill_null(0.0),
        attempts=pl.col("attempts").cast(pl.UInt32),
        refused=pl.lit(0, pl.UInt32),
    )


def most_at_once(tree: Tree) -> int:
    """Return how many HTTP requests of model calls were under way at a time at most, in the service that makes most of them."""
    http = tree.frame.filter(
        (pl.col("parent_role") == "llm")
        & (pl.col("kind") == "client")
        & (pl.col("method").is_not_null() | pl.col("url").is_not_null())
    )
    if http.is_empty():
        return 0
    top = http["service"].value_counts(sort=True)["service"][0]
    http = http.filter(pl.col("service").eq_missing(top))
    starts, ends = (np.sort(http[name].to_numpy()) for name in ("start_s", "end_s"))
    return int(
        (
            np.arange(1, len(starts) + 1)
            - np.searchsorted(ends, starts + TOLERANCE_S, side="right")
        ).max()
    )
