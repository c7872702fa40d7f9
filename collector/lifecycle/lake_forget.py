"""How is a person, or a customer, erased from a lake? Their rows go at once, from every table; their bytes with the files that held them, which the maintainer rewrites.

What `forget` deletes from a file (forget.py) is deleted here some commits' rows at a time, for as long as each of which no collector commits. The traces are noted in
PostgreSQL until they are in no file: an assembler may still have their spans in memory, so the rows that it makes of them are deleted when it has passed that
moment. Then files are rewritten without deleted rows, and older snapshots go with the files that only they have (`lake_maintenance.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final

import duckdb
import numpy as np

from overrun.collector.access.audit import Audit
from overrun.collector.errors import CollectorError
from overrun.collector.lifecycle.forget import Forgotten, found_in_tables, names
from overrun.collector.lifecycle.lake_retention import LakeRetention, alone, sweep
from overrun.collector.normalise import privacy
from overrun.collector.store.database import BATCH_BITS
from overrun.collector.store.lake.lake import LakeStore

_BY_BATCH: Final = (
    "quarantine",
    "span_events",
    "span_links",
    "span_notes",
    "requests",
    "llm_calls",
    "superseded",
)
# Which rows are of a trace in `forgotten`; which points have a name.
_OF_TRACE: Final = "(trace_hi, trace_lo) in (select (trace_hi, trace_lo) from forgotten)"
_OF_POINT: Final = (
    "(list_has_any(map_values(attributes), $named) or source_id in (select source_id from sources where "
    "list_has_any(map_values(resource_attributes), $named) or list_has_any(map_values(scope_attributes), $named)))"
)
# Rows that come while others are deleted are found the next time.
_PASSES: Final = 3


def forget_in_lake(
    store: LakeStore, *, user: str | None = None, tenant: str | None = None
) -> Forgotten:
    """Delete every trace with a span of this user (as sent, or as the hash that the views show) or tenant, and points with their name.

    Raises:
        duckdb.Error, StoreUnavailable: the lake cannot be reached; what was deleted before stands, so erase again.
    """
    salts = store.salts()
    named = sorted({name for salt in salts for name in names(salt, user=user, tenant=tenant)})
    users = sorted({name for salt in salts for name in names(salt, user=user)})
    tenants = sorted({name for salt in salts for name in names(salt, tenant=tenant)})
    traces, done = set[tuple[int, int]](), Forgotten(0, 0, 0)
    with closing(store.writing()) as connection:
        for _ in range(_PASSES):
            found = _find(connection, users, tenants)
            more = _delete_found(store, connection, named)
            traces |= found
            done = Forgotten(
                len(traces),
                done.spans + more.spans,
                done.requests + more.requests,
                done.points + more.points,
            )
            if not (found or more.points):
                break
        if tenants:
            alone(store, connection, lambda: _delete_folded(connection, tenants))
    if traces or done.points:
        sweep(store)
    store.catalog.note_erasing(sorted(traces))
    with closing(store.writing()) as connection:
        left = found_in_tables(connection, named)
    return Forgotten(len(traces), done.spans, done.requests, done.points, found_rows=left)


def forget_and_note(
    store: LakeStore, *, user: str | None = None, tenant: str | None = None
) -> Forgotten:
    """As `forget_in_lake`, for a command: a line of the audit log of this folder has what was done."""
    status, done = 500, Forgotten(0, 0, 0)
    kind, name = ("user", user) if user else ("tenant", tenant)
    try:
        done = forget_in_lake(store, user=user, tenant=tenant)
        status = 200
    except CollectorError as error:
        status = error.http_status
        raise
    finally:
        Audit.beside(store.path).write(
            "forget",
            token="none",  # noqa: S106  # whoever may write the lake needs none
            peer=f"this machine, uid {os.getuid()}" if hasattr(os, "getuid") else "this machine",
            what={f"{kind}_hash": privacy.user_hash(name or "", store.salt())},
            status=status,
            counts={"traces": done.traces, "spans": done.spans, "requests": done.requests},
        )
    return done


def delete_made_since(store: LakeStore, traces: Sequence[tuple[int, int]]) -> int:
    """Delete what an assembler has made from memory of traces that were erased before; how many rows went."""
    with closing(store.writing()) as connection:
        _remember(connection, traces)
        done = _delete_found(store, connection, [])
    return done.requests


def _find(
    connection: duckdb.DuckDBPyConnection, users: list[str], tenants: list[str]
) -> set[tuple[int, int]]:
    """The traces of these names, in the temporary table `forgotten`."""
    found = " union ".join(
        f"select trace_hi, trace_lo from {table} where list_contains($users, user_hash) or list_contains($tenants, tenant)"
        for table in ("spans", "quarantine", "requests", "llm_calls")
    )
    connection.execute(
        f"create or replace temp table forgotten as {found}", {"users": users, "tenants": tenants}
    )
    return {(int(hi), int(lo)) for hi, lo in connection.execute("from forgotten").fetchall()}


def _remember(connection: duckdb.DuckDBPyConnection, traces: Sequence[tuple[int, int]]) -> None:
    connection.execute(
        "create or replace temp table forgotten as select unnest($hi)::ubigint as trace_hi, unnest($lo)::ubigint as trace_lo",
        {"hi": [hi for hi, _ in traces], "lo": [lo for _, lo in traces]},
    )


def _delete_found(
    store: LakeStore, connection: duckdb.DuckDBPyConnection, named: list[str]
) -> Forgotten:
    """Delete the rows of `forgotten`, and points with a name."""
    spans = requests = points = 0
    for first, last in _ranges(connection, named):
        run = partial(_delete_between, connection, first, last, named)
        some = alone(store, connection, run)
        spans, requests, points = spans + some[0], requests + some[1], points + some[2]
    return Forgotten(0, spans, requests, points)


def _delete_folded(connection: duckdb.DuckDBPyConnection, tenants: list[str]) -> None:
    for table in ("rollups", "rollup_counts"):
        connection.execute(
            f"delete from {table} where list_contains($named, tenant)", {"named": tenants}
        )


def _ranges(connection: duckdb.DuckDBPyConnection, named: list[str]) -> Iterator[tuple[int, int]]:
    """First and last commit of parts that have what is to be deleted; each part has few enough rows to be read in some tenths of a second."""
    hits = [f"select seq >> {BATCH_BITS} as batch from spans where {_OF_TRACE}"]
    hits += [f"select batch from {table} where {_OF_TRACE}" for table in _BY_BATCH]
    given: dict[str, Any] = {}
    if named:
        hits.append(f"select batch from points where {_OF_POINT}")
        given = {"named": named}
    found = connection.execute(f"select distinct batch from ({' union all '.join(hits)}) order by 1", given)  # fmt: skip
    wanted = [int(batch) for (batch,) in found.fetchall()]
    stored = connection.execute("select batch, spans + points from batches order by batch")
    held = stored.fetchall()
    batches = np.array([row[0] for row in held], dtype=np.int64)
    before = np.cumsum([0, *(row[1] for row in held)])
    part: list[int] = []
    for batch in wanted:
        if part:
            first, last = np.searchsorted(batches, [part[0], batch + 1])
            if before[last] - before[first] > LakeRetention.chunk_rows:
                yield part[0], part[-1]
                part = []
        part.append(batch)
    if part:
        yield part[0], part[-1]


def _delete_between(
    connection: duckdb.DuckDBPyConnection, first: int, last: int, named: list[str]
) -> tuple[int, int, int]:
    """How many spans, requests and points went."""
    of_seq = f"seq >= {first << BATCH_BITS} and seq < {(last + 1) << BATCH_BITS}"
    of_batch = f"batch between {first} and {last}"
    given = {"named": named} if named else {}
    of_points = f"{of_batch} and {_OF_POINT}" if named else "false"
    connection.execute(
        f"create or replace temp table erased as select seq from spans where {of_seq} and {_OF_TRACE}"
    )
    # A commit's number of spans and of points is what is left of it, as in a file.
    connection.execute(
        "create or replace temp table fewer as select batch, received_ns, b.spans - s as spans, b.points - p as points from batches b join ("
        f"select batch, sum(s)::bigint as s, sum(p)::bigint as p from (select seq >> {BATCH_BITS} as batch, 1 as s, 0 as p from erased "
        f"union all select batch, 0, 1 from points where {of_points}) group by all) using (batch)",
        given,
    )
    deleted = {"span_values": _n(connection, f"delete from span_values where {of_seq} and seq in (from erased)")}  # fmt: skip
    deleted["spans"] = _n(connection, f"delete from spans where {of_seq} and seq in (from erased)")
    for table in _BY_BATCH:
        deleted[table] = _n(connection, f"delete from {table} where {of_batch} and {_OF_TRACE}")
    points = 0
    if named:
        points = _n(connection, f"delete from points where {of_points}", given)
    if deleted["spans"] or points:
        connection.execute("delete from batches where batch in (select batch from fewer)")
        connection.execute("insert into batches from fewer")
    connection.execute("drop table erased")
    connection.execute("drop table fewer")
    return deleted["spans"], deleted["requests"], points


def _n(connection: duckdb.DuckDBPyConnection, sql: str, given: dict[str, Any] | None = None) -> int:
    [(n,)] = connection.execute(sql, given or {}).fetchall()
    return int(n)
