"""Which texts does a request take from its root? Route, workload, tenant, session and user, else those of the first span that has one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.analysis.assembly.batch import Batch
from overrun.analysis.assembly.walk import Walk
from overrun.analysis.words.arrays import IntArray

ROOT_TEXT = ("workload", "tenant", "session", "user_hash")


def routes(batch: Batch, walk: Walk) -> pa.Array:
    """The route of each trace: its root's, else its root's name; an engine alone has none of these.

    UUIDs become a star: they tell one run from another (CrewAI puts them into its spans' names), not what ran.
    """
    rows = pa.array(walk.paths.root)
    told, name = (batch.spans.column(c).combine_chunks().take(rows) for c in ("route", "name"))
    routes = pc.coalesce(
        told, pc.if_else(pa.array(walk.engine_only), pa.scalar(None, pa.string()), name)
    ).dictionary_encode()
    return pc.replace_substring_regex(
        routes.dictionary, "(?i)[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", "*"
    ).take(routes.indices)


def any_of_trace(batch: Batch, walk: Walk, column: str) -> pa.Array:
    """The root's text, else the first one that any span of the trace has."""
    values = batch.spans.column(column).combine_chunks()
    root = walk.paths.root
    first = first_known(values, batch.trace)
    pick = np.where(
        values.is_valid().to_numpy(zero_copy_only=False)[root], root, first[: len(root)]
    )
    return values.take(pa.array(pick, mask=pick < 0))


def first_known(values: pa.Array, trace: IntArray) -> IntArray:
    """The first row of each trace that has a value, -1 for none."""
    known = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    first = np.full(int(trace.max()) + 1, -1, dtype=np.int64)
    first[trace[known[::-1]]] = known[::-1]
    return first
