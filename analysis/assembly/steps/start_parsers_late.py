"""When does work on a stream begin (LangChain's parsers)? Where the model call beside it ends: it waits for tokens until then."""

from __future__ import annotations

import bisect

import numpy as np

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly.batch import Batch
from overrun.analysis.assembly.columns import ABSENT, grouped


def start_parsers_late(batch: Batch) -> None:
    """Let what works on an answer while it streams (LangChain's parsers) begin where the model call beside it ends: it waits for tokens until then."""
    posts = np.flatnonzero(
        (batch.role == cp.PLAIN) & (batch.ints("stage") == cp.POST) & (batch.parent >= 0)
    )
    if not len(posts):
        return
    calls = batch.calling()
    last = np.full(len(batch.role), ABSENT, dtype=np.int64)
    np.maximum.at(last, batch.parent[calls], batch.end[calls])
    posts = posts[batch.start[posts] < last[batch.parent[posts]]]
    calls = batch.by_start(calls[np.isin(batch.parent[calls], batch.parent[posts])])
    beside = {
        above: (batch.start[rows].tolist(), np.maximum.accumulate(batch.end[rows]).tolist())
        for above, rows in grouped(calls, batch.parent[calls].tolist()).items()
    }
    start = batch.start.copy()
    for row in posts.tolist():
        starts, ends = beside[int(batch.parent[row])]
        begun = bisect.bisect_left(starts, batch.start[row])
        if begun and ends[begun - 1] > batch.start[row]:
            start[row] = min(ends[begun - 1], int(batch.end[row]))
    batch.start = start
