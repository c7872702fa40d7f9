"""What do `overrun store lake` and `overrun store migrate --into` print? Opens the lake or the file, calls one function of the collector, and makes lines of what it returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from overrun.analysis.assembly.assemble import assemble
from overrun.analysis.words.encoding import encode
from overrun.collector.config import Settings
from overrun.collector.errors import ConfigError, StoreError, StoreUnavailable
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.lifecycle import lake_status
from overrun.collector.lifecycle.forget import Forgotten
from overrun.collector.lifecycle.lake_forget import forget_and_note
from overrun.collector.lifecycle.move_in import read_parts, whole_in
from overrun.collector.lifecycle.move_out import write_parts
from overrun.collector.lifecycle.rollups import roll_up
from overrun.collector.store.database import open_store
from overrun.collector.store.lake.address import LakeAddress
from overrun.collector.store.lake.lake import LakeStore, open_lake
from overrun.collector.store.proof import Claims

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


@contextmanager
def _opened(settings: Settings, *, create: bool = False) -> Iterator[LakeStore]:
    """The lake of the settings.

    Raises:
        ConfigError: none is named. StoreError, StoreUnavailable: it cannot be reached.
    """
    if not settings.collector.store:
        raise ConfigError("no lake is named: give --store ducklake:postgresql://...?data=FOLDER")
    store = open_lake(LakeAddress.read(settings.collector.store), memory_limit=settings.collector.memory_limit, create=create)  # fmt: skip
    try:
        yield store
    except duckdb.Error as error:
        raise StoreUnavailable(f"{store.address} does not answer: {str(error).splitlines()[0]}") from error  # fmt: skip
    finally:
        store.close()


def status(settings: Settings, *, as_json: bool) -> str:
    """What a lake holds, and who works on it."""
    with _opened(settings) as store:
        found = lake_status.status(store)
    if as_json:
        return encode(found).decode()
    lines = [f"{'table':<20}{'rows':>16}{'files':>8}{'size':>10}"]
    lines += [
        f"{table.name:<20}{table.rows:>16,}{table.files:>8,}{_size(table.bytes):>10}"
        for table in found.tables
        if table.rows
    ]
    total = sum(table.bytes for table in found.tables)
    lines.append(f"{'':<20}{'':>16}{sum(t.files for t in found.tables):>8,}{_size(total):>10}")
    lines.append(f"snapshots: {found.snapshots:,}, the oldest {_ago(found.oldest_snapshot_s)}")
    lines.append(f"newest telemetry: {_ago(found.newest_telemetry_s)}")
    lines.append(f"assembled: {'all of it' if found.waiting_s is None else f'all but the last {found.waiting_s:.0f} s'}")  # fmt: skip
    lines += [f"{name}: {holder or 'nobody'}" for name, holder in found.holders.items()]
    lines.append(f"files that wait to be deleted: {found.files_to_delete:,}")
    lines.append(f"erasings that are not complete: {found.erasings:,}")
    return "\n".join(lines)


def compact(settings: Settings) -> str:
    """One round of maintenance."""
    with _opened(settings) as store:
        done = lake_status.compact(store)
    return f"merged {done.merged_files:,} files, let go of {done.expired_snapshots:,} snapshots, deleted {done.deleted_files:,} files"


def verify(settings: Settings, *, as_json: bool) -> tuple[str, bool]:
    """The checks of a lake, and whether all of them hold."""
    with _opened(settings) as store:
        checks = lake_status.verify(store)
    whole = all(check.wrong == 0 for check in checks)
    if as_json:
        return encode(checks).decode(), whole
    lines = [f"{'ok' if c.wrong == 0 else 'WRONG':<7}{c.of - c.wrong:,} of {c.of:,} {c.what}" for c in checks]  # fmt: skip
    if len(checks) == 1:
        lines.append("the rows were not read, because files are missing: restore them from a copy of the folder or bucket")  # fmt: skip
    return "\n".join(lines), whole


def forget(settings: Settings, *, user: str | None, tenant: str | None) -> Forgotten:
    """Erase a user or a tenant from a lake."""
    with _opened(settings) as store:
        return forget_and_note(store, user=user, tenant=tenant)


def move_out(settings: Settings, db: Path, folder: Path) -> str:
    """Write a file as parts, once all of it is assembled and folded."""
    store = open_store(db, create=False, memory_limit=settings.collector.memory_limit)
    file = Pipeline(store, settings.collector, settings.privacy, assemble, settings.words)
    try:
        file.drain()
        while file.writer.call(lambda con: roll_up(con, file.clock.now(), Claims())).result():
            pass
        whole = write_parts(store, folder)
    except duckdb.Error as error:
        raise StoreError(f"{db} cannot be read: {str(error).splitlines()[0]}") from error
    finally:
        file.close()
    return f"{db} is in {folder} as {whole.parts:,} parts: `overrun store migrate {folder} --into STORE` moves them into a lake, where overrun[lake] is installed"


def move_in(settings: Settings, folder: Path) -> str:
    """Append the parts of a file to a lake, and read them back."""
    whole_in(folder)  # a wrong folder makes no lake
    with _opened(settings, create=True) as store:
        done = read_parts(folder, store)
    rows = ", ".join(f"{done.rows.get(name, 0):,} {name}" for name in ("spans", "requests", "points"))  # fmt: skip
    return f"{done.parts:,} parts are in the lake ({done.new_parts:,} new), with the counts and sums of the file: {rows}"


def _size(n: float) -> str:
    for unit in _UNITS:
        if n < 1000 or unit == _UNITS[-1]:
            return f"{n:,.0f} {unit}" if unit == "B" else f"{n:,.1f} {unit}"
        n /= 1000
    raise AssertionError


def _ago(seconds: float | None) -> str:
    if seconds is None:
        return "none"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit} ago"
    return f"{seconds:.0f} s ago"
