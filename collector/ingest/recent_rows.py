"""What arrived in the last few commits? Kept in memory until its traces are assembled, so that most traces need not be read back from the store.

Reading back costs as much as decoding (2 us a span). The rows are those that were stored, in the same columns as sql/quiet_spans.sql gives them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from overrun.collector.arrays import IntArray, WordArray
from overrun.collector.ingest.known_traces import SEED, spot_of
from overrun.collector.process.compiled import njit, read_only
from overrun.collector.store.layout import (
    MAX_SHAPES,
    SHAPE_SCHEMA,
    SPAN_COLUMNS,
    VALUE_COLUMNS,
    New,
)

# Bytes of rows kept. Traces that wait longer are read back. At 80,000 spans a second and a quiet time of 2 s about 50 MB are waiting.
KEPT_BYTES = 64 << 20
_OF_SOURCE = ("service", "instance", "version", "scope_name")
_OF_SHAPE = (
    "kind",
    "status",
    "flags",
    "stage",
    "role",
    "source_id",
    "operation",
    "model",
    "provider",
    "error_type",
    "http_status",
    "route",
    "workload",
)
_OF_VALUES = tuple(name for name in VALUE_COLUMNS if name != "cache_write_tokens")
_TEXTS = ("response_id", "finish_reason", "prefix_hash", "depends_on", "trace_state")
_VALUE_TYPES = {name: pa.string() if name in _TEXTS else pa.int64() for name in _OF_VALUES}
_VALUE_TYPES |= {"temperature": pa.float64(), "streaming": pa.bool_(), "ttft_source": pa.uint8()}


@dataclass(frozen=True, slots=True)
class _Commit:
    batch: int
    spans: pa.Table
    values: pa.Table
    size: int


class Recent:
    """The spans of the last commits. The writer adds, the assembler reads and lets go. Thread-safe."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._lock = threading.Lock()
        self._commits: deque[_Commit] = deque()
        self._kept_bytes = kept_bytes
        self._size = 0
        self._shapes: dict[int, Mapping[str, Any]] = {}
        self._sources: dict[int, Mapping[str, Any]] = {}
        self._from = 0  # the first commit all of whose rows, and of all that follow, are here

    def learn(self, shapes: New, sources: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        """What the numbers in rows to come mean."""
        with self._lock:
            for known in (self._shapes, self._sources):
                if (
                    len(known) > MAX_SHAPES
                ):  # the writer renumbers shapes then, and passes sources with every commit
                    known.clear()
            self._shapes.update(
                {row["shape"]: {name: row[name] for name in _OF_SHAPE} for row in shapes.values()}
            )
            self._sources.update(
                (source_id, {name: row[name] for name in _OF_SOURCE}) for source_id, row in sources
            )

    def add(self, batch: int, spans: pa.Table, values: pa.Table) -> None:
        """Rows of `spans` and `span_values` that commit `batch` stored."""
        spans = spans.select([*SPAN_COLUMNS, "seq", "shape"])
        size = spans.nbytes + values.nbytes
        with self._lock:
            if not self._commits:
                self._from = max(self._from, batch)
            self._commits.append(_Commit(batch, spans, values, size))
            self._size += size
            while self._size > self._kept_bytes:
                self._drop()

    def _drop(self) -> None:
        dropped = self._commits.popleft()
        self._size -= dropped.size
        self._from = dropped.batch + 1

    def let_go(self, before: int) -> None:
        """No trace waits for a commit before this one."""
        with self._lock:
            while self._commits and self._commits[0].batch < before:
                self._drop()

    def first_batch(self) -> int:
        """All spans that came with this commit or later are here."""
        with self._lock:
            return self._from

    def rows(
        self, trace_hi: WordArray, trace_lo: WordArray, first: int, last: int
    ) -> pa.Table | None:
        """Every row of these traces that came with the commits from `first` to `last`: a trace's together, by span id, repeats as they came.

        None if there are none, or if what their numbers mean is forgotten.
        """
        with self._lock:
            commits = [commit for commit in self._commits if first <= commit.batch <= last]
            shapes, sources = dict(self._shapes), dict(self._sources)
        if not commits:
            return None
        spans = pa.concat_tables([c.spans for c in commits]).combine_chunks()
        spans = arranged(spans, trace_hi, trace_lo)
        # By number: several writers' commits come in another order than their numbers.
        values = sorted(
            (c.values for c in commits if c.values.num_rows), key=lambda v: v["seq"][0].as_py()
        )
        columns = {name: spans.column(name) for name in (*SPAN_COLUMNS, "seq")} | _values_of(
            spans, values
        )
        try:
            return pa.table(columns | _meanings(spans.column("shape").to_numpy(), shapes, sources))
        except KeyError:
            return None


def arranged(spans: pa.Table, trace_hi: WordArray, trace_lo: WordArray) -> pa.Table:
    """The rows of these traces, trace after trace, by span id; equal ids stay in their order."""
    hi, lo, span_id = (
        read_only(spans.column(name).to_numpy()) for name in ("trace_hi", "trace_lo", "span_id")
    )
    return spans.take(
        pa.array(_arranged(hi, lo, span_id, read_only(trace_hi), read_only(trace_lo), SEED))
    )


@njit(cache=True, nogil=True)
def _arranged(trace_hi: Any, trace_lo: Any, span_id: Any, of_hi: Any, of_lo: Any, seed: Any) -> Any:
    """The numbers of those rows."""
    wanted, rows = len(of_hi), len(trace_hi)
    size = 16
    while size < 2 * wanted:
        size *= 2
    last = np.uint64(size - 1)
    slots = np.full(size, -1, dtype=np.int64)
    for t in range(wanted):
        spot = spot_of(of_hi[t], of_lo[t], seed)
        while True:
            at = np.int64(spot & last)
            if slots[at] < 0:
                slots[at] = t
                break
            if of_hi[slots[at]] == of_hi[t] and of_lo[slots[at]] == of_lo[t]:
                break
            spot += np.uint64(1)
    trace = np.empty(rows, dtype=np.int64)
    begins = np.zeros(wanted + 1, dtype=np.int64)
    for r in range(rows):
        trace[r] = -1
        if r and trace_hi[r] == trace_hi[r - 1] and trace_lo[r] == trace_lo[r - 1]:
            trace[r] = trace[r - 1]
        else:
            spot = spot_of(trace_hi[r], trace_lo[r], seed)
            while True:
                t = slots[np.int64(spot & last)]
                if t < 0:
                    break
                if of_hi[t] == trace_hi[r] and of_lo[t] == trace_lo[r]:
                    trace[r] = t
                    break
                spot += np.uint64(1)
        if trace[r] >= 0:
            begins[trace[r] + 1] += 1
    for t in range(wanted):
        begins[t + 1] += begins[t]
    order = np.empty(begins[wanted], dtype=np.int64)
    free = begins[:wanted].copy()
    for r in range(rows):
        if trace[r] >= 0:
            order[free[trace[r]]] = r
            free[trace[r]] += 1
    for t in range(wanted):
        first, end = begins[t], begins[t + 1]
        if end - first > 64:
            order[first:end] = order[first:end][
                np.argsort(span_id[order[first:end]], kind="mergesort")
            ]
            continue
        for i in range(first + 1, end):
            row = order[i]
            j = i - 1
            while j >= first and span_id[order[j]] > span_id[row]:
                order[j + 1] = order[j]
                j -= 1
            order[j + 1] = row
    return order


def _values_of(spans: pa.Table, values: list[pa.Table]) -> dict[str, Any]:
    """The columns of `span_values` for each span; null where there is no row."""
    n = spans.num_rows
    empty = {name: pa.nulls(n, _VALUE_TYPES[name]) for name in _OF_VALUES}
    if values:
        table = pa.concat_tables(
            [v.drop_columns(["start_ns"]) for v in values], promote_options="default"
        ).combine_chunks()
        known, wanted = table.column("seq").to_numpy(), spans.column("seq").to_numpy()
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        index = pa.array(at, mask=known[at] != wanted)
        empty |= {
            name: table.column(name).take(index) for name in table.column_names if name in empty
        }
    source = empty["ttft_source"]
    return {**empty, "ttft_source": source.fill_null(0)}


def _meanings(
    codes: IntArray,
    shapes: Mapping[int, Mapping[str, Any]],
    sources: Mapping[int, Mapping[str, Any]],
) -> dict[str, Any]:
    """The columns that the shape of each span stands for."""
    distinct, inverse = np.unique(codes, return_inverse=True)
    rows = [shapes[code] for code in distinct.tolist()]
    index = pa.array(inverse)
    out: dict[str, Any] = {
        name: pa.array([row[name] for row in rows], SHAPE_SCHEMA.field(name).type).take(index)
        for name in _OF_SHAPE
    }
    of_source = [sources[row["source_id"]] for row in rows]
    return out | {
        name: pa.array([row[name] for row in of_source], pa.string()).take(index)
        for name in _OF_SOURCE
    }
