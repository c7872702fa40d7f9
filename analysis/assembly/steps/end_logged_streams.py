"""When did a stream end of which only a log line reports the end (Logfire)?"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly import duplicate_spans
from overrun.analysis.assembly.batch import Batch
from overrun.analysis.assembly.columns import ERROR, grouped, numpy_column
from overrun.analysis.words.arrays import IntArray


def end_logged_streams(batch: Batch) -> None:
    """Let calls whose spans ended as their streams began go on up to the log lines beside them that report the streams' ends, and tell what those tell.

    Logfire's OpenAI and Anthropic wrappers: the line lasts no time, and has the tokens.
    """
    s = batch.spans
    told = batch.ints("output_tokens") >= 0
    lines = np.flatnonzero(
        (batch.role == cp.FOLDED) & (batch.start == batch.end) & (batch.parent >= 0)
    )
    names = s.column("name").take(pa.array(lines))
    lines = lines[
        told[lines]
        | pc.starts_with(names, "streaming response from ").to_numpy(zero_copy_only=False)
    ]
    if not len(lines):
        return
    begun = np.flatnonzero(
        (batch.role == cp.LLM)
        & ~told
        & (numpy_column(s, "status") != ERROR)
        & np.isin(batch.parent, batch.parent[lines])
    )
    source = numpy_column(s, "source_id")
    ended = _ended(batch, begun, lines, source)
    batch.end = batch.end.copy()
    batch.end[list(ended)] = batch.start[list(ended.values())]
    s = duplicate_spans.handed_on(
        s,
        [(line, row) for row, line in ended.items()],
        (*duplicate_spans.SHARED, "output_tokens"),
    )
    batch.spans = duplicate_spans.replaced(s, "streaming", dict.fromkeys(ended, True))


def _ended(batch: Batch, begun: IntArray, lines: IntArray, source: Any) -> dict[int, int]:
    """The line of each call that has one: a line is of the call that began last among those beside it, of its source, whose spans had ended."""
    begun, lines = begun[np.argsort(-batch.end[begun])], batch.by_start(lines)
    ending = grouped(begun, zip(batch.parent[begun].tolist(), source[begun].tolist(), strict=True))
    waiting: dict[tuple[int, int], list[tuple[int, int]]] = {}
    ended: dict[int, int] = {}
    for line, place in zip(
        lines.tolist(),
        zip(batch.parent[lines].tolist(), source[lines].tolist(), strict=True),
        strict=True,
    ):
        left, last_first = ending.get(place, []), waiting.setdefault(place, [])
        while left and batch.end[left[-1]] <= batch.start[line]:
            call = left.pop()
            heapq.heappush(last_first, (-int(batch.start[call]), call))
        if last_first:
            ended[heapq.heappop(last_first)[1]] = line
    return ended
