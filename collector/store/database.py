"""Where is the telemetry kept, and may this process open it? Opens or creates the database file, checks its schema version, makes the views.

DuckDB lets one process write and no other read meanwhile, so a running server leaves its address in `<file>.server`, and a command that finds the
file locked reports where to ask.
"""

from __future__ import annotations

import functools
import glob
import hashlib
import json
import logging
import os
import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import resources
from pathlib import Path

import duckdb

from overrun.collector.errors import (
    StoreError,
    StoreLocked,
    StoreMissing,
    StoreVersion,
)
from overrun.collector.store.store import Store

# The oldest DuckDB that writes a file safely; a lake's files are written once and never changed.
LEAST_DUCKDB: tuple[int, ...] = (2, 0, 1)
log = logging.getLogger("overrun.collector")
IN_MEMORY = ":memory:"  # the path of a database that no file holds
SCHEMA_VERSION = 12  # of the last step in collector/store/schema/
BATCH_BITS = 24  # seq = commit << 24 | row: a commit holds at most 16 M spans
# asof_loop_join_threshold: an ASOF join can hang with the default, and a plain SET is not inherited by cursors.
# Extensions: nothing is downloaded at run time.
# max_vacuum_tasks: the rows of one checkpoint stay a row group of their own. DuckDB otherwise merges neighbours that are not full at every checkpoint: commits
# waited up to 1.8 s for it (measured, 600,000 spans), and the blocks that it leaves made files a quarter larger. Row groups without a row go all the same.
# default_block_size: a checkpoint leaves a block partly filled in each table, so small blocks allow for small, short checkpoints. A file keeps its own.
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "asof_loop_join_threshold": 0,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "max_vacuum_tasks": 0,
    "default_block_size": 65_536,
}
# A checkpoint comes with every so many blocks of log. Commits wait for it, and what is in the log is in memory, too, at six times its size; but the more often
# it comes, the larger is the file (docs/results/ingest.json, "Disk a span, blocks of ...").
_CHECKPOINT_BLOCKS = 160
# The writer asks `log_is_long` between commits; DuckDB itself, in the midst of a commit, waits for so many times as much.
_LATEST = 4
# What DuckDB holds of a file after `settle`. It fills what it is allowed beyond that with blocks of the file, although nothing reads them. The limit itself
# stays as it was: a commit that meets a smaller one fails, and what DuckDB does with its rows then is no longer known
# (tests/collector/ingest/test_failed_commits.py).
SETTLED_MEMORY = "48MB"
# Names of files beside the database that a process may leave behind when it is killed; the next one that opens the database removes them.
REWRITTEN, EXPORT = ".rewritten", ".export-"
# DuckDB's file: three headers of 4,096 bytes, then blocks. Its log: a head of some 40 bytes, then entries whose content begins with field 100, their kind.
_FIRST_BLOCK = 12_288
_MOST_LOG_HEAD = 128
_ENTRY, _ENDINGS = b"d\0", (99, 100)  # of a checkpoint, of a transaction


class FileStore(Store):
    """An open database file. `connection` belongs to the writer thread; all others read through a `cursor()` of its own."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        path: Path,
        *,
        read_only: bool,
        memory_limit: str | None = None,
        reopened: Callable[[], Store] | None = None,
    ) -> None:
        super().__init__(connection, path, read_only=read_only)
        self._memory_limit = memory_limit
        self._reopened = reopened
        [(block_size,)] = connection.execute(
            "select block_size from pragma_database_size()"
        ).fetchall()
        self._long_log = _CHECKPOINT_BLOCKS * int(block_size)
        if not read_only:
            connection.execute(
                "set checkpoint_threshold = $size", {"size": f"{_LATEST * self._long_log}B"}
            )
        self._alone = False

    def settle(self) -> None:
        """Let DuckDB work in the thread that asks it, and give back what it holds of the file beyond SETTLED_MEMORY. Between commits, by the writer alone.

        Nothing is done while a cursor is open. To share the append of a commit with a second thread costs both cores more than it saves: 16 us of CPU a
        span in all instead of 14 and less (measured).
        """
        with self._left:
            if self._readers or self._askers or self._closing:
                return
            with suppress(
                duckdb.Error
            ):  # given up meanwhile, to be reopened; or DuckDB cannot spare that memory now: it is tried again
                if not self._alone:
                    self.connection.execute("set threads = 1")
                    self._alone = True
                if self._memory_limit:
                    self._trim(self._memory_limit)

    def _trim(self, usual: str) -> None:
        """A smaller limit makes DuckDB give memory back at once; the usual one is back before anything else is asked."""
        [(limit,)] = self.connection.execute(
            "select least(parse_formatted_bytes($usual), parse_formatted_bytes($settled))",
            {"usual": usual, "settled": SETTLED_MEMORY},
        ).fetchall()
        try:
            self.connection.execute("set memory_limit = $limit", {"limit": f"{limit}B"})
        finally:
            self.connection.execute("set memory_limit = $limit", {"limit": usual})

    def _prepare(self, cursor: duckdb.DuckDBPyConnection) -> None:
        """The usual number of threads, for a cursor that reads."""
        if self._alone:
            cursor.execute("reset threads")
        self._alone = False

    def explained(self, error: duckdb.Error) -> StoreError | None:
        """As of a damaged file, the remedy."""
        return _explain(self.path, error) if is_damage(error) else None

    def used_bytes(self) -> int:
        """Blocks in use and the write-ahead log."""
        with self.asking() as cursor:
            [(block_size, used_blocks)] = cursor.execute(
                "select block_size, used_blocks from pragma_database_size()"
            ).fetchall()
        log_file = self.path.with_name(self.path.name + ".wal")
        return int(block_size * used_blocks) + (log_file.stat().st_size if log_file.exists() else 0)

    def log_is_long(self) -> bool:
        """Whether it is time for a checkpoint."""
        with suppress(OSError):  # no log, or no file at all
            return os.stat(f"{self.path}.wal").st_size >= self._long_log
        return False

    def close(self) -> None:
        """Close the database (DuckDB checkpoints its log) and take the address note away; remaining readers are interrupted."""
        self.end_reading(patience_s=0.0)
        self._close_connection()
        with suppress(OSError):
            _address_file(self.path).unlink()

    def renew(self) -> bool:
        """Reopen the file if there is no reader: DuckDB keeps notes on what it has written, 10 to 20 bytes a span, until it is closed (2.0.0).

        False: there is a reader; try again later. After a checkpoint this takes some tenths of a second, for which new readers wait.

        Raises:
            StoreError: it cannot be opened any more; `reopen` it later.
        """
        with self._left:
            if self._readers or self._askers or self._closing or self._reopened is None:
                return False
            self.reopen()
            return True

    def reopen(self) -> None:
        """Reopen the file, as its log says it is: after a commit or checkpoint that failed, nothing that DuckDB holds in memory is trusted.

        Cursors that are open are interrupted first: for as long as one is, DuckDB gives a new connection the old memory.

        Raises:
            StoreError: it cannot be opened; try again later.
        """
        if self._reopened is None:
            raise StoreError(f"{self.path} was opened by its connection and cannot be reopened")
        with self._left:
            self._reopening = True
            try:
                if not self._interrupt(self._readers, self._askers):
                    raise StoreError(
                        f"{self.path} must be reopened, but a reader still uses it: try again"
                    )
                self._close_connection()
                self.connection = self._reopened().connection
                self._alone = self.suspect = False
            finally:
                self._reopening = False
                self._left.notify_all()

    def _close_connection(self) -> None:
        if self.suspect:  # or closing would write what is in memory into the file, and drop the log
            with suppress(duckdb.Error):
                self.connection.execute("pragma disable_checkpoint_on_shutdown")
        with suppress(duckdb.Error):
            self.connection.close()

    def announce(self, url: str) -> None:
        """Leave the server's address beside the file, for commands that find it locked."""
        with suppress(OSError):
            _address_file(self.path).write_text(
                json.dumps({"url": url, "pid": os.getpid()}), encoding="utf-8"
            )


def open_store(path: Path, *, create: bool, memory_limit: str | None = None) -> FileStore:
    """Open the database at `path` (`:memory:` is one that no file holds); with `create`, make it (and its folder) if there is none.

    Raises:
        StoreMissing: no file there and `create` is false.
        StoreLocked: another process has it open.
        StoreVersion: written by another schema version.
        StoreError: not a DuckDB database, or a folder or disk that cannot be written.
    """
    exists = str(path) != IN_MEMORY and _holds_something(path)
    if not exists and not create:
        raise StoreMissing.at(path)
    config = dict(_SETTINGS)
    if memory_limit:
        config["memory_limit"] = memory_limit
    read_only = exists and not os.access(path, os.W_OK)
    _check_duckdb(path, read_only=read_only)
    try:
        if not exists and str(path) != IN_MEMORY:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():  # an empty file (mktemp makes one) is no database to DuckDB
                path.unlink()
    except OSError as error:
        raise _explain(path, error) from error
    say_cut_log = _say_cut_log(path)
    connection = connect(path, config, read_only=read_only)
    say_cut_log()
    try:
        if not read_only:
            _remove_leftovers(path)
        if not exists:
            if str(path) != IN_MEMORY:
                path.chmod(0o600)
            make_tables(connection)
        _check_version(connection, path)
        connection.execute("set global TimeZone = 'UTC'")
        if not read_only:
            _make_own_views(connection)
    except duckdb.Error as error:
        connection.close()
        raise _explain(path, error) from error
    except BaseException:
        connection.close()
        raise
    again = functools.partial(open_store, path, create=False, memory_limit=memory_limit)
    return FileStore(
        connection, path, read_only=read_only, memory_limit=memory_limit, reopened=again
    )


def _holds_something(path: Path) -> bool:
    """Whether there is a file with content. StoreError: a folder, or one that may not be looked at."""
    try:
        if path.is_dir():
            raise StoreError(
                f"{path} is a folder: --db needs a file in it, such as {path / 'overrun.db'}"
            )
        return path.exists() and path.stat().st_size > 0
    except OSError as error:
        raise _explain(path, error) from error


def _check_duckdb(path: Path, *, read_only: bool) -> None:
    """Refuse to write a file with a DuckDB that may store rows of a commit which failed for lack of memory in place of later ones (1.5.5 and 2.0.0, test_failed_commits.py)."""
    version = tuple(int(part) for part in duckdb.__version__.split(".")[:3] if part.isdigit())
    if version < LEAST_DUCKDB and not read_only and str(path) != IN_MEMORY:
        raise StoreError(
            f"{path} would be written with DuckDB {duckdb.__version__}, which can mix up rows after a commit that ran out of memory: "
            "pip install 'duckdb>=2.0.1'. A lake (--store) works with this version"
        )


def _remove_leftovers(path: Path) -> None:
    """What a killed process left beside the file, which this one has to itself now: the copy of an erasing, exports that were being written, DuckDB's spilt rows."""
    patterns = (f"{REWRITTEN}", f"{REWRITTEN}.wal", f"{EXPORT}*", ".tmp/duckdb_temp_*")
    for pattern in patterns:
        for left in path.parent.glob(glob.escape(path.name) + pattern):
            with suppress(OSError):
                left.unlink()
                log.info("removed %s, which an earlier process left behind", left)


def _make_own_views(connection: duckdb.DuckDBPyConnection) -> None:
    """The macros and views of this build. Only if the file has others: a disk that is full must not keep a file from being opened."""
    texts = [text for _, text in _sql_files("views")]
    digest = hashlib.blake2b("\0".join(texts).encode(), digest_size=16).hexdigest()
    if connection.execute("select value from meta where key = 'views'").fetchall() == [(digest,)]:
        return
    connection.begin()
    make_views(connection)
    set_meta(connection, "views", digest)
    connection.commit()


def make_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the macros and views of this build."""
    for _, text in _sql_files("views"):
        connection.execute(text)


def macros() -> str:
    """The formulas that views and queries share, as SQL."""
    return dict(_sql_files("views"))["000_macros.sql"]


def set_meta(connection: duckdb.DuckDBPyConnection, key: str, value: str) -> None:
    """Write one of the store's own notes. Not as an update: DuckDB keeps what it changed for those who read, and refuses checkpoints for as long (2.0.0)."""
    connection.execute("delete from meta where key = $key", {"key": key})
    connection.execute("insert into meta values ($key, $value)", {"key": key, "value": value})


def connect(
    path: Path,
    config: Mapping[str, str | bool | int | float | list[str]] = _SETTINGS,
    *,
    read_only: bool = False,
) -> duckdb.DuckDBPyConnection:
    """A connection to the file, of any schema.

    Raises:
        StoreLocked, StoreError: DuckDB refuses to open it; the message has the remedy.
    """
    try:
        return duckdb.connect(str(path), read_only=read_only, config=dict(config))
    except (duckdb.Error, OSError) as error:
        raise _explain(path, error) from error


def steps() -> dict[int, str]:
    """Schema version -> the SQL that leads to it from the one before. A new file takes all of them, an old one those it lacks (migrate.py)."""
    return {int(name[:3]): text for name, text in _sql_files("schema")}


def make_tables(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the tables of a new store."""
    connection.begin()
    for sql in steps().values():
        connection.execute(sql)
    connection.executemany(
        "insert into meta values (?, ?)",
        [
            ("schema_version", str(SCHEMA_VERSION)),
            ("salt", secrets.token_hex(16)),
            ("assembled_through", "0"),
        ],
    )
    connection.commit()


def version_of(connection: duckdb.DuckDBPyConnection, path: Path) -> str:
    """The schema version that the file is stamped with.

    Raises:
        StoreError: a DuckDB database, but not one of ours.
    """
    try:
        found = connection.execute("select value from meta where key = 'schema_version'").fetchall()
    except (
        duckdb.CatalogException,
        duckdb.BinderException,
    ) as error:  # no table `meta`, or somebody else's
        raise StoreError(
            f"{path} is a DuckDB database, but not one of Overrun: choose another --db"
        ) from error
    return str(found[0][0]) if found else "unstamped"


def tables(connection: duckdb.DuckDBPyConnection, database: str | None = None) -> list[str]:
    """The base tables of a database that the connection has open, its own if none is named."""
    query = "select table_name from duckdb_tables() where database_name = coalesce($name, current_database()) and not temporary order by table_name"
    return [str(name) for (name,) in connection.execute(query, {"name": database}).fetchall()]


def is_older(version: str) -> bool:
    """Whether `overrun store migrate` can bring a file of this version up to date."""
    return version.isdigit() and 1 <= int(version) < SCHEMA_VERSION


def _check_version(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    seen = version_of(connection, path)
    if seen != str(SCHEMA_VERSION):
        remedy = (
            f"run `overrun store migrate --db {path}`" if is_older(seen) else "use a newer Overrun"
        )
        raise StoreVersion(
            f"{path} is schema {seen}, this build needs {SCHEMA_VERSION}: {remedy}, or choose another --db"
        )


def _explain(path: Path, error: Exception) -> StoreError:
    """Name the remedy for DuckDB's refusal to open a file."""
    text = str(error)
    first = text.splitlines()[0] if text else type(error).__name__
    if "Could not set lock" in text or "Conflicting lock" in text or "being used by" in text:
        url = server_url(path)
        where = (
            f"ask the server that owns it: --url {url}"
            if url
            else "stop the process that has it open, or copy the file while no process writes to it"
        )
        return StoreLocked(f"{path} is open in another process (DuckDB allows one): {where}")
    save = f"copy the readable rows with `overrun doctor --db {path} --repair NEW.db`, or restore a backup"
    if "WAL" in text:
        return StoreError(
            f"the log {path}.wal is damaged ({first}): part of the telemetry since the last checkpoint cannot be read. Keep a copy of both files, then {save}"
        )
    if "not a valid" in text or "_scanner" in text:
        # DuckDB asks for an extension when it meets an SQLite file.
        return StoreError(
            f"{path} is not a DuckDB database: choose another --db (the file was not changed)"
        )
    if "Could not read enough bytes" in text:
        return StoreError(f"{path} has been cut short ({first}): {save}")
    if is_damage(error):
        what = "header" if _in_header(text) else "block"
        return StoreError(f"a {what} of {path} is damaged ({first}): {save}")
    return StoreError(f"{path} cannot be opened: {first}{_remedy(path, text)}")


def _remedy(path: Path, refusal: str) -> str:
    """What to do about a refusal of the operating system, empty for any other."""
    if "Permission denied" in refusal:
        user = f"user {os.geteuid()}" if hasattr(os, "geteuid") else "this user"
        return f". It has to belong to {user}, and so has its folder: change their owner (chown), or choose another --db"
    if "Read-only file system" in refusal:
        return ". Mount a folder there that can be written, or choose another --db"
    if "No space left" in refusal:
        return f". Free some space on the disk of {path.parent}, or choose another --db"
    return ""


def is_damage(error: Exception) -> bool:
    """Whether DuckDB reports that the file is not as it wrote it."""
    return "orrupt" in str(error) or "checksum" in str(error)


def _in_header(text: str) -> bool:
    """Whether DuckDB names a place before its first block, or none."""
    found = re.search(r"location (\d+)", text)
    return found is None or int(found[1]) < _FIRST_BLOCK


def _say_cut_log(path: Path) -> Callable[[], None]:
    """Look at the log before DuckDB opens it; the result says, once it has been opened, whether its end was cut off.

    DuckDB leaves the last transaction out without a word if the log ends within it. After a crash that is right, because no sender got an answer for it.
    """
    wal = path.with_name(f"{path.name}.wal")
    size = wal.stat().st_size if wal.exists() else 0
    end = whole_transactions(wal) if size else 0

    def say() -> None:
        if end < size:
            log.warning(
                "the log %s ends within an entry: %d of its %d bytes cannot be read, and their transaction is left out. After a crash it was not "
                "acknowledged. If the file was copied or cut, the newest telemetry is lost: send it again, stored spans count once",
                wal,
                size - end,
                size,
            )

    return say


def whole_transactions(wal: Path, before: int | None = None) -> int:
    """The bytes of the log up to the end of its last whole transaction (that ends `before` a byte); all of them if this is not the format that is known (DuckDB 2.0)."""
    size = wal.stat().st_size if before is None else before
    with wal.open("rb") as file:
        head = file.read(_MOST_LOG_HEAD)
        at = _log_head(head)
        if at is None:
            return size if size > _MOST_LOG_HEAD or head.endswith(b"\xff\xff") else 0
        end = at
        while at + 16 <= size:
            file.seek(at)
            length = int.from_bytes(file.read(8), "little")
            file.seek(8, os.SEEK_CUR)
            kind = file.read(3)
            at += 16 + length
            if at > size:
                break
            if kind[:2] == _ENTRY and kind[2] in _ENDINGS:
                end = at
    return end


def _log_head(head: bytes) -> int | None:
    """Where the first entry begins: its size and checksum (8 bytes each, little-endian), then its content."""
    for at in range(8, len(head) - 18):
        if head[at - 2 : at] == b"\xff\xff" and head[at + 16 : at + 18] == _ENTRY:
            return at
    return None


def _address_file(path: Path) -> Path:
    return path.with_name(path.name + ".server")


def server_url(path: Path) -> str | None:
    """The address that the server owning `path` left beside it, if any."""
    try:
        url = json.loads(_address_file(path).read_text(encoding="utf-8"))["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url if isinstance(url, str) else None


@functools.cache
def _sql_files(folder: str) -> tuple[tuple[str, str], ...]:
    root = resources.files("overrun.collector.store") / folder
    names = sorted(entry.name for entry in root.iterdir() if entry.name.endswith(".sql"))
    return tuple((name, (root / name).read_text(encoding="utf-8")) for name in names)


@functools.cache
def sql(name: str) -> str:
    """The text of one query of ours, collector/store/sql/NAME.sql."""
    return (resources.files("overrun.collector.store") / "sql" / f"{name}.sql").read_text(
        encoding="utf-8"
    )
