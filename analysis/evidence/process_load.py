"""How many requests are under way in a process, and how many came shortly before?"""

from __future__ import annotations

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.overlap import Flow
from overrun.analysis.words.arrays import FloatArray


def in_process(rows: pl.DataFrame, calls: Calls) -> pl.DataFrame:
    """Return the requests with the service and instance that made their model calls, if calls report it: a gateway before it is no process of the application."""
    callers = (
        calls.frame.filter(pl.col("engine_alone").fill_null(0) != 1)
        .drop_nulls("instance")
        .group_by("trace_key")
        .agg(pl.col("service", "instance").sort_by("start_s").first().name.prefix("caller_"))
    )
    return rows.join(callers, on="trace_key", how="left", maintain_order="left").with_columns(
        service=pl.coalesce("caller_service", "service"),
        instance=pl.coalesce("caller_instance", "instance"),
    )


def came_before(rows: pl.DataFrame, seconds: float) -> FloatArray:
    """Return how many requests of the same service and instance started within so many seconds before each, shape (n,)."""
    start, out = rows["start_us"].to_numpy() / 1e6, np.zeros(rows.height)
    group = (
        (rows["service"].fill_null("") + "/" + rows["instance"].fill_null(""))
        .rank("dense")
        .to_numpy()
    )
    for one in np.unique(group):
        theirs = start[group == one]
        ordered = np.sort(theirs)
        out[group == one] = np.searchsorted(ordered, theirs) - np.searchsorted(
            ordered, theirs - seconds
        )
    return out


def in_flight(rows: pl.DataFrame) -> FloatArray:
    """Return how many requests of the same service and instance were in flight within half a second around each start, shape (n,)."""
    start, end = rows["start_us"].to_numpy() / 1e6, rows["end_us"].to_numpy() / 1e6
    group = (
        (rows["service"].fill_null("") + "/" + rows["instance"].fill_null(""))
        .rank("dense")
        .to_numpy()
    )
    out = np.zeros(rows.height)
    for one in np.unique(group):
        mine = group == one
        flow = Flow(start[mine], end[mine], (end - start)[mine])
        out[mine] = flow.between(start[mine] - 0.5, start[mine] + 0.5)
    return out
