"""How is a lake, and is it whole? Counts for `overrun store lake status`, and the checks of `overrun store lake verify`."""

from __future__ import annotations

import time
from contextlib import closing

import duckdb
import msgspec

from overrun.collector.lifecycle.lake_maintenance import Maintained, maintain
from overrun.collector.lifecycle.lake_retention import replaced, sweep
from overrun.collector.store.database import BATCH_BITS
from overrun.collector.store.lake.lake import LakeStore


class Table(msgspec.Struct, frozen=True):
    """A table's rows (those that are deleted and in a file still are counted), files and bytes, of the newest snapshot."""

    name: str
    rows: int
    files: int
    bytes: int
    delete_files: int


class Status(msgspec.Struct, frozen=True):
    """What a lake has. `waiting_s`: since when spans wait to be assembled (None: none do); `holders`: who assembles and maintains, "" for nobody."""

    tables: list[Table]
    snapshots: int
    oldest_snapshot_s: float
    newest_telemetry_s: float | None
    waiting_s: float | None
    holders: dict[str, str]
    erasings: int
    files_to_delete: int
    hidden_requests: int


class Check(msgspec.Struct, frozen=True):
    """One question about a lake, and how many things are not as they have to be."""

    what: str
    wrong: int
    of: int


def status(store: LakeStore) -> Status:
    """Counts of the newest snapshot. StoreUnavailable, duckdb.Error: the lake cannot be reached."""
    found = store.catalog.overview()
    until = store.catalog.assembled_until()
    with closing(store.writing()) as connection:
        [(newest, hidden)] = connection.execute(
            "select (select max(received_ns) / 1e9 from batches), (select count(*) from superseded)"
        ).fetchall()
    now_s = time.time()
    return Status(
        [Table(*row) for row in store.catalog.table_sizes()],
        found.snapshots,
        found.oldest_s,
        None if newest is None else max(now_s - newest, 0.0),
        None if until is None else max(now_s - until, 0.0),
        found.holders,
        found.erasings,
        found.files_to_delete,
        int(hidden),
    )


def compact(store: LakeStore) -> Maintained:
    """A round of maintenance now, with all files that can be merged, and without rows that others have replaced."""
    replaced(store, most=0)
    sweep(store)
    return maintain(store)


def verify(store: LakeStore) -> list[Check]:
    """Whether every listed file is there with its rows and, if so, whether rows of the tables fit each other. Reads the end of each file, and a few columns of all rows.

    Raises:
        duckdb.Error, StoreUnavailable: the lake cannot be reached.
    """
    with store.catalog.maintaining(), closing(store.cursor()) as cursor:
        files = _files(store, cursor)
    if files.wrong:
        return [files]  # the rest cannot be read
    checks = [files]
    with closing(store.cursor()) as cursor:
        cursor.begin()
        for what, query in _QUERIES.items():
            [(wrong, of)] = cursor.execute(query).fetchall()
            checks.append(Check(what, int(wrong), int(of)))
        cursor.rollback()
    return checks


_QUERIES = {
    "commits with as many spans as were acknowledged": (
        f"select count(*) filter (where coalesce(n, 0) <> b.spans), count(*) from batches b left join "
        f"(select seq >> {BATCH_BITS} as batch, count(*) as n from lake.main.spans group by all) using (batch)"
    ),
    "spans of a commit that is listed": (
        f"select count(*) filter (where b.batch is null), count(*) from lake.main.spans s left join batches b on b.batch = s.seq >> {BATCH_BITS}"
    ),
    "spans with a number that no other has": "select count(*) - count(distinct seq), count(*) from lake.main.spans",
    "spans with their shape": "select count(*) filter (where h.shape is null), count(*) from lake.main.spans s left join shapes h using (shape)",
    "shapes with their source": "select count(*) filter (where s.source_id is null), count(*) from shapes h left join sources s using (source_id)",
    "requests that are there once": "select count(*) - count(distinct (trace_hi, trace_lo)), count(*) from requests",
    "calls that are there once": "select count(*) - count(distinct (trace_hi, trace_lo, span_id)), count(*) from llm_calls",
}


def _files(store: LakeStore, cursor: duckdb.DuckDBPyConnection) -> Check:
    """Listed files whose number of rows is another, or that cannot be read."""
    wrong, listed = 0, store.catalog.files()
    for at in range(0, len(listed), 500):
        some = dict(listed[at : at + 500])
        wrong += _wrong(cursor, [store.address.data + path for path in some], list(some.values()))
    return Check("files that are listed, with their rows", wrong, len(listed))


def _wrong(cursor: duckdb.DuckDBPyConnection, paths: list[str], rows: list[int]) -> int:
    """Halved until one that cannot be read stands alone."""
    try:
        found = dict(
            cursor.execute(
                "select file_name, num_rows from parquet_file_metadata($paths)", {"paths": paths}
            ).fetchall()
        )
    except duckdb.Error:
        if len(paths) == 1:
            return 1
        half = len(paths) // 2
        return _wrong(cursor, paths[:half], rows[:half]) + _wrong(cursor, paths[half:], rows[half:])
    return sum(found.get(path) != n for path, n in zip(paths, rows, strict=True))
