"""CSV and Parquet with one request a row."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pyarrow as pa

from overrun.collector.errors import BadPayload
from overrun.collector.sources.forms import framing
from overrun.collector.sources.load_tests.result import (
    LoadTest,
    Request,
    Run,
    checked,
    say_unmeasured,
)
from overrun.collector.sources.load_tests.values import MS, count, failure, moment, ns, text_of

# Rows that a Parquet file may have beyond one for each of its bytes: equal ones take none, so that 35 kB hold four million.
SPARE_ROWS = 100_000
MOST_CELL = 16 << 20  # characters of a cell in a CSV
MOST_TEXT = 200  # characters of a text that are used; a Parquet file holds a long one once for all of its rows
_COLUMNS = (
    *("time", "start", "start_time", "end", "e2e_ms", "ttft_ms", "error"),
    *("input_tokens", "output_tokens", "cached_tokens", "model", "route", "tenant"),
)


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of any table, cells as what they hold: numbers, JSON, texts; empty ones are left out.

    Raises:
        BadPayload: it cannot be read.
    """
    if path.suffix == ".parquet":
        try:
            listed = _parquet(path, None).to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise BadPayload(f"it is no Parquet that can be read: {str(error)[:200]}") from error
    else:
        csv.field_size_limit(MOST_CELL)
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                listed = list(csv.DictReader(file))
        except csv.Error as error:
            raise BadPayload(f"it is no CSV that can be read: {error}") from error
    return [
        {
            str(key): framing.cell(str(key), told)
            for key, told in row.items()
            if told not in (None, "")
        }
        for row in listed
    ]


def _parquet(path: Path, wanted: tuple[str, ...] | None = _COLUMNS) -> pa.Table:
    """The columns that are used of a Parquet file, None for all that are not nested.

    Raises:
        BadPayload: it has more rows than its bytes can tell apart.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        rows, size = file.metadata.num_rows, path.stat().st_size
        if rows > size + SPARE_ROWS:
            raise BadPayload(
                f"it has {rows:,} rows in {size:,} bytes, expected at most one a byte and {SPARE_ROWS:,} more: most of them are equal, write them once"
            )
        # A list in a row may be of any length.
        used = [
            field
            for field in file.schema_arrow
            if (wanted is None or field.name in wanted) and not pa.types.is_nested(field.type)
        ]
        names = [field.name for field in used]
        if not names:
            return file.schema_arrow.empty_table()
        texts = [field.name for field in used if not _is_short(field.type)]
    table = pyarrow.parquet.read_table(path, columns=names, read_dictionary=texts)
    for name in texts:
        column = table.column(name).combine_chunks()
        if pa.types.is_dictionary(column.type):
            words = pc.utf8_slice_codeunits(column.dictionary.cast(pa.string()), 0, MOST_TEXT)
            cut = pa.DictionaryArray.from_arrays(column.indices, words)
            table = table.set_column(table.schema.get_field_index(name), name, cut)
    return table


def _is_short(kind: pa.DataType) -> bool:
    """Whether a value takes a few bytes at most."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_temporal(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_null(kind)
    )


def read_table(path: Path) -> LoadTest:
    """The requests of a CSV or Parquet file.

    Raises:
        BadPayload: it cannot be read, or lacks a column.
    """
    import pyarrow.csv  # mapped into memory only where asked for

    try:
        table = _parquet(path) if path.suffix == ".parquet" else pyarrow.csv.read_csv(path)
    except (pa.ArrowException, OSError) as why:
        raise BadPayload(f"not a table: {str(why).splitlines()[0][:200]}") from why
    columns = set(table.column_names)
    time = next((name for name in ("time", "start", "start_time") if name in columns), None)
    if time is None or not columns & {"e2e_ms", "end"}:
        raise BadPayload(
            f"its columns are {', '.join(table.column_names[:12]) or '(none)'}; expected time and e2e_ms (or end), and ttft_ms, input_tokens, "
            "output_tokens, error, model, route, tenant where known"
        )
    out = LoadTest("load-test")
    unmeasured = 0
    for number, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):  # Python's moments have microseconds
            table = table.set_column(
                number,
                column.name,
                table.column(number).cast(pa.timestamp("us", column.type.tz), safe=False),
            )
    for row in table.to_pylist():
        start_ns = moment(row[time], time)
        end_ns = moment(row.get("end"), "end")
        e2e_ns = ns(row.get("e2e_ms"), MS)
        e2e_ns = (
            end_ns - start_ns
            if e2e_ns is None and end_ns is not None and start_ns is not None
            else e2e_ns
        )
        error, code = failure(row.get("error"))
        if start_ns is None or (e2e_ns is None and error is None):
            unmeasured += 1
            continue
        out.requests.append(
            Request(
                start_ns,
                e2e_ns or 0,
                ns(row.get("ttft_ms"), MS),
                count(row.get("input_tokens")),
                count(row.get("output_tokens")),
                count(row.get("cached_tokens")),
                error,
                code,
                model=text_of(row.get("model")),
                route=text_of(row.get("route")),
                tenant=text_of(row.get("tenant")),
            )
        )
    say_unmeasured(out, unmeasured)
    out.runs = [Run("table", out.requests)]
    return checked(out)
