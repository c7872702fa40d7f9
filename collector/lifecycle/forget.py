"""How is a person, or a customer, erased? Every trace that carries them goes, with the requests and calls made from it, and every other row with their name.

In a file that no server owns, the rest is then copied to a new file that takes its place: DuckDB marks deleted rows, and their bytes stay in the
file until all rows around them have gone, too. A server that runs does the former at once and leaves the latter to its retention. Either way the name is
looked for afterwards, and how often it was found is part of the answer.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import duckdb

from overrun.collector.access.audit import Audit
from overrun.collector.errors import CollectorError, NotAsWritten, StoreError
from overrun.collector.lifecycle.retention import checkpoint
from overrun.collector.normalise import privacy, wording
from overrun.collector.store.database import (
    BATCH_BITS,
    REWRITTEN,
    connect,
    open_store,
    tables,
)
from overrun.collector.store.proof import contents
from overrun.collector.store.store import Store

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
# A name of fewer characters is found within others by chance: only whole values count then, and bytes are not searched for.
_MIN_SEARCHED = 6


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How much was erased, and how often the name was found afterwards: in rows of the tables, and in the bytes of the file (None: not searched)."""

    traces: int
    spans: int
    requests: int
    points: int = 0
    found_rows: int | None = None
    found_bytes: int | None = None


def forget(
    connection: duckdb.DuckDBPyConnection,
    salt: bytes,
    *,
    user: str | None = None,
    tenant: str | None = None,
) -> Forgotten:
    """Delete every trace with a span of this user (as sent, or as the hash that the views show) or tenant. In a transaction of the caller."""
    wanted = {
        "user_hash": names(salt, user=user),
        "tenant": names(salt, tenant=tenant),
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
    points = _find_points(connection, names(salt, user=user, tenant=tenant))
    _count_less(connection, seen)
    connection.execute(
        f"delete from span_values where seq in (select seq from spans t where {seen})"
    )
    for table in _BY_TRACE:
        connection.execute(f"delete from {table} t where {seen}")
    for table in ("rollups", "rollup_counts") if tenant else ():
        connection.execute(
            f"delete from {table} where list_contains($named, tenant)", {"named": wanted["tenant"]}
        )
    connection.execute("delete from points where rowid in (select row from forgotten_points)")
    _delete_unused(connection)
    connection.execute("drop table forgotten")
    connection.execute("drop table forgotten_points")
    return Forgotten(int(traces), int(spans), int(requests), points)


def names(salt: bytes, *, user: str | None = None, tenant: str | None = None) -> list[str]:
    """The texts by which a file may know a user or a tenant: as sent, hashed as a user, and as what is left of a private text."""
    told = [name for name in (user, tenant) if name]
    hashed = [privacy.user_hash(user, salt)] if user else []
    return [*told, *hashed, *(wording.redacted(name, salt) for name in told)]


def _find_points(connection: duckdb.DuckDBPyConnection, named: list[str]) -> int:
    """Metric points that carry the name as an attribute, of their own or of their resource: their rows in `forgotten_points`."""
    of_source = " or ".join(
        f"list_has_any(map_values({column}), $named)"
        for column in ("resource_attributes", "scope_attributes")
    )
    connection.execute(
        "create or replace temp table forgotten_points as select rowid as row, batch from points "
        "where list_has_any(map_values(attributes), $named) "
        f"or source_id in (select source_id from sources where {of_source})",
        {"named": named},
    )
    [(points,)] = connection.execute("select count(*) from forgotten_points").fetchall()
    return int(points)


def _delete_unused(connection: duckdb.DuckDBPyConnection) -> None:
    """Shapes and sources that no row refers to any more: those of erased rows hold their routes, keys and resource attributes."""
    connection.execute("delete from shapes where shape not in (select shape from spans)")
    used = " union all ".join(
        f"select source_id from {table}" for table in ("shapes", "quarantine", "points")
    )
    connection.execute(f"delete from sources where source_id not in ({used})")


def _count_less(connection: duckdb.DuckDBPyConnection, seen: str) -> None:
    """A commit's number of spans and of points is what is left of it: `overrun doctor` takes what is missing for lost. Not as an update, as in `store.set_meta`."""
    connection.execute(
        "create or replace temp table erased as select batch, sum(s)::bigint as s, sum(p)::bigint as p from ("
        f"select seq >> {BATCH_BITS} as batch, 1 as s, 0 as p from spans t where {seen} "
        "union all select batch, 0, 1 from forgotten_points) group by all"
    )
    connection.execute(
        "create or replace temp table fewer as select batch, received_ns, b.spans - s as spans, b.points - p as points from batches b join erased using (batch)"
    )
    connection.execute("delete from batches where batch in (select batch from erased)")
    connection.execute("insert into batches from fewer")
    connection.execute("drop table erased")
    connection.execute("drop table fewer")


def found_in_tables(connection: duckdb.DuckDBPyConnection, named: Sequence[str]) -> int:
    """How many rows of the store hold one of these names in any text column."""
    columns = connection.execute(
        "select table_name, column_name, data_type from duckdb_columns() "
        "where database_name = current_database() and not internal and data_type similar to '(VARCHAR|MAP).*' "
        "and table_name in (select table_name from duckdb_tables() where database_name = current_database() and not temporary)"
    ).fetchall()
    found = 0
    for table in {table for table, _, _ in columns}:
        holds = [
            _holds(column, kind, f"$n{i}", name)
            for of, column, kind in columns
            if of == table
            for i, name in enumerate(named)
        ]
        query = f"select count(*) from {table} where {' or '.join(holds)}"
        [(rows,)] = connection.execute(
            query, {f"n{i}": name for i, name in enumerate(named)}
        ).fetchall()
        found += int(rows)
    return found


def _holds(column: str, kind: str, parameter: str, name: str) -> str:
    if len(name) >= _MIN_SEARCHED:
        return f'contains("{column}"::varchar, {parameter})'
    if kind.startswith("MAP"):
        return f'list_contains(map_values("{column}"), {parameter})'
    # Packed texts stand between unit separators (normalise/packed_texts.py).
    values = f'"{column}"' if kind.endswith("[]") else f'string_split("{column}", chr(31))'
    return f"list_contains({values}, {parameter})"


def found_in_bytes(path: Path, named: Sequence[str]) -> int | None:
    """How often the bytes of one of these names stand in the file and its log; None if all names are too short for that to mean anything."""
    wanted = [name.encode() for name in named if len(name) >= _MIN_SEARCHED]
    if not wanted:
        return None
    found = 0
    for part in (path, path.with_name(f"{path.name}.wal")):
        if not part.exists() or not part.stat().st_size:
            continue
        with part.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
            for name in wanted:
                at = held.find(name)
                while at >= 0:
                    found += 1
                    at = held.find(name, at + 1)
    return found


def forget_in_file(path: Path, *, user: str | None = None, tenant: str | None = None) -> Forgotten:
    """As `forget`, in a file that no server owns, leaving no byte of it. A link is followed; the file keeps its owner and mode.

    Raises:
        StoreError and its kind: the file cannot be opened, or there is no room for the copy (the file is as it was).
    """
    path = path.resolve()
    store = open_store(path, create=False)
    status = 500
    done, named, salt = Forgotten(0, 0, 0), list[str](), b""
    try:
        deleted = False
        try:
            salt = store.salt()
            named = names(salt, user=user, tenant=tenant)
            store.connection.begin()
            done = forget(store.connection, salt, user=user, tenant=tenant)
            store.connection.commit()
            deleted = True
            store.connection.begin()
            checkpoint(store.connection)
            store.connection.commit()
            # Always: a server may have deleted the rows before, and left the bytes.
            _rewrite(store)
            done = replace(done, found_rows=found_in_tables(store.connection, named))
        except (duckdb.Error, OSError, NotAsWritten) as error:
            # What DuckDB has in memory after a commit or checkpoint that failed is not to be written into the file; its log counts.
            store.suspect = True
            _remove_copy(path)
            raise _unfinished(path, error, deleted=deleted) from error
        finally:
            store.close()
        _put_in_place(_copy_of(path), path)
        done = replace(done, found_bytes=found_in_bytes(path, named))
        status = 200
    except CollectorError as error:
        status = error.http_status
        raise
    finally:
        kind, name = ("user", user) if user else ("tenant", tenant)
        Audit.beside(path).write(
            "forget",
            token="none",  # noqa: S106  # whoever may write the file needs none
            peer=f"this machine, uid {os.getuid()}" if hasattr(os, "getuid") else "this machine",
            what={f"{kind}_hash": privacy.user_hash(name or "", salt)},
            status=status,
            counts={key: n for key, n in asdict(done).items() if n is not None},
        )
    return done


def _put_in_place(copy: Path, path: Path) -> None:
    """The copy takes the place of the file, with its mode and, where this process may give it, its owner."""
    was = path.stat()
    copy.chmod(was.st_mode & 0o7777)
    if hasattr(os, "chown"):
        with contextlib.suppress(PermissionError):
            os.chown(copy, was.st_uid, was.st_gid)
    copy.replace(path)


def _copy_of(path: Path) -> Path:
    return path.with_name(path.name + REWRITTEN)


def _remove_copy(path: Path) -> None:
    """The copy and its log: a disk that is full leaves the one or the other."""
    copy = _copy_of(path)
    for left in (copy, copy.with_name(f"{copy.name}.wal")):
        with contextlib.suppress(OSError):
            left.unlink(missing_ok=True)


def _unfinished(path: Path, error: Exception, *, deleted: bool) -> StoreError:
    """How far an erasing came that failed, and what to do."""
    why = str(error).splitlines()[0]
    if not deleted:
        return StoreError(
            f"nothing was erased from {path}: {why}. Make room on its disk and erase again"
        )
    return StoreError(
        f"the rows are deleted, but {path} could not be rewritten, so their bytes may still be in it: {why}. "
        "Make room for a second copy of the file on its disk and erase again"
    )


def _rewrite(store: Store) -> None:
    """A copy of the file, without what was deleted from it, beside it.

    Raises:
        NotAsWritten, OSError, duckdb.Error: it could not be written.
    """
    _remove_copy(store.path)
    copy = _copy_of(store.path)
    connect(copy).close()
    copy.chmod(0o600)
    [(name,)] = store.connection.execute("select current_database()").fetchall()
    store.connection.execute(f"attach '{str(copy).replace(chr(39), chr(39) * 2)}' as rewritten")
    store.connection.execute(f'copy from database "{name}" to rewritten')
    for table in tables(store.connection):
        if contents(store.connection, f"rewritten.{table}") != contents(store.connection, table):
            raise NotAsWritten(f"the copy of {table} differs from the original")
    store.connection.execute("detach rewritten")
