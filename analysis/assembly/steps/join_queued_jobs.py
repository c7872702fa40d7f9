"""Does a worker's trace belong to the request that queued its job? Joined by the link from the job's span to the message that was sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly import duplicate_spans
from overrun.analysis.assembly.batch import Batch
from overrun.analysis.assembly.columns import ABSENT, CONSUMER, numpy_column
from overrun.analysis.assembly.nesting import is_below
from overrun.analysis.assembly.placeholders import standing_for
from overrun.analysis.words.arrays import IntArray
from overrun.collector.ingest.reading import LINK_COLUMNS


def join_queued_jobs(batch: Batch) -> None:
    """Bring a worker's spans, which stand in a trace of their own, together with those of the one that sent it the message that they link to.

    Where the sender's request goes on until the work is done, it may have waited: the work becomes a part of that request (wait_for_jobs says whether it
    counts). Else the work is a request of its own, which begins when the message was sent, and waits in the queue until the worker takes it.
    """
    s = batch.spans
    if LINK_COLUMNS[0] not in s.column_names:
        return
    to = list(zip(*(numpy_column(s, name).tolist() for name in LINK_COLUMNS), strict=True))
    batch.spans = s.drop_columns(list(LINK_COLUMNS))
    kind = batch.ints("kind")
    jobs = batch.by_start(
        np.flatnonzero((kind == CONSUMER) & (numpy_column(s, LINK_COLUMNS[2]) != 0))
    )
    if not len(jobs):
        return
    sent = _senders(s, numpy_column(s, LINK_COLUMNS[2])[jobs], kind)
    queued: dict[int, int] = {}
    for job in jobs.tolist():
        row = sent.get(to[job], ABSENT)
        if row < 0 or batch.trace[row] == batch.trace[job]:
            continue
        top = [row, *duplicate_spans.above(row, batch.parent)][-1]
        if batch.start[top] <= batch.start[job] and batch.end[job] <= batch.end[top]:
            mine = np.flatnonzero(batch.trace == batch.trace[job])
            if batch.parent[job] >= 0:
                mine = mine[[is_below(one, job, batch.parent) for one in mine.tolist()]]
            batch.trace[mine], batch.parent[job] = batch.trace[row], row
        elif batch.parent[job] < 0 and batch.start[job] > batch.end[row]:
            queued[job] = row
    _begin_earlier(
        batch,
        list(queued),
        numpy_column(s, "span_id")[list(queued.values())],
        batch.end[list(queued.values())],
    )
    if (np.diff(batch.trace) < 0).any():
        batch.sort_by_trace()


def _senders(spans: pa.Table, wanted: Any, kind: IntArray) -> dict[tuple[int, int, int], int]:
    """Rows of spans that may have sent a message, by trace and span id, among those of the `wanted` span ids."""
    rows = np.flatnonzero(np.isin(numpy_column(spans, "span_id"), wanted) & (kind != CONSUMER))
    ids = [numpy_column(spans, name)[rows].tolist() for name in ("trace_hi", "trace_lo", "span_id")]
    return dict(zip(zip(*ids, strict=True), rows.tolist(), strict=True))


def _begin_earlier(batch: Batch, rows: list[int], ids: Any, start: IntArray) -> None:
    """Put each of these rows, which have nothing above them, into a span that begins at `start`, with a span beside it that waits in a queue until then."""
    n, at = len(rows), np.array(rows, dtype=np.int64)
    if not n:
        return
    around, waits = (standing_for(batch.spans, at, of) for of in (ids, ids ^ np.uint64(1 << 63)))
    batch.parent = np.concatenate(
        [
            np.full(n, ABSENT, dtype=np.int64),
            np.arange(n),
            np.where(batch.parent >= 0, batch.parent + 2 * n, ABSENT),
        ]
    )
    batch.parent[at + 2 * n] = np.arange(n)
    spans = pa.concat_tables([around, waits, batch.spans]).combine_chunks()
    waiting = range(n, 2 * n)
    spans = duplicate_spans.replaced(spans, "stage", dict.fromkeys(waiting, cp.QUEUE))
    batch.spans = duplicate_spans.replaced(spans, "name", dict.fromkeys(waiting, "queue"))
    batch.trace = np.concatenate([batch.trace[at], batch.trace[at], batch.trace])
    batch.end = np.concatenate([batch.end[at], batch.start[at], batch.end])
    batch.start = np.concatenate([start, start, batch.start])
    batch.role = np.concatenate(
        [
            np.full(n, cp.CONTAINER, dtype=np.int64),
            np.full(n, cp.PLAIN, dtype=np.int64),
            batch.role,
        ]
    )
    batch.sort_by_trace()
