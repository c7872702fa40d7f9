"""How is a question put to DuckDB, on each of its two lines? One way for answers as frames, Arrow tables and streams of batches.

DuckDB 2 answers `execute` with rows and wants `sql` for columns. DuckDB 1.5 gives columns either way, but copies the parameters of `sql` into each part of the
plan: 41,666 rows of `v_requests` took 1.8 s of CPU there, and 0.09 s by `execute`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import duckdb
import polars as pl
import pyarrow as pa

# DuckDB 1.5 is asked by `execute`.
BY_EXECUTE: Final = int(duckdb.__version__.split(".", 1)[0]) < 2


def asked(
    con: duckdb.DuckDBPyConnection, sql: str, params: Mapping[str, object] | None = None
) -> Any:
    """Return what has the answer to a query: `pl()`, `to_arrow_table()`, `to_arrow_reader(rows)` and `columns` or `description`."""
    if BY_EXECUTE:
        return con.execute(sql, dict(params or {}))
    return con.sql(sql, params=dict(params or {}))


def fetch_frame(
    con: duckdb.DuckDBPyConnection, sql: str, params: Mapping[str, object] | None = None
) -> pl.DataFrame:
    """Return the answer to a query as a frame."""
    found: pl.DataFrame = asked(con, sql, params).pl()
    return found


def fetch_table(
    con: duckdb.DuckDBPyConnection, sql: str, params: Mapping[str, object] | None = None
) -> pa.Table:
    """Return the answer to a query as an Arrow table."""
    return asked(con, sql, params).to_arrow_table()


def fetch_batches(
    con: duckdb.DuckDBPyConnection, sql: str, params: Mapping[str, object] | None, rows: int
) -> pa.RecordBatchReader:
    """Return the answer to a query as batches of so many rows, read one after the other."""
    return asked(con, sql, params).to_arrow_reader(rows)


def column_names(
    con: duckdb.DuckDBPyConnection, sql: str, params: Mapping[str, object] | None = None
) -> list[str]:
    """Return the names of a query's columns, without its rows."""
    if BY_EXECUTE:
        found = con.execute(f"select * from ({sql}) limit 0", dict(params or {}))
        names = [str(name) for name, *_ in found.description or []]
        found.fetchall()
        return names
    return list(con.sql(sql, params=dict(params or {})).columns)
