"""Which engine span served which client call? By the answer's id, also across traces, else by time among its siblings."""

from __future__ import annotations

import numpy as np

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly import duplicate_spans
from overrun.analysis.assembly.batch import Batch
from overrun.analysis.assembly.columns import ABSENT, ERROR, codes, numpy_column
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
        _join_siblings(
            engines,
            clients,
            names,
            batch.parent,
            batch.start,
            batch.end,
            batch.role,
            numpy_column(batch.spans, "status") == ERROR,
        )
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


def _join_siblings(
    engines: IntArray,
    clients: IntArray,
    names: IntArray,
    parent: IntArray,
    start: IntArray,
    end: IntArray,
    role: IntArray,
    failed: BoolArray,
) -> None:
    """An engine span beside its client call (context injected by hand) goes under it, if exactly one sibling call encloses it in time.

    If none does, exactly one that failed meanwhile, without an engine's span of its own, gave it up: engines write on for clients that left. Clocks
    are a little off: first come those that a call encloses as told, and of what is left a call that has none yet and nearly encloses it. One whose answer has
    another name (`names`, absent where none is told) was rather asked by a call that failed, and never by one whose own engine's span is there by its name.
    """
    loose = engines[parent[engines] >= 0]
    loose = loose[role[parent[loose]] != cp.LLM]
    if not len(loose):
        return
    by_parent: dict[int, list[int]] = {}
    for client in clients.tolist():
        if parent[client] >= 0:
            by_parent.setdefault(int(parent[client]), []).append(client)
    served = set(parent[engines].tolist())
    by_name = set(
        parent[
            engines[
                (parent[engines] >= 0)
                & (names[engines] != ABSENT)
                & (names[engines] == names[parent[engines]])
            ]
        ].tolist()
    )
    for nearly in (False, True):
        for engine in loose[role[parent[loose]] != cp.LLM].tolist():
            beside = by_parent.get(int(parent[engine]), [])
            slack = duplicate_spans.CLOCK_SLACK_NS + nearly * (end[engine] - start[engine]) // 20
            around = [
                c
                for c in beside
                if start[c] - slack <= start[engine] and end[engine] <= end[c] + slack
            ]
            others = [
                c
                for c in around
                if ABSENT not in (names[engine], names[c]) and names[engine] != names[c]
            ]
            if nearly and (not around or (len(around) == 1 and (around[0] in served or others))):
                left = [
                    c
                    for c in beside
                    if failed[c]
                    and start[c] - slack <= start[engine] < end[c] < end[engine]
                    and c not in served
                ]
                around = (
                    left
                    if len(left) == 1
                    else [c for c in around if c not in others or c not in by_name]
                )
            if len(around) == 1:
                parent[engine] = around[0]
                served.add(around[0])
