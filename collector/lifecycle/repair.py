"""What can still be read of a damaged file? Copies it, table by table and piece by piece, into a new one, and says what could not be read.

A piece that fails is halved until single row groups' worth of rows stand alone: damage of one block costs the rows of that block. The damaged file is opened for
reading only and stays as it is.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb

from overrun.collector.errors import StoreError, StoreMissing
from overrun.collector.store.database import (
    BATCH_BITS,
    SCHEMA_VERSION,
    connect,
    is_damage,
    open_store,
    set_meta,
    tables,
    version_of,
    whole_transactions,
)

# Rows that are tried at once, and the fewest at which a piece that fails is given up: a vector of DuckDB, below which nothing is read apart.
_PIECE, _LEAST = 122_880, 2_048


@dataclass(frozen=True, slots=True)
class Saved:
    """Rows of one table that were copied, and those that could not be read (None: not even their number)."""

    table: str
    rows: int
    lost: int | None


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was saved, and how many bytes of the log were left out, from its damage on (what they said is lost)."""

    tables: list[Saved]
    log_bytes_lost: int


def repair(path: Path, out: Path) -> Repaired:
    """Save what can be read of the database at `path` into a new one at `out`.

    Raises:
        StoreMissing: there is no file. StoreLocked: another process has it open.
        StoreError: `out` exists already, or not even the list of tables can be read: go back to a backup.
    """
    path = path.resolve()
    if not path.is_file():
        raise StoreMissing(f"there is no database at {path}: name the damaged file with --db")
    if out.exists():
        raise StoreError(f"{out} exists already: give a new file name to --repair")
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        damaged, log_bytes_lost = _readable(path, Path(folder))
        try:
            seen = _version(damaged, path)
            if seen != str(SCHEMA_VERSION):
                raise StoreError(
                    f"{path} is schema {seen}, this build repairs {SCHEMA_VERSION}: use the version that wrote it"
                )
            fresh = open_store(out, create=True)
            try:
                saved = [
                    _save(damaged, fresh.connection, table)
                    for table in tables(fresh.connection)
                    if table != "meta"
                ]
                _keep_notes(damaged, fresh.connection)
                _count_anew(fresh.connection)
            finally:
                fresh.close()
        except BaseException:
            out.unlink(missing_ok=True)
            raise
        finally:
            damaged.close()
    return Repaired(saved, log_bytes_lost)


def _version(damaged: duckdb.DuckDBPyConnection, path: Path) -> str:
    """The schema of the file; that of this build if the note of it cannot be read."""
    try:
        return version_of(damaged, path)
    except duckdb.Error as error:
        if not is_damage(error):
            raise
        return str(SCHEMA_VERSION)


def _readable(path: Path, folder: Path) -> tuple[duckdb.DuckDBPyConnection, int]:
    """A connection that reads the file with its log, and the bytes of the log that are left out: from its damage on, in a copy of both."""
    wal = path.with_name(f"{path.name}.wal")
    try:
        return connect(path, read_only=True), 0
    except StoreError as error:
        if type(error) is not StoreError or not wal.exists():
            raise
        damage = re.search(r"byte position (\d+)", str(error))
    copy = folder / path.name
    shutil.copyfile(path, copy)
    size = wal.stat().st_size
    if damage is not None:
        kept = whole_transactions(wal, before=int(damage[1]))
        copied = copy.with_name(f"{copy.name}.wal")
        shutil.copyfile(wal, copied)
        os.truncate(copied, kept)
        with contextlib.suppress(StoreError):
            return connect(copy, read_only=True), size - kept
        copied.unlink(missing_ok=True)
    return connect(copy, read_only=True), size


def _save(
    damaged: duckdb.DuckDBPyConnection, fresh: duckdb.DuckDBPyConnection, table: str
) -> Saved:
    try:
        [(end,)] = damaged.execute(f"select coalesce(max(rowid) + 1, 0) from {table}").fetchall()
        columns = {name for (name, *_) in damaged.execute(f"describe {table}").fetchall()}
    except duckdb.Error:
        return Saved(table, 0, None)
    wanted = [name for (name, *_) in fresh.execute(f"describe {table}").fetchall()]
    names = ", ".join(f'"{name}"' for name in wanted if name in columns)
    rows = lost = 0
    pieces = [(low, min(low + _PIECE, end)) for low in range(0, end, _PIECE)]
    while pieces:
        low, high = pieces.pop()
        query = f"select {names} from {table} where rowid >= {low} and rowid < {high}"
        try:
            read = damaged.sql(query).to_arrow_table()
        except duckdb.Error:
            if high - low <= _LEAST:
                lost += high - low
            else:
                middle = (low + high) // 2
                pieces += [(middle, high), (low, middle)]
            continue
        fresh.execute(f"insert into {table} ({names}) select * from read")
        rows += read.num_rows
        del read
    return Saved(table, rows, lost)


def _keep_notes(damaged: duckdb.DuckDBPyConnection, fresh: duckdb.DuckDBPyConnection) -> None:
    """The key of the user hashes and the watermarks; a file without its notes has users under new hashes."""
    with contextlib.suppress(duckdb.Error):
        for key, value in damaged.execute("select key, value from meta").fetchall():
            if key not in ("views", "schema_version"):
                set_meta(fresh, key, value)


def _count_anew(fresh: duckdb.DuckDBPyConnection) -> None:
    """A commit has as many spans as were saved; what is missing of it is noted, so that `overrun doctor` reports it and reports hedge."""
    fresh.execute(
        f"create temp table held as select seq >> {BATCH_BITS} as batch, count(*) as n from spans group by all"
    )
    fresh.execute(
        "insert into incomplete_commits select batch, received_ns, spans - coalesce(n, 0), 0 "
        "from batches left join held using (batch) where spans > coalesce(n, 0)"
    )
    fresh.execute(
        "create temp table counted as select batch, coalesce(b.received_ns, $now) as received_ns, coalesce(n, 0)::bigint as spans, coalesce(points, 0) as points "
        "from batches b full join held using (batch) order by batch",
        {
            "now": time.time_ns()
        },  # of a commit whose own row is lost: retention must not take it for old
    )
    fresh.execute("delete from batches")
    fresh.execute("insert into batches from counted")
