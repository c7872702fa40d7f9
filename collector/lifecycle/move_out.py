"""How does a file become part of a lake? First part: its tables as Parquet in a folder, some commits at a time, each part with the counts and sums of its rows.

Two steps, as no DuckDB does both: the file is of DuckDB 2, and the lake's extensions are of DuckDB 1.5 (`move_in.py`). A part is complete once its manifest is there, so
what was interrupted goes on; a part whose rows are no longer those of the file is written again.
"""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar

import duckdb
import msgspec

from overrun.collector.errors import StoreError
from overrun.collector.lifecycle.retention import BATCH_TABLES, SEQ_TABLES
from overrun.collector.store.database import BATCH_BITS, SCHEMA_VERSION
from overrun.collector.store.store import Store

# Rows of one part: a commit of the lake.
PART_ROWS: Final = 2_000_000
# What belongs to no commit: the first part.
_WITHOUT_COMMIT: Final = ("shapes", "sources", "rollups", "rollup_counts")
_BY_COMMIT: Final = (*SEQ_TABLES, *BATCH_TABLES, "batches", "incomplete_commits", "bodies")
# Columns that get other numbers in a lake.
RENUMBERED: Final = frozenset({"seq", "batch", "shape"})
MANIFEST: Final = "part.json"
_WHOLE: Final = "file.json"
T = TypeVar("T")


class Part(msgspec.Struct, frozen=True):
    """One part: the commits `first` to `last` (0 and 0: what belongs to none), and per table its rows and what `sums` has of them."""

    number: int
    first: int
    last: int
    tables: dict[str, dict[str, float | str]]


class Whole(msgspec.Struct, frozen=True):
    """A file that was written as parts. `name` is the same each time; `salt` is the key of its user hashes; `rolled_up` is up to when rollups hold every request (ns)."""

    name: str
    schema: int
    salt: str
    last_batch: int
    last_shape: int
    rolled_up: int
    parts: int


def write_parts(store: Store, folder: Path) -> Whole:
    """Write every table to `folder`, and return what was written. The store is to have nothing that waits to be assembled or folded.

    Raises:
        StoreError: the folder has another file's parts, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with store.reading() as con:
            whole = _whole_of(con, store)
            if (seen := read_whole(folder)) is not None and seen.name != whole.name:
                raise StoreError(f"{folder} has parts of another file: choose an empty folder")
            known = parts_in(folder)
            parts = [(0, 0), *_ranges(con)]
            for number, (first, last) in enumerate(parts):
                _write_part(con, folder / f"{number:06d}", number, first, last, known.get(number))
            for number in known.keys() - range(len(parts)):
                shutil.rmtree(folder / f"{number:06d}")
            whole = msgspec.structs.replace(whole, parts=len(parts))
            _put(folder / _WHOLE, msgspec.json.encode(whole))
        return whole
    except OSError as error:
        raise StoreError(
            f"{error.filename or folder} cannot be written: {error.strerror}. Make room there, or choose another folder, and call it again: parts that are complete stay"
        ) from error


def read_whole(folder: Path) -> Whole | None:
    """The file that was written as parts, or None if not all of it was."""
    return _read(folder / _WHOLE, Whole)


def parts_in(folder: Path) -> dict[int, Part]:
    """The complete parts in a folder."""
    found = (_read(path, Part) for path in sorted(folder.glob(f"*/{MANIFEST}")))
    return {part.number: part for part in found if part is not None}


def sums(
    con: duckdb.DuckDBPyConnection, rows: str, given: Mapping[str, object] | None = None
) -> dict[str, float | str]:
    """The number of rows of a query, and of each column that keeps its values a sum: of whole numbers (exact), of others, or of lengths."""
    columns = con.execute(f"describe {rows}", given or {}).fetchall()
    asked = {"rows": "count(*)"}
    for name, kind, *_ in columns:
        if name not in RENUMBERED:
            asked[name] = _sum_of(f'"{name}"', kind)
    found = con.execute(f"select {', '.join(asked.values())} from ({rows})", given or {}).fetchall()
    return {
        name: value if isinstance(value, float) else str(value)
        for name, value in zip(asked, found[0], strict=True)
    }


def differing(found: Mapping[str, float | str], wanted: Mapping[str, float | str]) -> list[str]:
    """The columns whose sums are not the same. Those of numbers that are no whole ones depend on the order of the rows in their last digits."""

    def same(one: float | str | None, other: float | str | None) -> bool:
        if isinstance(one, float) and isinstance(other, float):
            return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
        return one == other

    return [
        name for name in found.keys() | wanted.keys() if not same(found.get(name), wanted.get(name))
    ]


def _sum_of(column: str, kind: str) -> str:
    if kind in ("DOUBLE", "FLOAT"):
        return f"coalesce(sum({column}) filter (where isfinite({column})), 0)::double"
    if kind == "VARCHAR":
        return f"coalesce(sum(strlen({column})), 0) || ' ' || count({column})"
    if kind == "BLOB":
        return f"coalesce(sum(octet_length({column})), 0) || ' ' || count({column})"
    if kind.startswith("MAP") or kind.endswith("[]"):
        size = "cardinality" if kind.startswith("MAP") else "len"
        return f"coalesce(sum({size}({column})), 0) || ' ' || count({column})"
    if kind == "BOOLEAN":
        return f"count(*) filter (where {column}) || ' ' || count({column})"
    # In two halves: the sum of ids of 64 bits overflows nothing then.
    return f"coalesce(sum({column}::hugeint % 4294967296), 0) || ' ' || coalesce(sum({column}::hugeint // 4294967296), 0) || ' ' || count({column})"


def _whole_of(con: duckdb.DuckDBPyConnection, store: Store) -> Whole:
    [(batch, shape, rolled_up)] = con.execute(
        "select (select coalesce(max(batch), 0) from batches), (select coalesce(max(shape), 0) from shapes), "
        "(select coalesce(max(value::bigint), 0) from meta where key = 'rolled_up_through')"
    ).fetchall()
    # Of the salt, which a file keeps for its life, and which is nobody else's business.
    name = hashlib.blake2b(store.salt(), digest_size=8).hexdigest()
    return Whole(name, SCHEMA_VERSION, store.salt().hex(), batch, shape, rolled_up, 0)


def _ranges(con: duckdb.DuckDBPyConnection) -> Iterator[tuple[int, int]]:
    """First and last commit of each part."""
    first = last = rows = 0
    for batch, some in con.execute("select batch, spans + points from batches order by batch").fetchall():  # fmt: skip
        if first and rows + some > PART_ROWS:
            yield first, last
            first = rows = 0
        first, last, rows = first or batch, batch, rows + some
    if first:
        yield first, last


def _rows_of(table: str, first: int, last: int) -> str:
    """The rows of a table that came with these commits, in the order in which they came."""
    if table in _WITHOUT_COMMIT:
        return f"select * from {table}"
    if table in SEQ_TABLES:
        low, high = first << BATCH_BITS, (last + 1) << BATCH_BITS
        return f"select * from {table} where seq >= {low} and seq < {high} order by seq"
    if table == "bodies":
        of = f"(select min(received_ns) from batches where batch = {first}) and (select max(received_ns) from batches where batch = {last})"
        return f"select * from bodies where received_ns between {of}"
    # In the order of the file, which answers go by where values are equal.
    return f"select * from {table} where batch between {first} and {last} order by rowid"


def _write_part(
    con: duckdb.DuckDBPyConnection,
    folder: Path,
    number: int,
    first: int,
    last: int,
    known: Part | None,
) -> None:
    tables = _BY_COMMIT if first else _WITHOUT_COMMIT
    queries = {table: _rows_of(table, first, last) for table in tables}
    made = Part(number, first, last, {table: sums(con, query) for table, query in queries.items()})
    if known is not None and _is_same(made, known):
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for table, query in queries.items():
        path = str(folder / f"{table}.parquet").replace("'", "''")
        con.execute(f"copy ({query}) to '{path}' (format parquet, compression zstd)")
        written = sums(con, f"select * from read_parquet('{path}')")
        if differing(written, made.tables[table]):
            raise StoreError(f"{path} does not hold what was written to it: check that disk, and call it again")  # fmt: skip
    _put(folder / MANIFEST, msgspec.json.encode(made))


def _is_same(one: Part, other: Part) -> bool:
    return (one.first, one.last, one.tables.keys()) == (
        other.first,
        other.last,
        other.tables.keys(),
    ) and not any(differing(sums_of, other.tables[table]) for table, sums_of in one.tables.items())


def _put(path: Path, content: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.chmod(0o600)
    new.replace(path)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, OSError) as error:
        raise StoreError(f"{path} cannot be read ({error}): choose an empty folder, or delete {path.parent} if `overrun store migrate` alone wrote to it") from error  # fmt: skip
