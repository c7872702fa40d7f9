"""How is a person, or a customer, erased? Every trace that carries them goes, with the requests and calls made from it.

In a file that no server owns, the rest is then copied to a new file that takes its place: DuckDB marks deleted rows, and their bytes stay in the
file until all rows around them have gone, too. A server that runs does the former at once and leaves the latter to its retention.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb

from overrun.collector.errors import NotAsWritten, StoreError
from overrun.collector.lifecycle.retention import checkpoint
from overrun.collector.normalise import privacy
from overrun.collector.store.database import Store, connect, open_store, tables
from overrun.collector.store.layout import BATCH_BITS
from overrun.collector.store.proof import contents

_MARKED = ("spans", "quarantine", "requests", "llm_calls")
_BY_TRACE = (
    "spans",
    "quarantine",
    "span_events",
    "span_links",
    "span_notes",
    "requests",
    "llm_calls",
)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How much was erased."""

    traces: int
    spans: int
    requests: int


def forget(
    connection: duckdb.DuckDBPyConnection,
    salt: bytes,
    *,
    user: str | None = None,
    tenant: str | None = None,
) -> Forgotten:
    """Delete every trace with a span of this user (as sent, or as the hash that the views show) or tenant. In a transaction of the caller."""
    wanted = {
        "user_hash": [user, privacy.user_hash(user, salt)] if user else [],
        "tenant": [tenant] if tenant else [],
    }
    connection.execute(
        "create or replace temp table forgotten (trace_hi ubigint, trace_lo ubigint)"
    )
    for column, named in wanted.items():
        for table in _MARKED if named else ():
            found = f"select distinct trace_hi, trace_lo from {table} where list_contains($named, {column})"
            connection.execute(f"insert into forgotten {found}", {"named": named})
    seen = "exists (select 1 from forgotten f where f.trace_hi = t.trace_hi and f.trace_lo = t.trace_lo)"
    [(traces,)] = connection.execute(
        "select count(*) from (select distinct * from forgotten)"
    ).fetchall()
    [(spans,)] = connection.execute(f"select count(*) from spans t where {seen}").fetchall()
    [(requests,)] = connection.execute(f"select count(*) from requests t where {seen}").fetchall()
    _count_less(connection, seen)
    connection.execute(
        f"delete from span_values where seq in (select seq from spans t where {seen})"
    )
    for table in _BY_TRACE:
        connection.execute(f"delete from {table} t where {seen}")
    for table in ("rollups", "rollup_counts") if tenant else ():
        connection.execute(f"delete from {table} where tenant = $tenant", {"tenant": tenant})
    connection.execute("drop table forgotten")
    return Forgotten(int(traces), int(spans), int(requests))


def _count_less(connection: duckdb.DuckDBPyConnection, seen: str) -> None:
    """A commit's number of spans is what is left of it: `overrun doctor` takes what is missing for lost. Not as an update, as in `store.set_meta`."""
    connection.execute(
        f"create or replace temp table erased as select seq >> {BATCH_BITS} as batch, count(*) as n from spans t where {seen} group by all"
    )
    connection.execute(
        "create or replace temp table fewer as select batch, received_ns, b.spans - n as spans, points from batches b join erased using (batch)"
    )
    connection.execute("delete from batches where batch in (select batch from erased)")
    connection.execute("insert into batches from fewer")
    connection.execute("drop table erased")
    connection.execute("drop table fewer")


def forget_in_file(path: Path, *, user: str | None = None, tenant: str | None = None) -> Forgotten:
    """As `forget`, in a file that no server owns, leaving no byte of it.

    Raises:
        StoreError and its kind: the file cannot be opened, or there is no room for the copy (the file is as it was).
    """
    store = open_store(path, create=False)
    try:
        store.connection.begin()
        done = forget(store.connection, store.salt(), user=user, tenant=tenant)
        store.connection.commit()
        store.connection.begin()
        checkpoint(store.connection)
        store.connection.commit()
        if done.traces:
            _rewrite(store)
    finally:
        store.close()
    if done.traces:
        _copy_of(path).replace(path)
    return done


def _copy_of(path: Path) -> Path:
    return path.with_name(path.name + ".rewritten")


def _rewrite(store: Store) -> None:
    copy = _copy_of(store.path)
    copy.unlink(missing_ok=True)
    try:
        connect(copy).close()
        [(name,)] = store.connection.execute("select current_database()").fetchall()
        store.connection.execute(f"attach '{str(copy).replace(chr(39), chr(39) * 2)}' as rewritten")
        store.connection.execute(f'copy from database "{name}" to rewritten')
        for table in tables(store.connection):
            if contents(store.connection, f"rewritten.{table}") != contents(
                store.connection, table
            ):
                raise NotAsWritten(f"the copy of {table} is not what was copied")
        store.connection.execute("detach rewritten")
    except (duckdb.Error, OSError, NotAsWritten) as error:
        copy.unlink(missing_ok=True)
        raise StoreError(
            f"the rows are gone, but {store.path} could not be written anew, so that their bytes may still be in it: {error}"
        ) from error
