"""How does a lake stay quick and small? Small files become large ones; what is too old or erased goes, and so do snapshots that nobody reads any more.

Every commit leaves a file in each table that it appends to: 1,500 commits made a scan 17 times slower, and one merge quick again (measured, DuckDB 1.5.5). One
process does this at a time, the one that holds the lease.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from overrun.collector.errors import CollectorError
from overrun.collector.lifecycle.lake_forget import delete_made_since
from overrun.collector.lifecycle.lake_retention import LakeRetention
from overrun.collector.lifecycle.rollups import roll_up
from overrun.collector.process.tracing import tracer
from overrun.collector.store.lake.lake import LakeStore

log = logging.getLogger("overrun.collector")
# The process that maintains renews its lease so often while it is alive, however long a round takes.
LEASE_S, _RENEW_S = 30.0, 10.0
# An answer may read a snapshot for so long, and a file is kept for so long after it has been replaced; for less while somebody is being erased.
KEPT_S, ERASING_KEPT_S = 3_600.0, 600.0
# A file that no snapshot names may be of a commit that is under way: a collector tries for eight seconds, a large merge takes minutes.
ORPHANED_S = 1_800.0
# Files are merged with others of their size, so that a row is rewritten a few times in its life, not each minute: those below so many bytes (0: all), each so many rounds.
_TIERS = ((4 << 20, 1), (64 << 20, 15), (0, 240))
# Of a file with so large a share of deleted rows the rest is written again.
_REWRITE_RATIO = 0.5


@dataclass(frozen=True, slots=True)
class Maintained:
    """What one round did."""

    merged_files: int
    expired_snapshots: int
    deleted_files: int
    ended_erasings: int = 0


@contextmanager
def maintaining(
    store: LakeStore, holder: str, every_s: float, retention: LakeRetention
) -> Iterator[None]:
    """A round every `every_s`, for as long as the block lasts, in the process that holds the lease."""
    ended, holds = threading.Event(), threading.Event()

    def renew() -> None:
        while True:
            try:
                held = store.catalog.claim(holder, LEASE_S, "maintainer") is not None
                (holds.set if held else holds.clear)()
            except CollectorError:
                holds.clear()
            if ended.wait(_RENEW_S):
                return

    def watch() -> None:
        rounds = 0
        while not ended.wait(every_s):
            if not holds.is_set():
                continue
            try:
                with tracer.start_as_current_span("maintain"):
                    retention.round(time.time_ns())
                    fold(store)
                    log.debug("maintained the lake: %s", maintain(store, round_=rounds))
                rounds += 1
            except (duckdb.Error, CollectorError) as error:  # logged and tried again
                log.warning(
                    "the lake was not maintained, trying again: %s", str(error).splitlines()[0]
                )

    threads = [
        threading.Thread(target=run, name=f"overrun-{run.__name__}", daemon=True)
        for run in (renew, watch)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def fold(store: LakeStore) -> None:
    """Fold closed minutes into rollups (rollups.py), as far as everything is assembled."""
    until_s = store.catalog.assembled_until()
    now_ns = time.time_ns() if until_s is None else min(time.time_ns(), int(until_s * 1e9))
    more = True
    with store.catalog.maintaining(), closing(store.cursor()) as connection:
        while more:
            connection.begin()
            more = roll_up(connection, now_ns)
            connection.commit()


def maintain(
    store: LakeStore,
    kept_s: float | None = None,
    orphaned_s: float = ORPHANED_S,
    round_: int = 0,
) -> Maintained:
    """One round: merge files, erase on, let go of snapshots that the assembler has passed and that are older than `kept_s`, and of the files that only they had.

    Raises:
        duckdb.Error, StoreUnavailable: the lake cannot be reached; what was done before stands.
    """
    with store.catalog.maintaining():
        return _maintain(store, kept_s, orphaned_s, round_)


def _maintain(store: LakeStore, kept_s: float | None, orphaned_s: float, round_: int) -> Maintained:
    erasing = _erase_on(store)
    if kept_s is None:
        kept_s = ERASING_KEPT_S if erasing else KEPT_S
    with closing(store.writing()) as connection:

        def done(call: str) -> list[tuple[Any, ...]]:
            return connection.execute(f"call {call}").fetchall()

        merged = _merge(connection, round_)
        done(f"ducklake_rewrite_data_files('lake', delete_threshold => {_REWRITE_RATIO})")
        since = store.catalog.unread_since(kept_s)
        expired = done(f"ducklake_expire_snapshots('lake', older_than => to_timestamp({since:.6f}))")  # fmt: skip
        deleted = [
            row
            for what, age_s in (("cleanup_old", kept_s), ("delete_orphaned", orphaned_s))
            for row in done(
                f"ducklake_{what}_files('lake', older_than => now() - interval '{age_s} seconds')"
            )
        ]
    ended = store.catalog.end_erasings(orphaned_s) if erasing else 0
    return Maintained(merged, len(expired), len(deleted), ended)


def _merge(connection: duckdb.DuckDBPyConnection, round_: int) -> int:
    """How many files became fewer."""
    merged = 0
    for below, every in _TIERS:
        if round_ % every == 0:
            limit = f", max_file_size => {below}" if below else ""
            rows = connection.execute(f"call ducklake_merge_adjacent_files('lake'{limit})")
            merged += sum(int(row[2]) for row in rows.fetchall())
    return merged


def _erase_on(store: LakeStore) -> bool:
    """Where every span of before an erasing is assembled: delete what was made of those in memory, and rewrite the files. Whether there is an erasing."""
    waiting = store.catalog.erasings()
    for one in waiting:
        if one.assembled and not one.rewritten:
            delete_made_since(store, store.catalog.erased(one.number))
            with closing(store.writing()) as connection:
                connection.execute("call ducklake_rewrite_data_files('lake', delete_threshold => 0)").fetchall()  # fmt: skip
            store.catalog.note_rewritten(one.number)
    return bool(waiting)
