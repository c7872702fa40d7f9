"""Where belongs what a server did for an HTTP span that ended with the headers? Beside that span, or into the step that it was sent for."""

from __future__ import annotations

import bisect

import numpy as np

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly.batch import NEARLY_ALL, Batch
from overrun.analysis.assembly.columns import ERROR, SERVER, grouped, numpy_column

# Steps that may be sent over HTTP by a task beside them.
_SENT = (cp.TOOL, cp.RETRIEVAL, cp.PROMPT)


def lift_streamed_answers(batch: Batch) -> None:
    """Put what a server did beside the HTTP span of its client that ended when the headers came, while the answer streamed on.

    Where that HTTP span is beside the step that it was sent for, because a task of its own sends (MCP), it goes into that step.
    """
    s = batch.spans
    rows = np.flatnonzero(
        (batch.parent >= 0) & ((batch.ints("kind") == SERVER) | (batch.role == cp.ENGINE))
    )
    sent = batch.parent[rows]
    rows, sent = rows[batch.parent[sent] >= 0], sent[batch.parent[sent] >= 0]
    around, took = batch.parent[sent], batch.end - batch.start
    http = (
        (batch.role[sent] == cp.PLAIN)
        & (batch.ints("stage")[sent] == cp.NETWORK)
        & (numpy_column(s, "status")[sent] != ERROR)
    )
    # Longer than the span that it is in: two clocks that differ do not make that. A call that is still served at its end was left by its client.
    streamed = (
        http
        & (took[rows] > took[sent])
        & ((took[rows] <= took[around]) | (batch.role[around] == cp.LLM))
    )
    rows, sent, around = rows[streamed], sent[streamed], around[streamed]
    batch.parent[rows] = around
    # Or into the step beside that was sent that way, if a task of its own sends (MCP): the one that began last before, and lasted for nearly all of it.
    steps = np.flatnonzero(
        (batch.role == cp.PLAIN)
        & np.isin(batch.ints("stage"), _SENT)
        & np.isin(batch.parent, around)
    )
    if not len(steps):
        return
    steps, kind = batch.by_start(steps), batch.ints("kind")
    beside = grouped(steps, batch.parent[steps].tolist())
    starts = {above: batch.start[of].tolist() for above, of in beside.items()}
    for row, client, above in zip(rows.tolist(), sent.tolist(), around.tolist(), strict=True):
        at = bisect.bisect_right(starts.get(above, ()), batch.start[client])
        step = beside[above][at - 1] if at else row
        if (
            kind[row] == SERVER
            and batch.end[client] <= batch.end[step]
            and batch.end[step] - batch.start[row] >= NEARLY_ALL * took[row]
        ):
            batch.parent[row] = step
