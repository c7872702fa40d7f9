"""How are columns of spans read? Arrow columns to integer arrays, codes for texts, and the numbers that OTLP gives to kinds and statuses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.analysis.words.arrays import IntArray

_K = TypeVar("_K")
ABSENT = -1
ERROR, INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = 2, 1, 2, 3, 4, 5


def numpy_column(table: pa.Table, column: str) -> Any:
    return table.column(column).to_numpy()


def int_column(table: pa.Table, column: str) -> IntArray:
    """An integer column with ABSENT for null."""
    values = pc.cast(table.column(column), pa.int64()).combine_chunks()
    if not len(values):
        return np.zeros(0, dtype=np.int64)
    out: IntArray = np.frombuffer(
        values.buffers()[1], dtype=np.int64, count=len(values), offset=8 * values.offset
    )
    return (
        np.where(values.is_valid().to_numpy(zero_copy_only=False), out, ABSENT)
        if values.null_count
        else out
    )


def codes(*columns: pa.ChunkedArray) -> IntArray:
    """One code per distinct combination of text columns; null is a value of its own."""
    out = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        encoded = pc.fill_null(column, "").combine_chunks().dictionary_encode()
        out = out * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy(zero_copy_only=False)
    return out


def codes_at(rows: IntArray, *columns: pa.ChunkedArray) -> IntArray:
    """As `codes`, of a few rows; ABSENT elsewhere."""
    out = np.full(len(columns[0]), ABSENT, dtype=np.int64)
    out[rows] = codes(*(column.take(pa.array(rows)) for column in columns))
    return out


def clock_domains(spans: pa.Table) -> IntArray:
    """A code per service and instance: which clock a span was taken with. Looked up once per source, of which there are few."""
    sources = spans.column("source_id").combine_chunks().dictionary_encode()
    of_row = sources.indices.to_numpy(zero_copy_only=False)
    first = np.empty(len(sources.dictionary), dtype=np.int64)
    first[of_row[::-1]] = np.arange(len(of_row) - 1, -1, -1)
    domains: IntArray = codes(
        *(spans.column(name).take(pa.array(first)) for name in ("service", "instance"))
    )[of_row]
    return domains


def grouped(rows: IntArray, keys: Iterable[_K]) -> dict[_K, list[int]]:
    """The rows by their keys, in their order."""
    out: dict[_K, list[int]] = {}
    for row, key in zip(rows.tolist(), keys, strict=True):
        out.setdefault(key, []).append(row)
    return out
