"""How is a form's SQL run without letting it do anything but select? A database of its own in memory, locked before a row is in it.

The file is read before and handed over as values: the database may open no file and no address, load no extension, change no setting, and use bounded memory
and time. A map from somebody else runs in a process of its own besides (`child`), as DuckDB counts what it computes while planning nowhere.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

import duckdb
import pyarrow as pa

from overrun.collector.errors import BadPayload

MEMORY_LIMIT: Final = "1GB"
SECONDS: Final = 120.0  # of one SELECT over one batch: 32 MiB take 3 s
MOST_ROWS: Final = 20_000_000  # that one file may become
_AT_ONCE: Final = 2_000  # rows fetched
# The keys of a JSON object with their values.
_ENTRIES: Final = """create temp macro entries(object) as list_transform(json_keys(object),
    lambda k: {'key': k, 'value': json_extract(object, '$."' || replace(replace(k, '\\', '\\\\'), '"', '\\"') || '"')})"""
_PIECE: Final = 1 << 20  # characters
_GIVEN: Final = pa.schema([("given", pa.large_string()), ("at_ns", pa.int64())])
_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "threads": 1,
    "memory_limit": MEMORY_LIMIT,
    "temp_directory": "",
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


def check(sql: str) -> str:
    """The one SELECT that a map is.

    Raises:
        BadPayload: it is no SQL, more than one statement, or another one than SELECT.
    """
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise BadPayload(f"the map is no SQL: {_said(error)}") from error
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(one.type.name for one in statements) or "nothing"
        raise BadPayload(f"a map is one SELECT, not {kinds}")
    return str(statements[0].query)


class Locked:
    """A locked database that holds one batch of a file at a time, as `f`."""

    def __init__(self, column: str, kind: str, written_ns: int) -> None:
        self._column, self._kind = column, kind
        self._connection = duckdb.connect(":memory:", config=_CONFIG)
        self._connection.execute("set TimeZone = 'UTC'")
        self._connection.execute(
            "create temp table file as select $at::bigint as written_ns, $east::bigint as utc_offset_s",
            {"at": written_ns, "east": time.localtime(written_ns / 1e9).tm_gmtoff},
        )
        self._connection.execute(_ENTRIES)
        self._connection.execute("set enable_external_access = false")
        self._connection.execute("set lock_configuration = true")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def select(
        self, sql: str, batch: Sequence[str], times: Sequence[int | None] | None = None
    ) -> Iterator[dict[str, Any]]:
        """The rows that a SELECT makes of a batch, of lines with the times at which they were written (ns since 1970).

        Raises:
            BadPayload: it fails, takes too long or too much memory, or makes too many rows.
        """
        late = threading.Timer(SECONDS, self._connection.interrupt)
        late.daemon = True
        late.start()
        try:
            self._load(batch, times)
            made = self._connection.execute(sql)
            names = [column[0] for column in made.description or ()]
            count = 0
            while listed := made.fetchmany(_AT_ONCE):
                count += len(listed)
                if count > MOST_ROWS:
                    raise BadPayload(f"the map makes more than {MOST_ROWS:,} rows")
                yield from (dict(zip(names, row, strict=True)) for row in listed)
        except duckdb.InterruptException as error:
            raise BadPayload(f"the map was still at work after {SECONDS:.0f} s") from error
        except (duckdb.Error, OverflowError, ValueError) as error:
            raise BadPayload(f"the map cannot be run: {_said(error)}") from error
        finally:
            late.cancel()

    def _load(self, batch: Sequence[str], times: Sequence[int | None] | None) -> None:
        given = pa.Table.from_batches(list(_pieces(batch, times)), _GIVEN)
        self._connection.register("given", given)
        self._connection.execute(
            "create or replace temp view f as select (row_number() over ())::bigint as number, "
            f"try_cast(given as {self._kind}) as {self._column}, at_ns from given"
        )


def _pieces(batch: Sequence[str], times: Sequence[int | None] | None) -> Iterator[pa.RecordBatch]:
    """The rows of a batch, few at a time where they are long: what an expression parses is kept until it has seen all rows that come together."""
    at = 0
    while at < len(batch):
        end, size = at, 0
        while end < len(batch) and (end == at or size < _PIECE):
            size += len(batch[end])
            end += 1
        moments = times[at:end] if times else [None] * (end - at)
        yield pa.RecordBatch.from_arrays(
            [pa.array(batch[at:end], pa.large_string()), pa.array(moments, pa.int64())],
            schema=_GIVEN,
        )
        at = end


def _said(error: Exception) -> str:
    return " ".join(str(error).removeprefix("Invalid Input Error: ").split())[:300]
