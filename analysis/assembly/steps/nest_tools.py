"""Which call asked for a tool that ran while the call lasted (Mastra)?"""

from __future__ import annotations

import bisect

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly.batch import MOST_AT_ONCE, Batch
from overrun.analysis.assembly.columns import ABSENT, grouped


def nest_tools(batch: Batch) -> None:
    """Put a tool into the call beside it that asked for it and lasts on: it began after the call's first token and ended before the call (Mastra)."""
    s = batch.spans
    tools = np.flatnonzero(
        (batch.role == cp.PLAIN) & (batch.ints("stage") == cp.TOOL) & (batch.parent >= 0)
    )
    if not len(tools):
        return
    around = np.zeros(len(batch.role), dtype=np.bool_)
    around[batch.parent[tools]] = True
    calls = np.flatnonzero((batch.role == cp.LLM) & (batch.parent >= 0))
    calls = calls[around[batch.parent[calls]]]
    calls = calls[
        pc.fill_null(
            pc.equal(s.column("finish_reason").take(pa.array(calls)), "tool_calls"), False
        ).to_numpy(zero_copy_only=False)
    ]
    until = np.full(len(batch.role), ABSENT, dtype=np.int64)
    np.maximum.at(until, batch.parent[calls], batch.end[calls])
    tools = tools[batch.end[tools] <= until[batch.parent[tools]]]
    if not len(tools):
        return
    ttft = batch.ints("ttft_ns")
    first = batch.start + ttft
    calls = calls[ttft[calls] >= 0]
    calls = calls[np.argsort(first[calls])]
    beside = grouped(calls, batch.parent[calls].tolist())
    starts = {above: first[rows].tolist() for above, rows in beside.items()}
    parent = batch.parent.copy()
    for tool, above, start, end in zip(
        tools.tolist(),
        *(of[tools].tolist() for of in (batch.parent, batch.start, batch.end)),
        strict=True,
    ):
        last = bisect.bisect_right(starts.get(above, ()), start)
        asked = [
            call
            for call in beside.get(above, [])[max(0, last - MOST_AT_ONCE) : last]
            if end <= batch.end[call]
        ]
        if asked:
            parent[tool] = asked[-1]
    batch.parent = parent
