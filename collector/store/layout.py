"""How do normalised rows lie in the store? Flat Arrow columns in; the rows of `spans`, `span_values` and new `shapes` out (schema/004_layout.sql).

What takes few values together (source, kind, stage, model, the attribute keys ...) becomes one number, the shape; what few spans have goes to
a table of its own; attribute values are packed into one text. Each of the three halves what DuckDB spends on a span, or more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.collector.arrays import BoolArray, WordArray
from overrun.collector.normalise.packed_texts import text_hash

SPAN_COLUMNS = (
    "trace_hi",
    "trace_lo",
    "span_id",
    "parent_id",
    "start_ns",
    "duration_ns",
    "name",
    "session",
    "tenant",
    "user_hash",
)
SHAPE_NUMBERS = ("source_id", "kind", "status", "flags", "stage", "role", "http_status")
SHAPE_TEXTS = ("dialect", "operation", "model", "provider", "route", "workload", "error_type")
VALUE_COLUMNS = (
    "response_id",
    "finish_reason",
    "prefix_hash",
    "depends_on",
    "trace_state",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "max_tokens",
    "temperature",
    "streaming",
    "turn",
    "attempts",
    "ttft_ns",
    "ttft_source",
    "queue_ns",
    "prefill_ns",
    "decode_ns",
    "engine_e2e_ns",
    "chunks",
    "chunk_span_ns",
    "chunk_gap_max_ns",
    "usable_ns",
)
# Shapes remembered (about 100 bytes each). Beyond it they are forgotten, too.
MAX_SHAPES = 100_000
OTHER = "(other)"  # what is too much, together

SHAPE_SCHEMA = pa.schema(
    [
        ("shape", pa.int32()),
        ("source_id", pa.uint64()),
        ("kind", pa.uint8()),
        ("status", pa.uint8()),
        ("flags", pa.uint32()),
        ("stage", pa.uint8()),
        ("role", pa.uint8()),
        ("http_status", pa.uint16()),
        *((name, pa.string()) for name in SHAPE_TEXTS),
        ("keys", pa.list_(pa.string())),
    ]
)


New = dict[int, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows to append, by table; `new` has the rows of the new shapes by their hash."""

    spans: pa.Table
    span_values: pa.Table
    new: New


class Shapes:
    """Numbers shapes, and remembers those of the store by their hash. What was stored before the start gets another number when seen again."""

    def __init__(
        self,
        last: int,
        allowed: Callable[[int], int] = lambda wanted: wanted,
        folded: Callable[[int], None] = lambda spans: None,
        reserve: Callable[[int], int] | None = None,
    ) -> None:
        """`allowed` says how many of some new shapes may come. The spans of all others lose their attributes, and names that no shape has yet; `folded` is called
        with their number. `reserve` gives the first of so many numbers to use next, where several writers number the shapes of one store."""
        self._reserve = reserve
        self._numbers: dict[int, int] = {}
        self._last = self.stored = last
        self._allowed, self._folded = allowed, folded
        self._texts: set[str | None] = {None}

    def lay_out(self, spans: pa.Table, keys: dict[int, list[str]], first_seq: int) -> Rows:
        """The rows to store for normalised spans (normalise/spans.py), numbered from `first_seq`. Call `remember` once they are stored."""
        hashes = _hashes(spans)
        fresh = [h for h in np.unique(hashes).tolist() if h not in self._numbers]
        if (room := self._allowed(len(fresh))) < len(fresh):
            spans = self._plain(spans, np.isin(hashes, np.array(fresh[room:], dtype=np.uint64)))
            hashes, keys = _hashes(spans), keys | {0: []}
        seq = pa.array(np.arange(first_seq, first_seq + spans.num_rows, dtype=np.int64))
        numbers, new = self._number(spans, keys, hashes)
        rows = (
            spans.select(list(SPAN_COLUMNS))
            .append_column("seq", seq)
            .append_column("shape", pa.array(numbers))
        )
        rows = rows.append_column("attribute_values", spans.column("attribute_values"))
        columns = [name for name in VALUE_COLUMNS if spans.column(name).null_count < spans.num_rows]
        some: Any = np.zeros(spans.num_rows, dtype=bool)
        for name in columns:
            if name != "ttft_source":  # 0 where there is none
                some |= spans.column(name).is_valid().to_numpy()
        values = (
            spans.select([*columns, "start_ns"]).append_column("seq", seq).filter(pa.array(some))
        )
        return Rows(rows, values, new)

    def remember(self, new: New) -> None:
        """These shapes are in the store. A number that a failed commit took is not used again."""
        if len(self._numbers) > MAX_SHAPES:
            self._numbers.clear()
        self._numbers.update({h: row["shape"] for h, row in new.items()})
        if len(self._texts) <= MAX_SHAPES:
            self._texts |= {row[name] for row in new.values() for name in SHAPE_TEXTS}
        self.stored = max([self.stored, *(row["shape"] for row in new.values())])

    def forget(self, shapes: set[int]) -> None:
        """These numbers are in the store no longer."""
        self._numbers = {h: number for h, number in self._numbers.items() if number not in shapes}

    def _plain(self, spans: pa.Table, over: BoolArray) -> pa.Table:
        """The spans, some of them without attributes and with `(other)` for names that no stored shape has."""
        self._folded(int(over.sum()))
        mask, known = pa.array(over), pa.array(list(self._texts), pa.string())
        for name in ("shape", "flags", "attribute_values", *SHAPE_TEXTS):
            column = spans.column(name).combine_chunks()
            if name in SHAPE_TEXTS:
                strange = pc.and_(mask, pc.invert(pc.is_in(column, value_set=known)))
                column = pc.if_else(strange, pa.scalar(OTHER, pa.string()), column)
            else:
                nothing = None if name == "attribute_values" else 0
                column = pc.if_else(mask, pa.scalar(nothing, column.type), column)
            spans = spans.set_column(spans.schema.get_field_index(name), name, column)
        return spans

    def _number(
        self, spans: pa.Table, keys: dict[int, list[str]], hashes: WordArray
    ) -> tuple[np.ndarray[Any, np.dtype[np.int32]], New]:
        distinct, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
        numbers = [self._numbers.get(shape, 0) for shape in distinct.tolist()]
        out = np.array(numbers, dtype=np.int32)
        unknown = np.flatnonzero(out == 0)  # numbers begin at 1
        if self._reserve and len(unknown):
            self._last = self._reserve(len(unknown)) - 1
        out[unknown] = np.arange(self._last + 1, self._last + 1 + len(unknown))
        self._last += len(unknown)
        # All new ones at once: senders whose attributes come and go have hundreds in a commit.
        rows = spans.select([*SHAPE_NUMBERS, *SHAPE_TEXTS, "shape"]).take(pa.array(first[unknown]))
        new: New = {}
        for at, row in zip(unknown.tolist(), rows.to_pylist(), strict=True):
            new[int(distinct[at])] = row | {"keys": keys[row["shape"]], "shape": int(out[at])}
        return out[inverse], new


def _hashes(spans: pa.Table) -> WordArray:
    """A hash of the shape of each span."""
    hashes = spans.column("shape").to_numpy().copy()
    for i, name in enumerate((*SHAPE_NUMBERS, *SHAPE_TEXTS)):
        column = spans.column(name).combine_chunks()
        of_row = (
            _text_hashes(column)
            if name in SHAPE_TEXTS
            else column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
        )
        hashes = (hashes ^ of_row) * np.uint64(
            0x9E3779B97F4A7C15 + 2 * i
        )  # odd multipliers: each step can be undone, so nothing is lost
    return hashes  # type: ignore[no-any-return]


def shape_rows(new: New) -> pa.Table:
    """New shapes as rows of `shapes`."""
    return pa.Table.from_pylist(list(new.values()), schema=SHAPE_SCHEMA)


def _text_hashes(column: pa.Array) -> Any:
    if column.null_count == len(column):
        return np.zeros(len(column), dtype=np.uint64)
    encoded = column.dictionary_encode()
    of_text = np.array(
        [text_hash(text) for text in encoded.dictionary.to_pylist()], dtype=np.uint64
    )
    return np.append(of_text, np.uint64(0))[
        encoded.indices.fill_null(len(of_text)).to_numpy(zero_copy_only=False)
    ]
