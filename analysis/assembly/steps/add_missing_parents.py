"""What is the request of spans whose common parent was never sent? A span that stands for it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly.batch import Batch
from overrun.analysis.assembly.columns import ABSENT, CONSUMER, SERVER, grouped, numpy_column
from overrun.analysis.assembly.placeholders import standing_for


def add_missing_parents(batch: Batch) -> None:
    """Put spans that share a parent which is not here (it is sent elsewhere, or nowhere) under one that stands for it, as long as its trace's spans take.

    Else the first of them would be the request, and the others its parts: of two calls one after the other, one would count.
    """
    tops = np.flatnonzero((batch.parent < 0) & (batch.role <= cp.LLM))
    tops = batch.by_start(tops[np.bincount(batch.trace[tops], minlength=1)[batch.trace[tops]] > 1])
    if not len(tops):
        return
    asked, kind = numpy_column(batch.spans, "parent_id"), batch.ints("kind")
    above: dict[
        int, list[int]
    ] = {}  # what comes under the one that stands for the parent, by the first span of its trace
    until: list[int] = []
    for rows in grouped(tops, batch.trace[tops].tolist()).values():
        end = int(batch.end[rows].max())
        around = (batch.start[rows] == batch.start[rows[0]]) & (batch.end[rows] == end)
        request = np.isin(kind[rows], (SERVER, CONSUMER)) | (
            (batch.role[rows] < cp.LLM) & ((asked[rows] == 0) | around)
        )
        alike = max(grouped(np.array(rows), asked[rows].tolist()).values(), key=len)
        if len(alike) > 1 and not request.any():
            above[rows[0]] = alike
            until.append(end)
    if not above:
        return
    n, made = len(above), np.array(list(above))
    parent = np.where(batch.parent >= 0, batch.parent + n, ABSENT)
    for at, rows in enumerate(above.values()):
        parent[rows] = at
    batch.parent = np.concatenate([np.full(n, ABSENT, dtype=np.int64), parent])
    batch.spans = pa.concat_tables(
        [
            standing_for(batch.spans, made, asked[[rows[0] for rows in above.values()]]),
            batch.spans,
        ]
    ).combine_chunks()
    batch.trace, batch.start = (np.concatenate([of[made], of]) for of in (batch.trace, batch.start))
    batch.end = np.concatenate([np.array(until, dtype=np.int64), batch.end])
    batch.role = np.concatenate([np.full(n, cp.CONTAINER, dtype=np.int64), batch.role])
    batch.sort_by_trace()
