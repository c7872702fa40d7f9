"""Which requests to a model over HTTP or RPC are its calls? Those that no span of a call encloses or repeats: nobody else reports them."""

from __future__ import annotations

import numpy as np

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.assembly import duplicate_spans
from overrun.analysis.assembly.batch import Batch
from overrun.analysis.assembly.columns import codes_at, grouped
from overrun.analysis.assembly.nesting import calls_inside, under
from overrun.analysis.words.arrays import BoolArray, IntArray
from overrun.collector.process.compiled import read_only

_CALLS = (cp.LLM, cp.ENGINE)


def count_model_requests(batch: Batch) -> None:
    """Make model calls of a client's requests to models (collector/normalise/model_endpoints.toml) that stand for themselves.

    One that is in a call's span, or has one in it, is its way over the network. One beside a call's span of the same process that lasts as long, and has no
    request in it, repeats that. Of requests in one another the inner one is the call: the outer one goes to a gateway, or to the same client's other layer.
    """
    sent = batch.ints("role")
    asked = sent == cp.MODEL_REQUEST
    asks = np.flatnonzero(asked)
    if not len(asks):
        return
    # A call that another one reports as well, or that a cache answered, is none any more: as it was sent it is one.
    calls = np.flatnonzero(np.isin(batch.role, _CALLS) | np.isin(sent, _CALLS))
    calls = calls[np.isin(batch.trace[calls], batch.trace[asks])]
    with_asks, with_calls = _holding(batch, asks), _holding(batch, calls)
    below = np.zeros(len(asked), dtype=np.bool_)
    below[calls] = True
    alone = asks[~with_asks[asks] & ~with_calls[asks] & ~under(batch.parent, asks, below)]
    free = calls[~with_asks[calls]]
    if len(free) and len(alone):
        alone = alone[~_repeated(batch, alone, free)]
    if len(alone):
        batch.role = batch.role.copy()
        batch.role[alone] = cp.LLM
        batch.spans = duplicate_spans.replaced(
            batch.spans, "stage", dict.fromkeys(alone.tolist(), cp.GENERATION)
        )


def _holding(batch: Batch, rows: IntArray) -> BoolArray:
    """Which spans have one of these rows somewhere in them."""
    holds: BoolArray = calls_inside(read_only(batch.parent), read_only(rows)) > 0
    return holds


def _repeated(batch: Batch, asks: IntArray, calls: IntArray) -> BoolArray:
    """Which of these requests one of these calls of the same process lasts as long as, or the other way round."""
    both = np.concatenate([asks, calls])
    process = codes_at(both, *(batch.spans.column(name) for name in ("service", "instance")))
    places = list(zip(batch.trace[calls].tolist(), process[calls].tolist(), strict=True))
    beside = grouped(calls, places)
    out = np.zeros(len(asks), dtype=np.bool_)
    for i, row in enumerate(asks.tolist()):
        rows = np.array(beside.get((int(batch.trace[row]), int(process[row])), []), dtype=np.int64)
        slack = batch.clock_slack(row)
        start, end = batch.start[row], batch.end[row]
        around = (batch.start[rows] <= start + slack) & (batch.end[rows] >= end - slack)
        inside = (batch.start[rows] >= start - slack) & (batch.end[rows] <= end + slack)
        out[i] = bool((around | inside).any())
    return out
