"""Which step made the calls beside it? One that reports nothing of its own and lasted as long (LangGraph's functions)."""

from __future__ import annotations

import bisect

import numpy as np

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly.batch import MOST_AT_ONCE, NEARLY_ALL, Batch
from overrun.analysis.assembly.columns import INTERNAL, grouped, numpy_column


def nest_calling_steps(batch: Batch) -> None:
    """Put steps that call models into the one beside them that they take most of, if nothing is in it and it does not say what it did.

    LangGraph's functions that hand on the configuration that they were called with: what they call has their caller for a parent.
    """
    source, kind = numpy_column(batch.spans, "source_id"), batch.ints("kind")
    leaf = (
        (batch.parent >= 0)
        & (kind <= INTERNAL)
        & (
            (batch.role == cp.CONTAINER)
            | ((batch.role == cp.PLAIN) & (batch.ints("stage") == cp.OTHER))
        )
    )
    leaf[batch.parent[batch.parent >= 0]] = False
    leaves = np.flatnonzero(leaf)
    if not len(leaves):
        return
    calling = batch.calling()
    leaves = leaves[np.isin(batch.parent[leaves], batch.parent[calling])]
    calling = batch.by_start(calling[np.isin(batch.parent[calling], batch.parent[leaves])])
    beside = grouped(calling, batch.parent[calling].tolist())
    starts = {above: batch.start[rows].tolist() for above, rows in beside.items()}
    parent = batch.parent.copy()
    for row in leaves[np.argsort(batch.end[leaves] - batch.start[leaves], kind="stable")].tolist():
        above, start, end = int(batch.parent[row]), batch.start[row], batch.end[row]
        begun = beside[above][
            bisect.bisect_left(starts[above], start) : bisect.bisect_right(starts[above], end)
        ]
        within = np.array(
            [
                r
                for r in (begun if len(begun) <= MOST_AT_ONCE else ())
                if batch.end[r] <= end and source[r] == source[row]
            ],
            dtype=np.int64,
        )
        within = within[parent[within] == above]
        if not len(within):
            continue
        until = np.maximum.accumulate(batch.end[within])
        taken = until - np.maximum(batch.start[within], np.append(start, until[:-1]))
        if taken[taken > 0].sum() >= NEARLY_ALL * (end - start):
            parent[within] = row
    batch.parent = parent
