"""Whose request is it, and how did it end? Service, route, model, tenant and error of each trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.analysis.assembly.batch import TURN, Batch
from overrun.analysis.assembly.calls import Calls
from overrun.analysis.assembly.columns import CONSUMER, ERROR, SERVER, numpy_column
from overrun.analysis.assembly.root_texts import ROOT_TEXT, any_of_trace, routes
from overrun.analysis.assembly.trace_state import sampling_of
from overrun.analysis.assembly.walk import Walk
from overrun.analysis.words.arrays import BoolArray, IntArray

# OTLP span flags: bit 8 says that bit 9 ("the parent is in another process") is known.
_HAS_REMOTE, _IS_REMOTE = 0x100, 0x200
_HTTP_ERROR = 400


def request_identity(
    batch: Batch, walk: Walk, calls: Calls, answer: IntArray, server: BoolArray
) -> dict[str, Any]:
    """Who the request was and how it ended."""
    s, root = batch.spans, walk.paths.root
    rows = pa.array(root)
    last = np.maximum(answer, 0)
    last_row = pa.array(
        np.where(answer >= 0, calls.row[last], 0)
        if len(calls.row)
        else np.zeros(len(root), dtype=np.int64),
        mask=answer < 0,
    )

    def of(column: str, index: pa.Array) -> pa.Array:
        return s.column(column).combine_chunks().take(index)

    alone = walk.engine_only
    status = batch.ints("http_status")[root]
    failed = (numpy_column(s, "status")[root] == ERROR) | (status >= _HTTP_ERROR)
    if len(calls.row):
        failed |= (answer >= 0) & calls.failed[last]
    sampling, weight = sampling_of(of("trace_state", rows))
    return {
        "trace_hi": of("trace_hi", rows),
        "trace_lo": of("trace_lo", rows),
        "root_span_id": of("span_id", rows),
        "turn_span_id": batch.turn_ids(root),
        "service": pc.fill_null(of("service", rows), "unknown_service"),
        "instance": of("instance", rows),
        "version": of("version", rows),
        "route": routes(batch, walk),
        "name": of("name", rows),
        "model": _of_calls(calls, "model", answer, len(root)),
        "provider": _of_calls(calls, "provider", answer, len(root)),
        **{column: any_of_trace(batch, walk, column) for column in ROOT_TEXT},
        # What the failed call says (RateLimitError) tells more than what the root makes of it (500).
        "error": failed,
        "error_type": pc.if_else(
            pa.array(failed),
            pc.coalesce(of("error_type", last_row), of("error_type", rows)),
            pa.scalar(None, pa.string()),
        ),
        "http_status": of("http_status", rows),
        "complete": (numpy_column(s, "parent_id")[root] == 0)
        | _called_from_elsewhere(batch, root)
        | alone
        | (batch.turn[root] == TURN),
        "server_root": server,
        "engine_only": alone,
        "sampling": sampling,
        "sample_weight": weight,
    }


def _called_from_elsewhere(batch: Batch, root: IntArray) -> BoolArray:
    """Whether the parents of these spans are in another process: by their flags, else by their kind."""
    flags, kind = batch.ints("flags")[root], numpy_column(batch.spans, "kind")[root]
    remote: BoolArray = np.where(
        (flags & _HAS_REMOTE) != 0, (flags & _IS_REMOTE) != 0, (kind == SERVER) | (kind == CONSUMER)
    )
    return remote


def _of_calls(calls: Calls, column: str, answer: IntArray, traces: int) -> pa.Array:
    """A text of the answering call, else of any call of the trace."""
    values = calls.text(column)
    known = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))[::-1]
    pick = np.full(traces, -1, dtype=np.int64)
    pick[calls.trace[known]] = known
    has = (answer >= 0) & np.isin(answer, known)
    pick = np.where(has, answer, pick)
    return values.take(pa.array(pick, mask=pick < 0))
