"""Which operation holds each moment of a request, and which part of it? The critical path as rows of (request, operation, where, ms, at)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, get_args

import numpy as np

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly.columns import CLIENT, CONSUMER, PRODUCER, SERVER, int_column
from overrun.analysis.contrast.read import Spans
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray
from overrun.analysis.words.explanation import Where

WHERES: Final = get_args(Where)
ITSELF, BEFORE, BETWEEN, AFTER, QUEUE, TO_FIRST, AFTER_FIRST, EDGE, TRANSFER, UNSEEN = range(10)
# Stages that say which part of a call a piece is; pieces of others are placed by what stands beside them.
_OF_STAGE: Final = {
    cp.QUEUE: QUEUE,
    cp.KV_TRANSFER: TRANSFER,
    cp.PREFILL: TO_FIRST,
    cp.FIRST_TOKEN: TO_FIRST,
    cp.DECODE: AFTER_FIRST,
}


@dataclass(frozen=True)
class Segments:
    """Pieces of critical paths in order of request and time, times in ms.

    `row` is the span that holds a piece, `before` and `after` the child of it that ended there and the one that begins then (-1: none). `place` is a code of
    `places`, whose columns are the codes (service, operation, where, operation beside, side of it, stage, service at the other end of a way).
    """

    request: IntArray
    row: IntArray
    stage: IntArray
    where: IntArray
    before: IntArray
    after: IntArray
    at: FloatArray
    ms: FloatArray
    place: IntArray
    places: IntArray


def segments(spans: Spans, until_ms: FloatArray | None = None) -> Segments:
    """Return the pieces of the paths of judged requests; with `until_ms` up to so long after each request's begin."""
    paths = spans.paths
    row = paths.piece_row
    top = spans.root[row]
    request = spans.request[top]
    at = (paths.piece_from - spans.origin_ns) / 1e6
    to = (paths.piece_to - spans.origin_ns) / 1e6
    if until_ms is not None:
        to = np.minimum(to, spans.start[top] + until_ms[np.maximum(request, 0)])
    kept = np.flatnonzero((request >= 0) & (to > at) & (paths.piece_stage != cp.WAIT_USER))
    order = kept[np.lexsort((at[kept], request[kept]))]
    row, request = row[order], request[order]
    before, after = _beside(paths.parent, row, request)
    stage = paths.piece_stage[order]
    where = _where(spans, row, stage, before, after)
    beside = np.where(after >= 0, after, before)
    # Another attempt of the same call, or what the span's own parts are, is no neighbour with a name of its own.
    named = np.isin(where, (BEFORE, BETWEEN, AFTER, EDGE)) & (beside >= 0)
    key = np.column_stack(
        [
            spans.service[row],
            spans.operation[row],
            where,
            np.where(named, spans.operation[beside], -1),
            np.where(where == EDGE, np.where(after >= 0, BEFORE, AFTER), where),
            stage,
            np.where(named & (where == EDGE), spans.service[beside], -1),
        ]
    )
    places, place = np.unique(key, axis=0, return_inverse=True)
    return Segments(
        request,
        row,
        stage,
        where,
        before,
        after,
        at[order],
        (to - at)[order],
        place.ravel(),
        places,
    )


def _beside(parent: IntArray, row: IntArray, request: IntArray) -> tuple[IntArray, IntArray]:
    """Per piece the child of its span that held the piece before it, and the one that holds the next one; -1 where that is no child's."""
    same = request[1:] == request[:-1]
    none = np.full(1, -1)
    last = np.concatenate([none, np.where(same, row[:-1], -1)])
    following = np.concatenate([np.where(same, row[1:], -1), none])
    return _child_towards(parent, row, last), _child_towards(parent, row, following)


def _child_towards(parent: IntArray, above: IntArray, below: IntArray) -> IntArray:
    """The child of each span `above` that `below` is or lies in; -1 where it lies elsewhere."""
    found = np.full(len(above), -1, dtype=np.int64)
    at = below.copy()
    while True:
        looking = np.flatnonzero((at >= 0) & (found < 0))
        if not len(looking):
            return found
        up = parent[at[looking]]
        met = up == above[looking]
        found[looking[met]] = at[looking[met]]
        at[looking] = np.where(met, -1, up)


def _where(
    spans: Spans, row: IntArray, stage: IntArray, before: IntArray, after: IntArray
) -> IntArray:
    """Which part of its span each piece is."""
    where = np.where(
        before >= 0, np.where(after >= 0, BETWEEN, AFTER), np.where(after >= 0, BEFORE, ITSELF)
    )
    where[is_edge(spans, row, before) | is_edge(spans, row, after)] = EDGE
    for code, part in _OF_STAGE.items():
        where[stage == code] = part
    return where


def is_edge(spans: Spans, row: IntArray, child: IntArray) -> BoolArray:
    """Whether what lies between a span and its child is a way: from who asks (client) to who answers (server, engine) in another process."""
    kind, role = int_column(spans.table, "kind"), spans.paths.role
    other = np.maximum(child, 0)
    asks = (kind[row] == CLIENT) | (kind[row] == PRODUCER) | (role[row] == cp.LLM)
    answers = (kind[other] == SERVER) | (kind[other] == CONSUMER) | (role[other] == cp.ENGINE)
    elsewhere = spans.process[row] != spans.process[other]
    out: BoolArray = (child >= 0) & asks & answers & elsewhere
    return out


def per_request(found: Segments, requests: int) -> FloatArray:
    """Milliseconds of each request at each place: shape (requests, places); a row sums to what is judged of it."""
    flat = np.bincount(
        found.request * len(found.places) + found.place,
        weights=found.ms,
        minlength=requests * len(found.places),
    )
    return flat.astype(np.float64).reshape(requests, len(found.places))
