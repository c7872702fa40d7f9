"""How does a file become part of a lake? Second part: the Parquet files that `move_out.py` wrote are appended, each part in one commit, and read back.

A part counts once, whoever repeats it: its name is under a primary key in the commit's own transaction. Commits and shapes get numbers that no collector has.
Nothing is assembled again: requests and calls come with the spans.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb

from overrun.collector.errors import NotAsWritten, StoreError
from overrun.collector.lifecycle.move_out import Part, Whole, differing, parts_in, read_whole, sums
from overrun.collector.lifecycle.rollups import KEY
from overrun.collector.store.database import BATCH_BITS, SCHEMA_VERSION, set_meta
from overrun.collector.store.lake.catalog import MIGRATION
from overrun.collector.store.lake.lake import MOVED_SALTS, LakeStore, sign


@dataclass(frozen=True, slots=True)
class Moved:
    """What a lake has of a file now: parts, of them those of this call, and rows by table, counted in the lake."""

    parts: int
    new_parts: int
    rows: dict[str, int]


def read_parts(folder: Path, store: LakeStore) -> Moved:
    """Append what is in `folder` and not yet in the lake, and read everything back.

    Raises:
        StoreError: the folder is not complete, or of another version. NotAsWritten: the lake does not hold what the file did. duckdb.Error, StoreUnavailable: the
        lake cannot be reached; call it again, what is stored stays.
    """
    whole, parts = whole_in(folder)
    batches, shapes = store.catalog.numbers_for(whole.name, whole.last_batch, whole.last_shape)
    _learn_salt(store, whole)
    present, new, rows = store.catalog.moved(whole.name), 0, dict[str, int]()
    with closing(store.writing()) as connection:
        for number, part in sorted(parts.items()):
            where = folder / f"{number:06d}"
            if number not in present:
                _append(connection, store, part, where, f"{whole.name}:{number}", (batches, shapes))
                new += 1
            for table, n in _checked(connection, part, batches, shapes, whole).items():
                rows[table] = rows.get(table, 0) + n
        _note_rollups(store, connection, whole)
    return Moved(len(parts), new, rows)


def whole_in(folder: Path) -> tuple[Whole, dict[int, Part]]:
    """Return the file in a folder, and all of its parts.

    Raises:
        StoreError: the folder is not complete, or of another version.
    """
    whole, parts = read_whole(folder), parts_in(folder)
    if whole is None or parts.keys() != set(range(whole.parts)):
        raise StoreError(
            f"{folder} does not hold a whole file: `overrun store migrate --db FILE --into {folder}` writes it, or what of it is missing"
        )
    if whole.schema != SCHEMA_VERSION:
        raise StoreError(
            f"{folder} was written by another version (schema {whole.schema}, this one has {SCHEMA_VERSION}): write it again with this one"
        )
    return whole, parts


def _learn_salt(store: LakeStore, whole: Whole) -> None:
    """A lake that was made for this file takes its key of user hashes; another one keeps it beside its own, so that people can still be erased."""
    if bytes.fromhex(whole.salt) in store.salts():
        return
    with store.catalog.deleting(), closing(store.writing()) as connection:
        connection.begin()
        if store.is_new:
            set_meta(connection, "salt", whole.salt)
        else:
            held = connection.execute(f"select value from meta where key = '{MOVED_SALTS}'")
            kept = [str(value) for (value,) in held.fetchall()]
            set_meta(connection, MOVED_SALTS, " ".join([*kept, whole.salt]))
        connection.commit()


def _append(
    connection: duckdb.DuckDBPyConnection,
    store: LakeStore,
    part: Part,
    folder: Path,
    name: str,
    numbers: tuple[int, int],
) -> None:
    with store.catalog.committing():
        connection.begin()
        for table in part.tables:
            path = str(folder / f"{table}.parquet").replace("'", "''")
            if table == "bodies":
                continue
            columns = _columns(connection, path, folder)
            chosen = ", ".join(_renumbered(column, *numbers) for column in columns)
            connection.execute(
                f"insert into {table} ({', '.join(columns)}) select {chosen} from read_parquet('{path}')"
            )
        sign(connection, MIGRATION, name)
        connection.commit()
    if "bodies" in part.tables:
        path = str(folder / "bodies.parquet").replace("'", "''")
        found = connection.execute(f"select hash, received_ns from read_parquet('{path}')")
        store.catalog.add_bodies([(bytes(h), int(ns)) for h, ns in found.fetchall()])


def _columns(connection: duckdb.DuckDBPyConnection, path: str, folder: Path) -> list[str]:
    try:
        found = connection.execute(f"describe select * from read_parquet('{path}')").fetchall()
    except duckdb.Error as error:
        raise StoreError(
            f"{folder} cannot be read ({str(error).splitlines()[0]}): delete it, call `overrun store migrate --db FILE --into {folder.parent}`, then this again"
        ) from error
    return [str(row[0]) for row in found]


def _renumbered(column: str, batches: int, shapes: int) -> str:
    by = {"seq": batches << BATCH_BITS, "batch": batches, "shape": shapes}.get(column)
    return column if by is None else f"{column} + {by}"


def _checked(
    connection: duckdb.DuckDBPyConnection, part: Part, batches: int, shapes: int, whole: Whole
) -> dict[str, int]:
    """The rows of each table of a part, once they and their sums are those of the file."""
    rows = {}
    for table, wanted in part.tables.items():
        where = _where(table, part, batches, shapes, whole)
        if where is None:
            continue
        found = sums(connection, f"select * from {table} where {where}")
        wrong = differing(found, wanted)
        if wrong:
            raise NotAsWritten(
                f"part {part.number} of {table} is not in the lake as it was in the file ({wrong[0]}: {found.get(wrong[0])} in place of {wanted.get(wrong[0])}): "
                "keep the file. If something was deleted or erased from the lake since, that is the difference"
            )
        rows[table] = int(found["rows"])
    return rows


def _where(table: str, part: Part, batches: int, shapes: int, whole: Whole) -> str | None:
    """Which rows of a table are those of a part; None where others may be like them."""
    first, last = part.first + batches, part.last + batches
    if table == "shapes":
        return f"shape > {shapes} and shape <= {shapes + whole.last_shape}"
    if table in ("spans", "span_values"):
        return f"seq >= {first << BATCH_BITS} and seq < {(last + 1) << BATCH_BITS}"
    if table in ("sources", "rollups", "rollup_counts", "bodies"):
        return None
    return f"batch between {first} and {last}"


def _note_rollups(store: LakeStore, connection: duckdb.DuckDBPyConnection, whole: Whole) -> None:
    """Minutes that the file has folded are not folded again."""
    if whole.rolled_up and store.meta(KEY) is None:
        with store.catalog.deleting():
            connection.begin()
            set_meta(connection, KEY, str(whole.rolled_up))
            connection.commit()
