"""Which copy of a span counts? The one that ended last."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from overrun.analysis.assembly.columns import numpy_column


def drop_copies(spans: pa.Table) -> pa.Table:
    """Each span once: of copies, which stand behind each other, the one that ended last (of equal ends the first), for others were sent before the span ended.

    Spans of one id, but of different kinds or services, are different ones (a client and the server that took over its id).
    """
    keys = [numpy_column(spans, c) for c in ("trace_hi", "trace_lo", "span_id")]
    first = np.ones(spans.num_rows, dtype=bool)
    if spans.num_rows:
        first[1:] = np.logical_or.reduce([k[1:] != k[:-1] for k in keys])
    if first.all():
        return spans
    again = np.flatnonzero(~first)
    rows = np.union1d(
        again, again - 1
    )  # all copies: what is first of several stands right before a repeat
    end = numpy_column(spans, "start_ns")[rows] + numpy_column(spans, "duration_ns")[rows]
    kinds, services = (
        column.to_pylist()
        for column in spans.select(["kind", "service"]).take(pa.array(rows)).columns
    )
    last: dict[tuple[int, int, str], tuple[int, int]] = {}
    for row, of, until, kind, service in zip(
        rows.tolist(), np.cumsum(first)[rows].tolist(), end.tolist(), kinds, services, strict=True
    ):
        held = last.get((of, kind, service))
        if held is None or until > held[1]:
            last[of, kind, service] = row, until
    keep = np.ones(spans.num_rows, dtype=bool)
    keep[rows] = False
    keep[[row for row, _ in last.values()]] = True
    return spans.filter(pa.array(keep)).combine_chunks()
