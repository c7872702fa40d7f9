"""How much do engines write for callers who have left?"""

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import Calls, known
from overrun.analysis.evidence.repeated_calls import impatient
from overrun.analysis.evidence.span_tree import Tree
from overrun.analysis.numbers.outcomes.failures import ABANDONED

# Engine time beyond the client's by this much is more than clocks and the last chunk; own default.
BEYOND_MS: Final = 250.0


class Waste(NamedTuple):
    """Share of engine tokens written after the client had left, share of calls that outlived it, and share of calls given up."""

    tokens: float
    calls: float
    left: float


def left_requests(tree: Tree) -> pl.DataFrame:
    """Return `trace_key` and `left_s` of the requests whose user left: their first span ended as cancelled, or with status 499."""
    gone = (pl.col("http_status") == 499).fill_null(value=False) | pl.col(
        "error_type"
    ).str.to_lowercase().str.contains(ABANDONED.pattern).fill_null(value=False)
    roots = tree.frame.filter(pl.Series(tree.parent < 0) & (pl.col("role") != "engine"))
    return roots.filter(gone).group_by("trace_key").agg(left_s=pl.col("end_s").max())


def wasted(calls: Calls, tree: Tree | None = None) -> Waste | None:
    """Return the waste of these calls, None without engine telemetry its own time.

    A call given up that is seen as a failed client call and an engine call of the same request counts by the engine's time after the client's. With the
    spans of their requests (`tree`) a call that its caller goes on with counts by its time after the user has left the request.
    """
    if tree is not None and tree.every > 1:
        calls = calls.where(tree.seen(calls.frame["trace_key"]))
    alone = calls.of("engine_alone") > 0.0
    engine, out = calls.of("engine_e2e_ms"), np.nan_to_num(calls.of("output_tokens"))
    if not known(engine).any():
        return None
    beyond = np.where(alone, 0.0, np.nan_to_num(engine - calls.of("e2e_ms")))
    frame = calls.frame.with_columns(alone=pl.Series(alone), end_s=pl.Series(calls.end_s))
    gave_up = (
        frame.filter(~pl.col("alone") & pl.col("error").fill_null(False) & impatient())
        .group_by("trace_key")
        .agg(pl.col("end_s").max().alias("left_s"))
    )
    if gave_up.height and alone.any():
        joined = frame.select("trace_key", "alone", "end_s").join(
            gave_up, on="trace_key", how="left", maintain_order="left"
        )
        after = (joined["end_s"] - joined["left_s"]).fill_null(0.0).to_numpy() * 1e3
        beyond = np.where(alone, np.maximum(after, 0.0), beyond)
    users = (
        frame.select("trace_key").clear().with_columns(left_s=0.0)
        if tree is None
        else left_requests(tree)
    )
    if users.height:
        gone = frame.select("trace_key", "start_s", "end_s").join(
            users, on="trace_key", how="left", maintain_order="left"
        )
        # A call that begins after the user has left is work in the background.
        after = (
            gone.select(
                pl.when(pl.col("start_s") < pl.col("left_s"))
                .then(pl.col("end_s") - pl.col("left_s"))
                .fill_null(0.0)
            )
            .to_series()
            .to_numpy()
        )
        beyond = np.maximum(beyond, 1e3 * after)
    late = beyond > BEYOND_MS
    part = np.where(
        late, np.minimum(1.0, beyond / np.maximum(np.nan_to_num(engine, nan=1.0), 1.0)), 0.0
    )
    out = (
        out if out.any() else np.nan_to_num(calls.of("decode_ms"))
    )  # uncounted tokens are as many as the time that they took
    total = float(out[known(engine)].sum())
    leavers = pl.concat([gave_up["trace_key"], users["trace_key"]]).n_unique()
    left = float(leavers) / max(calls.frame["trace_key"].n_unique(), 1)
    return Waste(
        float((out * part).sum()) / total if total > 0.0 else 0.0, float(late.mean()), left
    )
