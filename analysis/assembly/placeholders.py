"""What is known of a span that was never sent? A row that stands for it, with what a span below it says of the request and its sender."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from overrun.analysis.words.arrays import IntArray

# What a span says of its request and its sender, or what stands for it goes by as well; of everything else that knows nothing.
_KEPT = (
    *("trace_hi", "trace_lo", "seq", "start_ns", "name", "route", "parent_id", "flags"),
    *("trace_state", "source_id", "service", "instance", "version", "scope_name"),
    *("session", "tenant", "user_hash", "workload"),
)
_ZERO = ("duration_ns", "kind", "status", "stage", "role", "ttft_source")


def standing_for(spans: pa.Table, rows: IntArray, ids: Any) -> pa.Table:
    """Spans for the parents of these rows, by their ids: what a row says of its request and sender, and nothing else."""
    out = spans.take(pa.array(rows))
    for at, column in enumerate(out.schema):
        if column.name == "span_id":
            out = out.set_column(at, column, pa.array(ids, column.type))
        elif column.name in _ZERO:
            out = out.set_column(
                at,
                column,
                pa.array(np.zeros(len(rows), dtype=np.int64), pa.int64()).cast(column.type),
            )
        elif column.name not in _KEPT:
            out = out.set_column(at, column, pa.nulls(len(rows), column.type))
    return out
