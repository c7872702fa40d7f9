"""Which engine span served which client call? By the answer's id, also across traces, else by time among its siblings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly import duplicate_spans
from overrun.analysis.assembly.batch import Batch
from overrun.analysis.assembly.columns import ABSENT, ERROR, codes, grouped, numpy_column
from overrun.analysis.assembly.nesting import is_below
from overrun.analysis.words.arrays import BoolArray, IntArray


def join_engines(batch: Batch) -> None:
    """Put engine spans under their client calls, also across traces, and bring the rows of each resulting request together."""
    engines = np.flatnonzero(batch.role == cp.ENGINE)
    clients = np.flatnonzero(batch.role == cp.LLM)
    if len(engines) and len(clients):
        response = codes(batch.spans.column("response_id"))
        known = batch.spans.column("response_id").is_valid().to_numpy()
        _join_by_id(
            engines[known[engines]],
            clients[known[clients]],
            response,
            batch.parent,
            batch.trace,
            batch.start,
            batch.end,
        )
        names = np.where(known, response, ABSENT)
        _join_siblings(batch, engines, clients, names)
        if (np.diff(batch.trace) < 0).any():
            batch.sort_by_trace()


def _join_by_id(
    engines: IntArray,
    clients: IntArray,
    response: IntArray,
    parent: IntArray,
    trace: IntArray,
    start: IntArray,
    end: IntArray,
) -> None:
    """Engine spans whose request id is a client call's response id go under that call; their own trace moves along. In place.

    Of several calls with that id, each in the other's, the shortest is the one that asked the engine.
    """
    order = clients[np.lexsort(((end - start)[clients], response[clients]))]
    at = np.searchsorted(response[order], response[engines])
    at_safe = np.minimum(at, len(order) - 1) if len(order) else at
    found = (
        (response[order[at_safe]] == response[engines])
        if len(order)
        else np.zeros(len(engines), dtype=bool)
    )
    for engine, client in zip(engines[found].tolist(), order[at_safe[found]].tolist(), strict=True):
        if is_below(engine, client, parent):
            continue
        if trace[engine] != trace[client]:
            # Only a trace that this engine span roots is the engine's own; the rest of it comes along.
            if parent[engine] >= 0:
                continue
            trace[trace == trace[engine]] = trace[client]
        if not is_below(client, engine, parent):
            parent[engine] = client


def _join_siblings(batch: Batch, engines: IntArray, clients: IntArray, names: IntArray) -> None:
    """An engine span beside its client call (context injected by hand) goes under it, if exactly one sibling call encloses it in time.

    If none does, exactly one that failed meanwhile, without an engine's span of its own, gave it up: engines write on for clients that left. Clocks
    are a little off: first come those that a call encloses as told, and of what is left a call that has none yet and nearly encloses it. One whose answer has
    another name (`names`, absent where none is told) was rather asked by a call that failed, and never by one whose own engine's span is there by its name.
    """
    parent, role = batch.parent, batch.role
    inside = engines[parent[engines] >= 0]
    loose = inside[role[parent[inside]] != cp.LLM]
    if not len(loose):
        return
    clients = clients[parent[clients] >= 0]
    beside = grouped(clients, parent[clients].tolist())
    named = (names[inside] != ABSENT) & (names[inside] == names[parent[inside]])
    sought = _Sought(
        batch,
        names,
        numpy_column(batch.spans, "status") == ERROR,
        served=set(parent[engines].tolist()),
        by_name=set(parent[inside[named]].tolist()),
    )
    for nearly in (False, True):
        for engine in loose[role[parent[loose]] != cp.LLM].tolist():
            among = beside.get(int(parent[engine]), [])
            found = sought.nearly(engine, among) if nearly else sought.around(engine, among)
            if len(found) == 1:
                parent[engine] = found[0]
                sought.served.add(found[0])


@dataclass(frozen=True)
class _Sought:
    """Whose are engine spans? `served` are calls that have one, `by_name` those that have it by the name of its answer."""

    batch: Batch
    names: IntArray
    failed: BoolArray
    served: set[int]
    by_name: set[int]

    def around(self, engine: int, among: list[int], part: int = 0) -> list[int]:
        """The calls that enclose an engine span in time, but for the clocks' slack and `part` (ns)."""
        start, end = self.batch.start, self.batch.end
        slack = duplicate_spans.CLOCK_SLACK_NS + part
        return [
            c for c in among if start[c] - slack <= start[engine] and end[engine] <= end[c] + slack
        ]

    def nearly(self, engine: int, among: list[int]) -> list[int]:
        """The calls that nearly enclose it, or the one that gave it up."""
        start, end, names = self.batch.start, self.batch.end, self.names
        part = int(end[engine] - start[engine]) // 20
        around = self.around(engine, among, part)
        others = [
            c
            for c in around
            if ABSENT not in (names[engine], names[c]) and names[engine] != names[c]
        ]
        if around and (len(around) > 1 or not (around[0] in self.served or others)):
            return around
        slack = duplicate_spans.CLOCK_SLACK_NS + part
        left = [
            c
            for c in among
            if self.failed[c]
            and start[c] - slack <= start[engine] < end[c] < end[engine]
            and c not in self.served
        ]
        if len(left) == 1:
            return left
        return [c for c in around if c not in others or c not in self.by_name]
