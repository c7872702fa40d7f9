"""Does the store hold what was handed to it? What a transaction wrote is read back after its commit and compared before a sender is answered.

Rows that come from Arrow tables are compared with these tables (`Claims.wrote`): their ids, times, main figures and lengths. Rows that DuckDB made itself are
compared with what the transaction saw of them before it committed, by their number and a sum of hashes that does not depend on their order (`Claims.saw`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overrun.collector.errors import NotAsWritten

# What is read back of a row: whose it is, its times and main figures, and the length of its texts. All columns of all tables cost three times as much.
_READ_BACK = frozenset(
    {
        "seq",
        "batch",
        "shape",
        "source_id",
        "series",
        "trace_hi",
        "trace_lo",
        "span_id",
        "parent_id",
        "root_span_id",
        "linked_span_id",
        "start_ns",
        "duration_ns",
        "time_ns",
        "e2e_ns",
        "ttft_ns",
        "received_ns",
        "input_tokens",
        "output_tokens",
        "value",
        "sum",
        "count",
        "counts",
        "name",
        "attribute_values",
        "response_id",
        "finish_reason",
        "keys",
        "service",
    }
)
_POSITION = "position"


class Contents(NamedTuple):
    """How many rows, and the sum of their hashes (null without a row)."""

    rows: int
    hashes: int | None


def contents(connection: duckdb.DuckDBPyConnection, table: str, where: str = "true") -> Contents:
    """What a table of ours holds, in any order of its rows; `where` is text of ours, never from outside."""
    [(rows, hashes)] = connection.execute(
        f"select count(*), sum(hash(t)) from {table} t where {where}"
    ).fetchall()
    return Contents(int(rows), None if hashes is None else int(hashes))


def ends(connection: duckdb.DuckDBPyConnection, *tables: str) -> dict[str, int]:
    """Per table, the position (row id) after its last row: rows that are appended next stand there or after it."""
    return dict(
        connection.execute(
            " union all ".join(
                f"select '{table}', coalesce(max(rowid) + 1, 0) from {table}" for table in tables
            )
        ).fetchall()
    )


class Claims:
    """What one transaction says it has written. `starts` is the position (row id) in each table from which on it appends."""

    def __init__(self) -> None:
        self.starts: dict[str, int] = {}
        self.ends: dict[
            str, int
        ] = {}  # the position after the last row of each table that was read back
        self.undo: list[
            str
        ] = []  # what takes rows away that stand elsewhere than at the end of a table
        self._wrote: dict[str, list[pa.Table]] = defaultdict(list)
        self._places: dict[str, tuple[str, pa.Table | None]] = {}
        self._saw: dict[tuple[str, str], Contents] = {}

    def wrote(self, table: str, rows: pa.Table, where: str, among: pa.Table | None = None) -> None:
        """After the commit, these rows and those of other calls stand at the end of `table`, and no others stand where `where` is true; of the traces `among`
        (columns trace_hi, trace_lo), if given."""
        if rows.num_rows:
            self._wrote[table].append(
                rows.select([name for name in rows.column_names if name in _READ_BACK])
            )
            self._places[table] = where, among

    def saw(self, connection: duckdb.DuckDBPyConnection, table: str, where: str = "true") -> None:
        """After the commit, `table` holds what this transaction sees of it now, where `where` is true."""
        self._saw[table, where] = contents(connection, table, where)

    def take_back(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Delete the rows of this transaction, once it has committed: those at the end of its tables, and those that are its own by what they hold.

        A checkpoint that has dropped row groups moves the end of a table, and its rows then stand before the position that was noted.
        """
        for sql in self.undo:
            connection.execute(sql)
        for table, start in self.starts.items():
            connection.execute(f"delete from {table} where rowid >= {start}")
        for table, (where, among) in self._places.items():
            _delete(connection, table, where, among)

    def prove(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Read back what was claimed.

        Raises:
            NotAsWritten: the store holds something else; names the table.
            duckdb.Error: it cannot be read.
        """
        for table, parts in self._wrote.items():
            self._prove(connection, table, pa.concat_tables(parts, promote_options="default"))
        for (table, where), before in self._saw.items():
            if (now := contents(connection, table, where)) != before:
                raise NotAsWritten(
                    f"{now.rows} rows of {table} were read back, but {before.rows} were written"
                )

    def _prove(self, connection: duckdb.DuckDBPyConnection, table: str, written: pa.Table) -> None:
        where, among = self._places[table]
        # The end of a table is found without a look at the rows before it, but a checkpoint moves it where row groups have gone.
        stored = _stored(
            connection, table, written.schema, f"t.rowid >= {self.starts.get(table, 0)}", None
        )
        if not _same(stored, written):
            stored = _stored(connection, table, written.schema, where, among)
            if not _same(stored, written):
                raise NotAsWritten(
                    f"{len(stored[_POSITION])} rows of {table} were read back, but {written.num_rows} were written"
                )
        self.ends[table] = int(stored[_POSITION].max()) + 1


def _delete(
    connection: duckdb.DuckDBPyConnection, table: str, where: str, among: pa.Table | None
) -> None:
    """Delete rows of a table; `among` is read from this frame by the query."""
    of = "" if among is None else "semi join among using (trace_hi, trace_lo)"
    connection.execute(
        f"delete from {table} where rowid in (select t.rowid from {table} t {of} where {where})"
    )


def _stored(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    schema: pa.Schema,
    where: str,
    among: pa.Table | None,
) -> dict[str, Any]:
    """The rows as they are stored, in the order of their positions: per column its numbers, or the lengths of its texts and lists.

    As NumPy arrays, which cost half of what Arrow does here; `among` is read from this frame by the query.
    """
    of = "" if among is None else "semi join among using (trace_hi, trace_lo)"
    columns = ", ".join([*map(_as_number, schema), f"t.rowid as {_POSITION}"])
    return connection.execute(f"select {columns} from {table} t {of} where {where}").fetchnumpy()


def _as_number(field: pa.Field) -> str:
    kind = field.type
    if _is_number(kind):
        return str(field.name)
    length = (
        "cardinality"
        if pa.types.is_map(kind)
        else "len"
        if _is_list(kind)
        else "octet_length"
        if pa.types.is_binary(kind)
        else "strlen"
    )
    return f"{length}({field.name}) as {field.name}"


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _same(stored: dict[str, Any], written: pa.Table) -> bool:
    """Whether every value is equal, in whatever order the rows come."""
    if len(stored[_POSITION]) != written.num_rows:
        return False
    if all(_same_column(stored[name], written.column(name)) for name in written.column_names):
        return True
    keys = [name for name in written.column_names if _is_number(written.schema.field(name).type)]
    order = np.lexsort([np.ma.filled(stored[name], 0) for name in keys])
    in_order = written.sort_by([(name, "ascending") for name in reversed(keys)])
    return all(
        _same_column(stored[name][order], in_order.column(name)) for name in written.column_names
    )


def _same_column(stored: Any, written: pa.ChunkedArray) -> bool:
    kind = written.type
    if pa.types.is_map(kind):
        written = pa.chunked_array(
            [pa.array(np.diff(chunk.offsets.to_numpy())) for chunk in written.chunks]
        )
    elif _is_list(kind):
        written = pc.list_value_length(written)
    elif not _is_number(kind):
        written = pc.binary_length(written)
    if written.null_count or np.ma.isMaskedArray(stored):
        if not np.array_equal(np.ma.getmaskarray(stored), written.is_null().to_numpy()):
            return False
        written, stored = (
            written.fill_null(False if pa.types.is_boolean(kind) else 0),
            np.ma.filled(stored, 0),
        )
    return np.array_equal(stored, written.to_numpy(), equal_nan=pa.types.is_floating(kind))
