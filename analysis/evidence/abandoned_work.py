"""How much do engines write for callers who have left?"""

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import Calls, known
from overrun.analysis.evidence.repeated_calls import impatient

# Engine time beyond the client's by this much is more than clocks and the last chunk; own default.
BEYOND_MS: Final = 250.0


class Waste(NamedTuple):
    """Share of engine tokens written after the client had left, share of calls that outlived it, and share of calls given up."""

    tokens: float
    calls: float
    left: float


def wasted(calls: Calls) -> Waste | None:
    """Return the waste of these calls, None without engine telemetry its own time.

    A call given up that is seen as a failed client call and an engine call of the same request counts by the engine's time after the client's.
    """
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
    late = beyond > BEYOND_MS
    part = np.where(
        late, np.minimum(1.0, beyond / np.maximum(np.nan_to_num(engine, nan=1.0), 1.0)), 0.0
    )
    out = (
        out if out.any() else np.nan_to_num(calls.of("decode_ms"))
    )  # uncounted tokens are as many as the time that they took
    total = float(out[known(engine)].sum())
    left = float(gave_up.height) / max(calls.frame["trace_key"].n_unique(), 1)
    return Waste(
        float((out * part).sum()) / total if total > 0.0 else 0.0, float(late.mean()), left
    )
