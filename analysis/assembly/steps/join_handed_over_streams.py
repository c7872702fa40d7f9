"""When does a call end whose span ended as its stream was handed over (LlamaIndex)? At its first token, or with the call of another instrumentation."""

from __future__ import annotations

import bisect

import numpy as np

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly.batch import MOST_AT_ONCE, Batch
from overrun.analysis.assembly.columns import ABSENT, codes_at, grouped
from overrun.analysis.assembly.nesting import is_below
from overrun.collector.normalise.spans import TTFT_EVENT

# From the first chunk that a client's instrumentation saw to the event of the framework above it: 1 to 20 ms measured on two busy cores.
MAX_PASSED_ON_NS = 100_000_000


def join_handed_over_streams(batch: Batch) -> None:
    """Let a model call last until its first token, where its span ended when the stream was handed over (LlamaIndex), and until the end of the call of
    another instrumentation that it read the stream from: the one that began within it and had its first token just before."""
    s = batch.spans
    ttft = batch.ints("ttft_ns")
    first = np.where(ttft >= 0, batch.start + ttft, ABSENT)
    calls = np.flatnonzero(batch.role == cp.LLM)
    handed = calls[
        (first[calls] > batch.end[calls]) & (batch.ints("ttft_source")[calls] == TTFT_EVENT)
    ]
    if not len(handed):
        return
    scope = codes_at(calls, s.column("scope_name"))
    calls = batch.by_start(calls)
    in_trace = grouped(calls, batch.trace[calls].tolist())
    starts = {trace: batch.start[rows].tolist() for trace, rows in in_trace.items()}
    for row in handed.tolist():
        trace, end = int(batch.trace[row]), int(first[row])
        within = in_trace[trace][
            bisect.bisect_left(starts[trace], batch.start[row]) : bisect.bisect_right(
                starts[trace], end
            )
        ]
        read = [
            other
            for other in (within if len(within) <= MOST_AT_ONCE else ())
            if scope[other] != scope[row]
            and not is_below(other, row, batch.parent)
            and (
                end - MAX_PASSED_ON_NS <= first[other] <= end
                if first[other] >= 0
                else batch.end[other] >= end
            )
        ]
        if len(read) == 1 and not is_below(row, read[0], batch.parent):
            batch.parent[read[0]] = row
            end = max(end, int(batch.end[read[0]]))
        above = row
        while above >= 0 and batch.role[above] == cp.LLM:
            batch.end[above] = max(end, int(batch.end[above]))
            above = int(batch.parent[above])
