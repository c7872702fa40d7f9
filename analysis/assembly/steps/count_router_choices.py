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


def count_router_choices(batch: Batch) -> None:
    """Count how often a gateway chose where a call goes until it ended (LiteLLM's `route`), and its first token from the last choice on.

    Each call follows a choice of its own; what is chosen beyond that, within a call or between its attempts, is another attempt that has no span. A first
    token that is told from its attempt on would lie before that attempt.
    """
    s = batch.spans
    choices = np.flatnonzero((batch.role == cp.PLAIN) & (batch.ints("stage") == cp.QUEUE))
    names = s.column("name").take(pa.array(choices))
    choices = choices[
        pc.or_(pc.equal(names, "router"), pc.starts_with(names, "route ")).to_numpy(
            zero_copy_only=False
        )
    ]
    if not len(choices):
        return
    scope, kind = codes(s.column("scope_name")), batch.ints("kind")
    sends = (
        (kind == CLIENT)
        | (batch.role == cp.LLM)
        | ((batch.role == cp.PLAIN) & (batch.ints("stage") == cp.RETRIEVAL))
    )
    first = batch.start.copy()
    for final, tried in batch.tried_before().items():
        here = [row for row in tried if batch.trace[row] == batch.trace[final]]
        sends[here] = False
        first[final] = batch.start[[final, *here]].min()
    sent = np.flatnonzero(
        sends & np.isin(batch.trace, batch.trace[choices]) & np.isin(scope, scope[choices])
    )
    ttft, later, numbers, span_id = (
        batch.ints("ttft_ns"),
        dict[int, int](),
        dict[int, int](),
        numpy_column(s, "span_id"),
    )
    choices, sent = batch.by_start(choices), sent[np.argsort(first[sent], kind="stable")]
    chosen = grouped(
        choices, zip(batch.trace[choices].tolist(), scope[choices].tolist(), strict=True)
    )
    for place, calls in grouped(
        sent, zip(batch.trace[sent].tolist(), scope[sent].tolist(), strict=True)
    ).items():
        ahead, left, own = chosen.get(place, [])[::-1], list[int](), set[int]()
        for call in calls:  # the choice before a call is its own
            while ahead and batch.start[ahead[-1]] <= first[call]:
                left.append(ahead.pop())
            if left:
                left.pop()
                own.add(call)
        left += ahead[::-1]
        starts = batch.start[left].tolist()
        for call in (row for row in calls if batch.role[row] == cp.LLM):
            since, until = (
                bisect.bisect_right(starts, first[call]),
                bisect.bisect_left(starts, batch.end[call]),
            )
            if since >= until:
                continue
            numbers[call] = (call in own) + until - since
            begun = starts[until - 1] - int(batch.start[call])
            if begun <= 0 or numbers[call] < 2:
                continue
            batch.last_began[int(span_id[call])] = begun
            if (
                0 <= ttft[call] < begun
                and begun + ttft[call] <= batch.end[call] - batch.start[call]
            ):
                later[call] = begun + int(ttft[call])
    batch.spans = duplicate_spans.replaced(
        duplicate_spans.replaced(s, "attempts", numbers), "ttft_ns", later
    )
