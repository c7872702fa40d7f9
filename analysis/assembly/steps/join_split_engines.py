"""Which engine only prefilled a request that another one decoded? Both are one request."""

from __future__ import annotations

import numpy as np

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly import duplicate_spans
from overrun.analysis.assembly.batch import Batch
from overrun.analysis.assembly.columns import codes_at
from overrun.analysis.assembly.nesting import is_below

# From one engine's last token of a prefill to the other's first look at the request: the cache is sent meanwhile.
MAX_HANDOVER_NS = 30_000_000_000


def join_split_engines(batch: Batch) -> None:
    """Put each prefilling engine's request under the one that decodes: by where they meet, by their request id, or by time."""
    _join_by_place(batch)
    _join_halves(batch)
    _join_siblings(batch)


def _join_by_place(batch: Batch) -> None:
    """Put an engine that only prefills under the one that it meets and that decodes, also across traces (SGLang's bootstrap room)."""
    rows = np.flatnonzero(
        (batch.role == cp.ENGINE) & batch.spans.column("depends_on").is_valid().to_numpy()
    )
    if len(rows) < 2:
        return
    place = codes_at(rows, batch.spans.column("depends_on"))
    prefills = dict(zip(rows.tolist(), batch.only_prefills(rows).tolist(), strict=True))
    for row in (r for r in rows.tolist() if prefills[r]):
        others = [r for r in rows[place[rows] == place[row]].tolist() if not prefills[r]]
        if len(others) != 1 or is_below(others[0], row, batch.parent):
            continue
        if batch.trace[row] != batch.trace[others[0]]:
            if batch.parent[row] >= 0:  # a part of another request
                continue
            batch.trace[batch.trace == batch.trace[row]] = batch.trace[others[0]]
        batch.parent[row] = others[0]
    if (np.diff(batch.trace) < 0).any():
        batch.sort_by_trace()


def _join_halves(batch: Batch) -> None:
    """Make one request of an engine's that only prefills and, after it, another's that decodes, each in a trace of its own under one request id (vLLM).

    No span is around both: the decoding one begins where the prefilling one does, and its first token comes that much later.
    """
    rows = np.flatnonzero(
        (batch.role == cp.ENGINE)
        & (batch.parent < 0)
        & batch.spans.column("response_id").is_valid().to_numpy()
    )
    name = codes_at(rows, batch.spans.column("response_id"))
    rows = rows[np.bincount(name[rows], minlength=1)[name[rows]] > 1]
    if not len(rows):
        return
    only = batch.only_prefills(rows)
    start, ttft = batch.start.copy(), batch.ints("ttft_ns")
    later: dict[int, int] = {}
    for row in rows[only].tolist():
        others = rows[
            ~only & (name[rows] == name[row]) & (batch.trace[rows] != batch.trace[row])
        ].tolist()
        if (
            len(others) != 1
            or not batch.start[row] <= batch.start[others[0]] <= batch.end[row] + MAX_HANDOVER_NS
        ):
            continue
        [decodes] = others
        if ttft[decodes] >= 0:
            later[decodes] = int(ttft[decodes] + batch.start[decodes] - batch.start[row])
        start[decodes] = batch.start[row]
        batch.trace[batch.trace == batch.trace[row]] = batch.trace[decodes]
        batch.parent[row] = decodes
    batch.start, batch.spans = start, duplicate_spans.replaced(batch.spans, "ttft_ns", later)
    if (np.diff(batch.trace) < 0).any():
        batch.sort_by_trace()


def _join_siblings(batch: Batch) -> None:
    """Put a request of an engine that only prefills under the one beside it that waits for its cache and decodes: what goes on there is its prefill."""
    engines = np.flatnonzero((batch.role == cp.ENGINE) & (batch.parent >= 0))
    engines = engines[np.bincount(batch.parent[engines], minlength=1)[batch.parent[engines]] > 1]
    if not len(engines):
        return
    only = batch.only_prefills(engines)
    for row in engines[only].tolist():
        beside = engines[
            ~only
            & (batch.parent[engines] == batch.parent[row])
            & (batch.start[engines] < batch.end[row])
            & (batch.end[engines] >= batch.end[row])
        ]
        if len(beside) == 1:
            batch.parent[row] = beside[0]
