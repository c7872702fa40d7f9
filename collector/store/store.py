"""What is a store to those who write to it and read from it? The one interface in front of a database file (database.py) and of a lake (lake/).

Answers read through cursors of their own, which a store that closes waits for and then interrupts. What only a file needs (checkpoints, memory to give back,
to be reopened) is nothing to do here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

from overrun.collector.errors import StoreError, StoreUnavailable

# A server that ends lets those who read finish for so long.
_PATIENCE_S = 3.0
# How long a closing store waits for the cursors that it has interrupted: between two questions they do not notice.
_READERS_S = 10.0


class Store:
    """An open store. `connection` belongs to the writer thread; all others read through a `cursor()` of its own.

    `path` is the database file; of a lake, the name under which files beside it are kept.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, path: Path, *, read_only: bool
    ) -> None:
        self.connection = connection
        self.path = path
        self.read_only = read_only
        self._readers: set[duckdb.DuckDBPyConnection] = set()
        self._askers: set[duckdb.DuckDBPyConnection] = set()
        self._left = threading.Condition()
        self._closing = self._reopening = False
        self.suspect = False  # whether a commit has failed since the file was opened: what DuckDB holds in memory may be wrong, only its log counts

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own to the same database: snapshot reads beside the writer. Close it after use; while it is open, so is the file."""
        with self._left:
            return self.connection.cursor()

    @contextmanager
    def asking(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor for a few short questions of the server's own: unlike those of `reading`, they are neither waited for nor interrupted at its end."""
        with self._left:
            self._left.wait_for(lambda: not self._reopening)
            cursor = self.cursor()
            self._askers.add(cursor)
        try:
            yield cursor
        finally:
            self._leave(cursor)
            with self._left:
                self._askers.discard(cursor)
                self._left.notify_all()

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor that sees one snapshot for as long as the block lasts; when the store closes meanwhile, its questions fail.

        Raises:
            StoreUnavailable: the store is closing.
        """
        with self._left:
            self._left.wait_for(lambda: not self._reopening)
            if self._closing:
                raise StoreUnavailable("the server is shutting down")
            cursor = self.cursor()
            self._readers.add(cursor)
            self._prepare(cursor)
        try:
            cursor.begin()
            yield cursor
            cursor.rollback()
        except duckdb.InterruptException as error:
            if self._closing:
                raise StoreUnavailable("the server is shutting down") from error
            if self.suspect:
                raise StoreUnavailable(
                    "the database was reopened after a failed commit: ask again"
                ) from error
            raise
        except duckdb.Error as error:
            if explained := self.explained(error):
                raise explained from error
            raise
        finally:
            self._leave(cursor)
            with self._left:
                self._readers.discard(cursor)
                self._left.notify_all()

    def salt(self) -> bytes:
        """The random key of this store's user hashes; made with the store."""
        return bytes.fromhex(self.meta("salt") or "")

    def meta(self, key: str) -> str | None:
        """One value of the store's own notes."""
        with self.asking() as cursor:
            row = cursor.execute("select value from meta where key = $key", {"key": key}).fetchone()
        return None if row is None else str(row[0])

    def end_reading(self, patience_s: float = _PATIENCE_S) -> None:
        """Admit no new reader, wait `patience_s` for the present ones, then interrupt them.

        DuckDB refuses to close a database that is being read, and a thread inside of it would end the process with an abort.
        """
        with self._left:
            self._closing = True
            self._left.wait_for(lambda: not self._readers, patience_s)
            self._interrupt(self._readers)

    def _interrupt(self, *cursors: set[duckdb.DuckDBPyConnection]) -> bool:
        """End the questions of these cursors; whether all of them were closed in time."""
        until_s = time.monotonic() + _READERS_S
        while (
            open_ones := [cursor for some in cursors for cursor in some]
        ) and time.monotonic() < until_s:
            for cursor in open_ones:
                with suppress(duckdb.Error):
                    cursor.interrupt()
            self._left.wait(0.05)
        return not open_ones

    def close(self) -> None:
        """Close the store; remaining readers are interrupted."""
        self.end_reading(patience_s=0.0)
        with suppress(duckdb.Error):
            self.connection.close()

    def announce(self, url: str) -> None:
        """Leave the server's address where commands look that cannot open the store."""

    def settle(self) -> None:
        """Give back memory. Between commits, by the writer alone."""

    def used_bytes(self) -> int:
        """What the store takes."""
        return 0

    def log_is_long(self) -> bool:
        """Whether it is time for a checkpoint."""
        return False

    def renew(self) -> bool:
        """Reopen the store if that frees memory and there is no reader. False: there is one; try again later."""
        return True

    def reopen(self) -> None:
        """Reopen the store after a commit that failed, where what DuckDB holds in memory cannot be trusted.

        Raises:
            StoreError: it cannot be opened; try again later.
        """

    def explained(self, error: duckdb.Error) -> StoreError | None:
        """The error with its remedy, where the store knows one."""
        del error
        return None

    def _prepare(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Make a cursor ready for a question."""

    def _leave(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """Close a cursor after its question."""
        cursor.close()
