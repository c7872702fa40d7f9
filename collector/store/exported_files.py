"""How are files that were exported asked as if they were a store? A DuckDB connection without a file, with the macros of a store and its views over Parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb

from overrun.collector.store.database import connect, macros


def over_files(views: Mapping[str, Sequence[str]]) -> duckdb.DuckDBPyConnection:
    """Return a connection with one view for each name, over the Parquet files of that name. A column that only some of the files have is null in the others.

    Raises:
        StoreError: DuckDB does not start.
    """
    con = connect(Path(":memory:"), {"preserve_insertion_order": False})
    con.execute(macros())
    for name, files in views.items():
        found = con.read_parquet(list(files), union_by_name=True, hive_partitioning=False)
        found.project("*, epoch_ns(start) as start_ns").create_view(name)
    return con
