"""Which served request is within which? Server spans that two instrumentations report, and gateways beside the call that they were sent for."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly import duplicate_spans
from overrun.analysis.assembly.batch import MOST_AT_ONCE, Batch
from overrun.analysis.assembly.columns import (
    ABSENT,
    ERROR,
    SERVER,
    codes,
    codes_at,
    grouped,
    numpy_column,
)
from overrun.analysis.assembly.nesting import is_below
from overrun.analysis.words.arrays import IntArray

_LOOKED_UP = "cache.get llm_response"  # LiteLLM (v2) reports no call where its cache had the answer
_DEEP = 32  # spans from a gateway's answer up to the call that it is for


def nest_servers(batch: Batch) -> None:
    """Put what a server tells of one request twice (FastAPI's own span and LiteLLM's, both from their caller on) into each other, and what a gateway did
    beside the call that it was sent for (the context was handed on by hand) into that call. An answer that it had stored makes the call none."""
    s = batch.spans
    servers = np.flatnonzero(
        (batch.ints("kind") == SERVER)
        & (numpy_column(s, "parent_id") != 0)
        & (batch.role == cp.CONTAINER)
    )
    if not (_told_twice(batch, servers) or _from_elsewhere(batch, servers)):
        return
    process = codes(s.column("service"), s.column("instance"))
    servers = _one_inside_another(batch, servers, process)
    remote = servers[
        (batch.parent[servers] >= 0) & (process[batch.parent[servers]] != process[servers])
    ]
    if not len(remote):
        return
    kept = (batch.role == cp.PLAIN) & (batch.ints("stage") == cp.GATEWAY)
    answers = np.flatnonzero(
        ((batch.role == cp.LLM) | kept) & np.isin(batch.trace, batch.trace[remote])
    )
    answer = codes_at(answers, s.column("response_id"))
    answer[answers[~s.column("response_id").take(pa.array(answers)).is_valid().to_numpy()]] = ABSENT
    wanted, inside = set(remote.tolist()), dict[int, list[int]]()
    for row in answers.tolist():
        for above in _around_it(batch, row):
            if above in wanted:
                inside.setdefault(above, []).append(row)
    _into_calls(
        batch,
        [
            row
            for row in remote.tolist()
            if row in inside and batch.role[batch.parent[row]] != cp.LLM
        ],
        inside,
        process,
        answer,
    )
    _drop_stored(batch, answers[kept[answers]], answers[~kept[answers]], process, answer)


def _told_twice(batch: Batch, servers: IntArray) -> bool:
    """Whether any two of these spans have the same caller."""
    caller = numpy_column(batch.spans, "parent_id")
    order = servers[np.lexsort((caller[servers], batch.trace[servers]))]
    return bool(((np.diff(batch.trace[order]) == 0) & (np.diff(caller[order]) == 0)).any())


def _from_elsewhere(batch: Batch, servers: IntArray) -> bool:
    """Whether any of these spans has a parent of another source."""
    above, source = batch.parent[servers], numpy_column(batch.spans, "source_id")
    return bool(((above >= 0) & (source[above] != source[servers])).any())


def _drop_stored(
    batch: Batch, kept: IntArray, given: IntArray, process: IntArray, answer: IntArray
) -> None:
    """Make calls containers whose answer a gateway had stored: among the spans that it kept of them is that answer, or a look into the cache, and no call
    that it made itself (`given`) is behind it."""
    names = batch.spans.column("name").take(pa.array(kept))
    looked = pc.equal(names, _LOOKED_UP).to_numpy()
    failed = numpy_column(batch.spans, "status") == ERROR
    called: set[int] = set()
    for row in kept[looked | (answer[kept] >= 0)].tolist():
        for above in _around_it(batch, row):
            theirs = (
                batch.role[above] == cp.LLM and process[above] != process[row] and not failed[above]
            )
            if theirs and (answer[row] == answer[above] or ABSENT in (answer[row], answer[above])):
                called.add(above)
    for row in given.tolist():
        if row not in called:
            called -= set(_around_it(batch, row))
    batch.make_containers(list(called))


def _around_it(batch: Batch, row: int) -> Iterator[int]:
    """What a gateway's answer is in: its own steps, its server's spans and the call that it is for."""
    return itertools.islice(duplicate_spans.above(row, batch.parent), _DEEP)


def _one_inside_another(batch: Batch, servers: IntArray, process: IntArray) -> IntArray:
    """Nest these spans, where two instrumentations of one process have the same caller and the later one lies in the earlier one; the outermost of them."""
    s = batch.spans
    above, scope = numpy_column(s, "parent_id"), codes_at(servers, s.column("scope_name"))
    order = servers[
        np.lexsort(
            (
                batch.start[servers] - batch.end[servers],
                batch.start[servers],
                process[servers],
                above[servers],
                batch.trace[servers],
            )
        )
    ]
    same = np.zeros(len(order), dtype=bool)
    same[1:] = np.logical_and.reduce(
        [of[order[1:]] == of[order[:-1]] for of in (batch.trace, above, process)]
    )
    around: list[int] = []
    nested = np.zeros(len(order), dtype=bool)
    for at in np.flatnonzero(same).tolist():
        row = int(order[at])
        around = around if at and same[at - 1] else [int(order[at - 1])]
        until = batch.end[row] - batch.clock_slack(row)
        fits = [
            o
            for o in around[-MOST_AT_ONCE:]
            if scope[o] != scope[row]
            and until <= batch.end[o]
            and not is_below(o, row, batch.parent)
        ]
        if fits:
            around.remove(fits[-1])
            batch.parent[row], nested[at] = fits[-1], True
        else:
            around.append(row)
    return order[~nested]


def _into_calls(
    batch: Batch, rows: list[int], inside: dict[int, list[int]], process: IntArray, answer: IntArray
) -> None:
    """Put these served requests into the call beside them that has an answer of theirs, else into the only one around them in time that none was put into,
    or that failed while they went on."""
    calls = batch.by_start(
        np.flatnonzero((batch.role == cp.LLM) & np.isin(batch.parent, batch.parent[rows]))
    )
    beside = grouped(calls, batch.parent[calls].tolist())
    starts = {above: batch.start[of].tolist() for above, of in beside.items()}
    told = grouped(calls, zip(batch.parent[calls].tolist(), answer[calls].tolist(), strict=True))
    failed, taken = numpy_column(batch.spans, "status") == ERROR, set[int]()
    for by_id in (True, False):
        for row in [row for row in rows if batch.role[batch.parent[row]] != cp.LLM]:
            above, slack = int(batch.parent[row]), batch.clock_slack(row)
            off = duplicate_spans.into(row, above, batch.start, batch.end)
            off = (
                off if abs(off) > slack else 0
            )  # by another clock: where it would be in what it is in
            start, end = batch.start[row] + off, batch.end[row] + off
            if by_id:
                ids = {int(answer[a]) for a in inside[row]} - {ABSENT}
                begun = [c for one in ids for c in told.get((above, one), [])[:MOST_AT_ONCE]]
            else:
                last = bisect.bisect_right(starts.get(above, ()), start + slack)
                begun = beside.get(above, [])[max(0, last - MOST_AT_ONCE) : last]
            begun = [
                c
                for c in begun
                if process[c] != process[row]
                and ((by_id and off) or batch.start[c] - slack <= start <= batch.end[c])
            ]
            free = [c for c in begun if c not in taken]
            found = (
                begun
                if by_id
                else [c for c in free if end <= batch.end[c] + slack]
                or [c for c in free if failed[c]]
            )
            if len(found) == 1 and not is_below(found[0], row, batch.parent):
                batch.parent[row] = found[0]
                taken.add(found[0])
