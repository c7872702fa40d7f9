"""How does the data get out? Rows of the public views as Parquet, JSON lines or CSV, written batch by batch so that memory stays flat."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

import duckdb
import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from overrun.analysis.front.held_hours import Note, note_of
from overrun.analysis.front.question_table import EXPORT_FORMATS, EXPORT_KINDS
from overrun.analysis.numbers.window import Window, query
from overrun.analysis.words.encoding import FORMULA_STARTS
from overrun.analysis.words.errors import AnalysisError, nearest
from overrun.collector.store.answers import fetch_batches

_FILES = (
    "export_requests",
    "export_llm_calls",
    "export_spans",
    "export_metrics",
    "export_prompts",
)
KINDS = dict(zip(EXPORT_KINDS, _FILES, strict=True))
FORMATS = EXPORT_FORMATS
# A Parquet file of one hour has its note under this key of its metadata.
NOTE: Final = b"overrun"
_BATCH_ROWS = 20_000


class BadExport(AnalysisError):
    """A kind or format that is not exported."""


def check(kind: str, form: str) -> None:
    """Refuse what `write` does not know.

    Raises:
        BadExport: unknown kind or format, with the nearest known one.
    """
    if kind not in KINDS:
        raise BadExport(f"{kind[:64]!r} is not exported: {nearest(kind, KINDS)}")
    if form not in FORMATS:
        raise BadExport(f"format {form[:64]!r} is not known: {nearest(form, FORMATS)}")


def write(
    con: duckdb.DuckDBPyConnection, window: Window, kind: str, format: str, out: IO[bytes]
) -> int:
    """Write the rows of one view whose start (or time) lies in the window; returns how many. A Parquet file of one whole hour carries its note.

    Raises:
        BadExport: unknown kind or format.
    """
    check(kind, format)
    rows = 0
    writer: pq.ParquetWriter | None = None
    for batch in _batches(con, window, kind):
        if format == "parquet":
            writer = writer or pq.ParquetWriter(out, batch.schema, compression="zstd")
            writer.write_batch(batch)
        else:
            frame = _flat(batch)
            _ = (
                frame.write_ndjson(out)
                if format == "jsonl"
                else _inert(frame).write_csv(out, include_header=rows == 0)
            )
        rows += batch.num_rows
    if writer is not None:
        note = note_of(con, window, kind)
        if note is not None:
            writer.add_key_value_metadata({NOTE: msgspec.json.encode(note)})
        writer.close()
    return rows


def read_note(path: Path) -> Note | None:
    """Return what a Parquet file of one hour says of itself, None where it says nothing.

    Raises:
        OSError: it cannot be read.
        BadExport: no Parquet file, or one with a note of another form.
    """
    try:
        said = (pq.read_metadata(path).metadata or {}).get(NOTE)
        return said and msgspec.json.decode(said, type=Note)
    except (pa.ArrowException, msgspec.MsgspecError) as error:
        raise BadExport(f"{path} is no file of an hour: {str(error).splitlines()[0]}") from error


def _batches(con: duckdb.DuckDBPyConnection, window: Window, kind: str) -> Iterator[pa.RecordBatch]:
    """Record batches of a view; at least one, so that an empty export still has its columns."""
    reader = fetch_batches(con, query(KINDS[kind]), _bounds(window), _BATCH_ROWS)
    empty = True
    for batch in reader:
        empty = False
        yield batch
    if empty:
        yield pa.RecordBatch.from_pylist([], schema=reader.schema)


# Names and keys come from whoever may send.
_FORMULA: Final = f"^[{re.escape(FORMULA_STARTS)}]"


def _inert(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with an apostrophe before each text that a spreadsheet would run."""
    texts = pl.col(pl.String)
    return frame.with_columns(
        pl.when(texts.str.contains(_FORMULA)).then("'" + texts).otherwise(texts).name.keep()
    )


def _bounds(window: Window) -> dict[str, Any]:
    return {"start": window.start, "end": window.end}


def _flat(batch: pa.RecordBatch) -> pl.DataFrame:
    """A frame whose nested columns are JSON text: neither CSV nor a line of JSON readers agree on maps."""
    frame = pl.DataFrame(pl.from_arrow(batch))
    nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
    return frame.with_columns(
        pl.Series(name, [_json(v) for v in batch.column(name).to_pylist()], dtype=pl.String)
        for name in nested
    )


def _json(value: object) -> str | None:
    import json

    return (
        None
        if value is None
        else json.dumps(
            dict(value)
            if isinstance(value, list) and value and isinstance(value[0], tuple)
            else value
        )
    )
