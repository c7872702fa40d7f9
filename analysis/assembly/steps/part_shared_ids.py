"""Which span is meant where a client and its server share an id (Zipkin, B3)? The server's goes into the client's."""

from __future__ import annotations

import numpy as np

from overrun.analysis.assembly.batch import Batch
from overrun.analysis.assembly.columns import (
    ABSENT,
    CLIENT,
    PRODUCER,
    SERVER,
    codes,
    grouped,
    numpy_column,
)


def part_shared_ids(batch: Batch) -> None:
    """Put a server's span into the client's whose id it took over (Zipkin, B3), and what names that id as its parent into the one of its own service."""
    span_id = numpy_column(batch.spans, "span_id")
    shared = (batch.trace[1:] == batch.trace[:-1]) & (span_id[1:] == span_id[:-1])
    if not shared.any():
        return
    at = np.flatnonzero(shared)
    rows = np.union1d(at, at + 1)
    kind, service = batch.ints("kind"), codes(batch.spans.column("service"))
    groups = grouped(rows, zip(batch.trace[rows].tolist(), span_id[rows].tolist(), strict=True))
    outer = {
        key: next((row for row in group if kind[row] in (CLIENT, PRODUCER)), -1)
        for key, group in groups.items()
    }
    children = np.flatnonzero(np.isin(batch.parent, rows))
    for row, trace, above in zip(
        children.tolist(),
        batch.trace[children].tolist(),
        span_id[batch.parent[children]].tolist(),
        strict=True,
    ):
        group = groups[trace, above]
        client = outer[trace, above]
        mine = [
            one
            for one in group
            if one not in (client, row) and service[one] == service[row] and kind[row] != SERVER
        ]
        batch.parent[row] = mine[0] if mine else client if client not in (ABSENT, row) else group[0]
    for key, group in groups.items():
        batch.parent[[row for row in group if row != outer[key] >= 0]] = outer[key]
