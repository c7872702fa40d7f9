"""How is a lake opened? An in-memory DuckDB with the lake attached: its tables are the lake's, the views are this process's.

The views of a file read `requests`, `llm_calls` and `sources`. In a lake these are views themselves: a row of a request is never changed, a newer one takes its
place and `superseded` says so; and two collectors may have stored the same source. Extensions come with the Python packages of `overrun[lake]`; nothing is
downloaded, and their signatures are checked.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Final

import duckdb

from overrun.collector.errors import StoreError, StoreMissing, StoreVersion
from overrun.collector.store.database import (
    SCHEMA_VERSION,
    connect,
    make_tables,
    make_views,
    tables,
)
from overrun.collector.store.lake.address import LakeAddress
from overrun.collector.store.lake.catalog import Catalog
from overrun.collector.store.store import Store

log = logging.getLogger("overrun.collector")
# DuckLake gives up after ten conflicts with other commits; a dozen writers meet that often.
_MOST_TRIES: Final = 100
_READING: Final = "set search_path = 'memory.main,lake.main'"
MOVED_SALTS: Final = "moved_salts"  # in `meta`
_VERSIONED: Final = ("requests", "llm_calls")


class LakeStore(Store):
    """An open lake. `connection` writes: names mean the lake's tables. A `cursor()` reads: names mean the views."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, address: LakeAddress) -> None:
        super().__init__(connection, Path(tempfile.gettempdir()) / "overrun.lake", read_only=False)
        self.address = address
        self.catalog = Catalog(address.catalog)
        self.is_new = False  # whether this process has made it

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own that reads."""
        cursor = super().cursor()
        cursor.execute(_READING)
        return cursor

    @contextmanager
    def asking(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """As of every store, and its questions are of one snapshot: for each other one PostgreSQL is asked what tables and files there are."""
        with super().asking() as cursor:
            cursor.begin()
            yield cursor

    def writing(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own that writes."""
        cursor = super().cursor()
        cursor.execute("use lake")
        return cursor

    def salts(self) -> list[bytes]:
        """The keys of user hashes: of this lake, and of files that were moved into it."""
        moved = (self.meta(MOVED_SALTS) or "").split()
        return [self.salt(), *(bytes.fromhex(salt) for salt in moved)]

    def used_bytes(self) -> int:
        """The files of the newest snapshot."""
        with self.asking() as cursor:
            [(size,)] = cursor.execute(
                "select coalesce(sum(file_size_bytes), 0) from ducklake_table_info('lake')"
            ).fetchall()
        return int(size)

    def _leave(self, cursor: duckdb.DuckDBPyConnection) -> None:
        # A transaction that is still open when its cursor closes ends the process if PostgreSQL has gone (DuckDB 1.5.5).
        with suppress(duckdb.Error):
            cursor.rollback()
        super()._leave(cursor)

    def close(self) -> None:
        """Close the lake; remaining readers are interrupted."""
        super().close()
        self.catalog.close()


def sign(connection: duckdb.DuckDBPyConnection, author: str, content: str) -> None:
    """Say whose the transaction is; `content` is for the trigger of catalog.sql. Both are text of ours, never from outside."""
    connection.execute(f"call lake.set_commit_message('{author}', '', extra_info => '{content}')")


def open_lake(
    address: LakeAddress, *, memory_limit: str | None = None, create: bool = True
) -> LakeStore:
    """Open a lake, and make it where the database has none if `create`.

    Raises:
        StoreError: PostgreSQL or the folder cannot be reached, or this DuckDB has no extensions. StoreMissing: the database has no lake. StoreVersion: made by another version.
    """
    if address.password:
        os.environ["PGPASSWORD"] = address.password  # read by libpq, in DuckDB and in psycopg
    connection = connect(Path(":memory:"))
    try:
        if memory_limit:
            connection.execute("set memory_limit = $limit", {"limit": memory_limit})
        spill = str(Path(tempfile.gettempdir()) / f"overrun-spill-{os.getpid()}")
        connection.execute("set temp_directory = $folder", {"folder": spill})
        connection.execute("set global TimeZone = 'UTC'")
        _load_extensions(connection, address)
        store = LakeStore(connection, address)
        if not create and not store.catalog.has_lake():
            store.catalog.close()
            raise StoreMissing(
                f"{address}: that database has no lake. Check its name, or make one with `overrun serve --store` or `overrun store migrate FOLDER --into STORE`"
            )
        with store.catalog.alone():
            _attach(connection, address)
            if not store.catalog.is_made():
                if not store.catalog.has_lake():
                    _make(connection)
                    store.is_new = True
                store.catalog.make()
        _check_version(connection, address)
        _make_views(connection)
        connection.execute("use lake")
    except duckdb.Error as error:
        connection.close()
        raise StoreError(f"{address} cannot be opened: {str(error).splitlines()[0]}") from error
    except BaseException:
        connection.close()
        raise
    return store


def _load_extensions(connection: duckdb.DuckDBPyConnection, address: LakeAddress) -> None:
    on_s3 = address.data.startswith("s3://")
    for name in ("postgres_scanner", "ducklake", *(["httpfs"] if on_s3 else [])):
        file = f"extensions/v{duckdb.__version__}/{name}.duckdb_extension"
        try:
            path = resources.files(f"duckdb_extension_{name}") / file
        except ModuleNotFoundError as error:
            raise StoreError(
                "a lake needs DuckDB's extensions: pip install 'overrun[lake]'"
            ) from error
        if not path.is_file():
            raise StoreError(
                f"the package of DuckDB's extension {name} is of another version than DuckDB {duckdb.__version__}: pip install 'overrun[lake]'"
            )
        connection.execute(f"load {_quoted(str(path))}")
    if on_s3:
        _use_s3(connection)


def _use_s3(connection: duckdb.DuckDBPyConnection) -> None:
    """Keys, region and endpoint from the variables that other tools read, too."""
    given = {
        "key_id": os.environ.get("AWS_ACCESS_KEY_ID"),
        "secret": os.environ.get("AWS_SECRET_ACCESS_KEY"),
        "session_token": os.environ.get("AWS_SESSION_TOKEN"),
        "region": os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
    }
    options = [f"{name} {_quoted(value)}" for name, value in given.items() if value]
    if endpoint := os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"):
        scheme, _, host = endpoint.rpartition("://")
        options += [f"endpoint {_quoted(host)}", "url_style 'path'"]
        options += ["use_ssl false"] if scheme == "http" else []
    connection.execute(f"create secret lake_files ({', '.join(['type s3', *options])})")


def _attach(connection: duckdb.DuckDBPyConnection, address: LakeAddress) -> None:
    connection.execute(f"set ducklake_max_retry_count = {_MOST_TRIES}")
    connection.execute(
        f"attach {_quoted(f'ducklake:postgres:{address.catalog}')} as lake (data_path {_quoted(address.data)}, data_inlining_row_limit 0)"
    )


def _make(connection: duckdb.DuckDBPyConnection) -> None:
    """The tables of a file, empty, and `superseded`; in one snapshot."""
    make_tables(connection)
    connection.begin()
    names = tables(connection, "memory")
    for name in names:
        rows = "" if name == "meta" else " limit 0"
        connection.execute(f"create table lake.main.{name} as from memory.main.{name}{rows}")
    # Rows of requests and calls of this trace that came with a commit before `batch` have been replaced.
    connection.execute(
        "create table lake.main.superseded (trace_hi ubigint, trace_lo ubigint, batch bigint)"
    )
    connection.commit()
    _count_once(connection, [*names, "superseded"])
    for name in names:
        connection.execute(f"drop table memory.main.{name}")
    connection.execute("call lake.set_option('parquet_compression', 'zstd')")


def _count_once(connection: duckdb.DuckDBPyConnection, names: list[str]) -> None:
    """Give each table statistics, by a row that is deleted again: of a table without any, DuckLake asks PostgreSQL anew for each column of each question (30 ms of CPU; 1.5.5)."""
    first = dict(
        connection.execute(
            "select table_name, any_value(column_name) from duckdb_columns() where database_name = 'lake' group by all"
        ).fetchall()
    )
    empty = [name for name in names if name != "meta"]
    for sql in ("insert into lake.main.{0} ({1}) values (null)", "delete from lake.main.{0}"):
        connection.begin()
        for name in empty:
            connection.execute(sql.format(name, first[name]))
        connection.commit()


def _check_version(connection: duckdb.DuckDBPyConnection, address: LakeAddress) -> None:
    found = connection.execute(
        "select value from lake.main.meta where key = 'schema_version'"
    ).fetchall()
    if found != [(str(SCHEMA_VERSION),)]:
        seen = found[0][0] if found else "unknown"
        raise StoreVersion(
            f"{address} is schema {seen}, this build needs {SCHEMA_VERSION}: use the Overrun that made it, or another database"
        )


def _make_views(connection: duckdb.DuckDBPyConnection) -> None:
    connection.begin()  # one: each transaction asks PostgreSQL what tables there are
    for name in _VERSIONED:
        connection.execute(
            f"create view memory.main.{name} as select r.*, r.rowid from lake.main.{name} r left join "
            "(select trace_hi, trace_lo, max(batch) as until from lake.main.superseded group by all) using (trace_hi, trace_lo) "
            "where until is null or batch >= until"
        )
    connection.execute(
        "create view memory.main.sources as select distinct on (source_id) * from lake.main.sources"
    )
    connection.execute(_READING)
    make_views(connection)
    connection.commit()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
