"""How does a lake stay quick? Small files become large ones, and snapshots that nobody reads any more go, with the files that only they had.

Every commit leaves a file in each table that it appends to: 1,500 commits made a scan 17 times slower, and one merge quick again (measured, DuckDB 1.5.5). One
process does this at a time. It neither deletes nor changes a row, so no writer is in its way.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from overrun.collector.errors import CollectorError
from overrun.collector.process.tracing import tracer
from overrun.collector.store.lake.lake import LakeStore

log = logging.getLogger("overrun.collector")
# Commits come every half second: some hundred files a table between two merges.
EVERY_S = 60.0
LEASE_S = 600.0
# An answer may read a snapshot for so long, and a file is kept for so long after it has been replaced.
KEPT_S = 3_600.0
# A file that no snapshot names may be of a commit that is under way.
_ORPHANED = "interval '1 day'"


@dataclass(frozen=True, slots=True)
class Maintained:
    """What one round did."""

    merged_files: int
    expired_snapshots: int
    deleted_files: int


@contextmanager
def maintaining(store: LakeStore, holder: str) -> Iterator[None]:
    """A round every EVERY_S, for as long as the block lasts, in the process that holds the lease."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(EVERY_S):
            try:
                if store.catalog.claim(holder, LEASE_S, "maintainer"):
                    with tracer.start_as_current_span("maintain"):
                        log.debug("maintained the lake: %s", maintain(store))
            except (duckdb.Error, CollectorError) as error:  # logged and tried again
                log.warning(
                    "the lake was not maintained, trying again: %s", str(error).splitlines()[0]
                )

    thread = threading.Thread(target=watch, name="overrun-maintainer", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def maintain(store: LakeStore, kept_s: float = KEPT_S) -> Maintained:
    """One round: merge files, let go of snapshots that the assembler has passed and that are older than `kept_s`, and of the files that only they had.

    Raises:
        duckdb.Error, StoreUnavailable: the lake cannot be reached; what was done before stands.
    """
    since = store.catalog.unread_since(kept_s)
    connection = store.writing()

    def done(what: str, older: str) -> list[tuple[Any, ...]]:
        return connection.execute(f"call {what}('lake', older_than => {older})").fetchall()

    try:
        merged = connection.execute("call ducklake_merge_adjacent_files('lake')").fetchall()
        expired = done("ducklake_expire_snapshots", f"to_timestamp({since:.6f})")
        kept = f"now() - interval '{kept_s} seconds'"
        deleted = done("ducklake_cleanup_old_files", kept)
        deleted += done("ducklake_delete_orphaned_files", f"now() - {_ORPHANED}")
    finally:
        connection.close()
    return Maintained(sum(int(row[2]) for row in merged), len(expired), len(deleted))
