"""How often did a gateway choose where a call goes (LiteLLM's `route`)? Choices beyond the calls' own are attempts without a span."""

from __future__ import annotations

import bisect

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly import duplicate_spans
from overrun.analysis.assembly.batch import Batch
from overrun.analysis.assembly.columns import CLIENT, codes, grouped, numpy_column
from overrun.analysis.words.arrays import IntArray


def count_router_choices(batch: Batch) -> None:
    """Count how often a gateway chose where a call goes until it ended (LiteLLM's `route`), and its first token from the last choice on.

    Each call follows a choice of its own; what is chosen beyond that, within a call or between its attempts, is another attempt that has no span. A first
    token that is distinguished from its attempt on would lie before that attempt.
    """
    choices = _choices(batch)
    if not len(choices):
        return
    scope = codes(batch.spans.column("scope_name"))
    sent, first = _sent(batch)
    sent = sent[
        np.isin(batch.trace[sent], batch.trace[choices]) & np.isin(scope[sent], scope[choices])
    ]
    choices, sent = batch.by_start(choices), sent[np.argsort(first[sent], kind="stable")]
    chosen = _by_place(batch, choices, scope)
    later, numbers = dict[int, int](), dict[int, int]()
    span_id, ttft = numpy_column(batch.spans, "span_id"), batch.ints("ttft_ns")
    for place, calls in _by_place(batch, sent, scope).items():
        beyond, own = _beyond_own(batch, chosen.get(place, []), calls, first)
        starts = batch.start[beyond].tolist()
        for call in (row for row in calls if batch.role[row] == cp.LLM):
            since = bisect.bisect_right(starts, first[call])
            until = bisect.bisect_left(starts, batch.end[call])
            if since < until:
                numbers[call] = (call in own) + until - since
                begun = starts[until - 1] - int(batch.start[call])
                if numbers[call] > 1 and begun > 0:
                    batch.last_began[int(span_id[call])] = begun
                    if 0 <= ttft[call] < begun <= batch.end[call] - batch.start[call] - ttft[call]:
                        later[call] = begun + int(ttft[call])
    batch.spans = duplicate_spans.replaced(
        duplicate_spans.replaced(batch.spans, "attempts", numbers), "ttft_ns", later
    )


def _choices(batch: Batch) -> IntArray:
    """The rows in which a gateway chooses where a call goes."""
    rows = np.flatnonzero((batch.role == cp.PLAIN) & (batch.ints("stage") == cp.QUEUE))
    names = batch.spans.column("name").take(pa.array(rows))
    chosen: IntArray = rows[
        pc.or_(pc.equal(names, "router"), pc.starts_with(names, "route ")).to_numpy(
            zero_copy_only=False
        )
    ]
    return chosen


def _sent(batch: Batch) -> tuple[IntArray, IntArray]:
    """The rows that are sent somewhere, but for attempts before the last, and per row when the first of its attempts began."""
    sends = (
        (batch.ints("kind") == CLIENT)
        | (batch.role == cp.LLM)
        | ((batch.role == cp.PLAIN) & (batch.ints("stage") == cp.RETRIEVAL))
    )
    first = batch.start.copy()
    for final, tried in batch.tried_before().items():
        here = [row for row in tried if batch.trace[row] == batch.trace[final]]
        sends[here] = False
        first[final] = batch.start[[final, *here]].min()
    return np.flatnonzero(sends), first


def _by_place(batch: Batch, rows: IntArray, scope: IntArray) -> dict[tuple[int, int], list[int]]:
    """The rows by trace and scope."""
    return grouped(rows, zip(batch.trace[rows].tolist(), scope[rows].tolist(), strict=True))


def _beyond_own(
    batch: Batch, choices: list[int], calls: list[int], first: IntArray
) -> tuple[list[int], set[int]]:
    """The choices that are no call's own, and the calls that have one: the last before them that is nobody's."""
    ahead, left, own = choices[::-1], list[int](), set[int]()
    for call in calls:
        while ahead and batch.start[ahead[-1]] <= first[call]:
            left.append(ahead.pop())
        if left:
            left.pop()
            own.add(call)
    return left + ahead[::-1], own
