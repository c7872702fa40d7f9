"""Which traces are stored and not yet part of a request? None, unless the last process was ended before it had assembled them."""

from __future__ import annotations

import pyarrow as pa

from overrun.collector.store.answers import fetch_table
from overrun.collector.store.database import BATCH_BITS
from overrun.collector.store.store import Store


def assembled_through(store: Store) -> int:
    """Return the last batch whose traces, and those of all before it, are assembled."""
    return int(store.meta("assembled_through") or 0)


def unassembled(store: Store) -> pa.Table:
    """Return the traces of later batches, one row each: trace_hi, trace_lo and start_ns, when its first such span starts."""
    through = assembled_through(store)
    with store.asking() as cursor:
        return fetch_table(
            cursor,
            "select trace_hi, trace_lo, min(start_ns) as start_ns from ("
            "select trace_hi, trace_lo, start_ns from spans where seq >= $first union all "
            "select trace_hi, trace_lo, time_ns from span_notes where batch > $through) group by all",
            {"first": (through + 1) << BATCH_BITS, "through": through},
        )
