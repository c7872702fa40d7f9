"""Does the store hold what was handed to it? What a transaction wrote is read back after its commit and compared, value by value, before anybody is answered.

Rows that come from Arrow tables are compared with these tables (`Claims.wrote`). Rows that DuckDB made itself are compared with what the transaction saw of
them before it committed, by their number and by a sum of hashes that does not depend on their order (`Claims.saw`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from collector.errors import NotAsWritten

# DuckDB gives rows in the order in which they were appended. Should it ever not, equal rows are found by these columns.
_ORDERED_BY = ("seq", "shape", "source_id", "trace_hi", "trace_lo", "span_id", "time_ns", "hash")
_POSITION = "position"


class Contents(NamedTuple):
    """How many rows, and the sum of their hashes (null without a row)."""

    rows: int
    hashes: int | None


def contents(connection: duckdb.DuckDBPyConnection, table: str, where: str = "true") -> Contents:
    """What a table of ours holds, in any order of its rows; `where` is text of ours, never from outside."""
    [(rows, hashes)] = connection.execute(f"select count(*), sum(hash(t)) from {table} t where {where}").fetchall()
    return Contents(int(rows), None if hashes is None else int(hashes))


def ends(connection: duckdb.DuckDBPyConnection, *tables: str) -> dict[str, int]:
    """Per table, the position (row id) after its last row: rows that are appended next stand there or after it."""
    return dict(connection.execute(" union all ".join(f"select '{table}', coalesce(max(rowid) + 1, 0) from {table}" for table in tables)).fetchall())


class Claims:
    """What one transaction says it has written, and from which position on (row id) it appended to each table."""

    def __init__(self, starts: Mapping[str, int] | None = None) -> None:
        self.starts = dict(starts or {})
        self.ends: dict[str, int] = {}  # the position after the last row of each table that was read back
        self._wrote: dict[tuple[str, str], list[pa.Table]] = defaultdict(list)
        self._among: dict[tuple[str, str], pa.Table] = {}
        self._saw: dict[tuple[str, str], Contents] = {}

    def wrote(self, table: str, rows: pa.Table, where: str) -> None:
        """After the commit, `table` holds these rows, and those of other calls with the same `where`, and no others where that is true."""
        if rows.num_rows:
            self._wrote[table, where].append(rows)

    def replaced(self, table: str, rows: pa.Table, where: str, traces: pa.Table) -> None:
        """After the commit, `table` holds just these rows of `traces` (columns trace_hi, trace_lo) where `where` is true."""
        self._wrote[table, where].append(rows)
        self._among[table, where] = traces

    def saw(self, connection: duckdb.DuckDBPyConnection, table: str, where: str = "true") -> None:
        """After the commit, `table` holds what this transaction sees of it now, where `where` is true."""
        self._saw[table, where] = contents(connection, table, where)

    def begins(self, connection: duckdb.DuckDBPyConnection, *tables: str) -> None:
        """This transaction appends to these tables from here on."""
        self.starts |= ends(connection, *tables)

    def prove(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Read back what was claimed.

        Raises:
            NotAsWritten: the store holds something else; names the table.
            duckdb.Error: it cannot be read.
        """
        for (table, where), parts in self._wrote.items():
            written = pa.concat_tables(parts, promote_options="default")
            stored = _stored(connection, table, written.column_names, where, self._among.get((table, where)))
            self.ends[table] = max([self.ends.get(table, 0), *(at + 1 for at in stored.column(_POSITION)[-1:].to_pylist())])
            if not _same(stored, written):
                raise NotAsWritten(f"{stored.num_rows} rows of {table} are not the {written.num_rows} that were written")
        for (table, where), before in self._saw.items():
            if (now := contents(connection, table, where)) != before:
                raise NotAsWritten(f"{now.rows} rows of {table} are not the {before.rows} that were written")


def _stored(connection: duckdb.DuckDBPyConnection, table: str, names: list[str], where: str, among: pa.Table | None) -> pa.Table:
    """The rows as they are stored; `among` is read from this frame by the query."""
    of = "" if among is None else "semi join among using (trace_hi, trace_lo)"
    columns = ", ".join(f"t.{name}" for name in [*names, f"rowid as {_POSITION}"])
    return connection.sql(f"select {columns} from {table} t {of} where {where}").to_arrow_table()


def _same(stored: pa.Table, written: pa.Table) -> bool:
    if stored.num_rows != written.num_rows:
        return False
    if _same_columns(stored, written):
        return True
    keys = [(name, "ascending") for name in _ORDERED_BY if name in written.column_names]
    return bool(keys) and _same_columns(stored.sort_by(keys), written.sort_by(keys))


def _same_columns(stored: pa.Table, written: pa.Table) -> bool:
    return all(_same_column(stored.column(name), written.column(name)) for name in written.column_names)


def _same_column(stored: pa.ChunkedArray, written: pa.ChunkedArray) -> bool:
    """Whether the values are equal: the types may differ in how they are laid out, and one NaN is as good as another."""
    if written.type != stored.type:
        written = written.cast(stored.type)
    if stored.equals(written):
        return True
    ours, theirs = stored.to_pylist(), written.to_pylist()
    return all(_same_value(a, b) for a, b in zip(ours, theirs, strict=True))


def _same_value(a: Any, b: Any) -> bool:
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same_value, a, b))
    return bool(a == b or (a != a and b != b))
