"""How long does a lake keep telemetry? As a file does (retention.py): what was received longest ago goes first. But the maintainer alone deletes, some commits' rows at a time.

While it does, no collector commits (`Catalog.deleting`): DuckLake would refuse one of the two. A file whose rows all go is dropped without being read again, so a
little more than the age is kept, and much goes at once. The bytes go with the last snapshot that has them (lake_maintenance.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Final, TypeVar

import duckdb

from overrun.collector.config import RetentionSettings
from overrun.collector.ingest.lake_writer import LakeWriter
from overrun.collector.ingest.writer import rollback
from overrun.collector.lifecycle.retention import BATCH_TABLES, SEQ_TABLES, Retention
from overrun.collector.store.database import BATCH_BITS
from overrun.collector.store.lake.lake import LakeStore

# Kept beyond the age, so that the oldest goes in fifty parts: each leaves a file of which a part is deleted.
_LATER_RATIO: Final = 0.02
# A row of `superseded` makes each answer over requests a little slower; so many of them and what they hide are deleted.
_MOST_HIDDEN: Final = 20_000
_REPEATS: Final = 5
T = TypeVar("T")
_OF_TRACE: Final = "s.trace_hi = r.trace_hi and s.trace_lo = r.trace_lo"


class LakeRetention(Retention):
    """Lets go of what is too old or too much of a lake. Of the process that maintains it."""

    # Some tenths of a second, for which commits wait.
    chunk_rows = 5_000_000

    def __init__(self, store: LakeStore, writer: LakeWriter, settings: RetentionSettings) -> None:
        super().__init__(store, writer, settings)
        self._lake = store
        self._later_ns = int(self._max_age_ns * _LATER_RATIO)

    def _too_old(self, now_ns: int) -> int:
        [(oldest_ns,)] = self._ask("select coalesce(min(received_ns), 0) from batches", {})
        if oldest_ns + self._max_age_ns + self._later_ns > now_ns:
            return 0
        return super()._too_old(now_ns)

    def _let_go(self, first: int, last: int) -> None:
        with closing(self._lake.writing()) as connection:
            alone(self._lake, connection, lambda: delete_commits(connection, first, last))

    def _sweep(self, now_ns: int, expired: bool) -> None:
        if expired:
            sweep(self._lake)
        replaced(self._lake)

    def _give_back(self) -> None:
        """Nothing: files that have no rows any more are deleted with their snapshots."""

    def _note_leap(self) -> None:
        """Nothing: the newest commits of all collectors show what time it is."""

    def _note_cuts(self, now_ns: int) -> None:
        """Nothing: each collector counts its own, for its metrics page."""


def alone(store: LakeStore, connection: duckdb.DuckDBPyConnection, run: Callable[[], T]) -> T:
    """Run one transaction that deletes, while no writer commits. Maintenance may have merged or rewritten a file meanwhile; then it is repeated.

    Raises:
        duckdb.Error, StoreUnavailable: the lake cannot be reached, or it was repeated too often; nothing is deleted.
    """
    for last in (*(False,) * _REPEATS, True):
        try:
            with store.catalog.deleting():
                connection.begin()
                done = run()
                connection.commit()
                return done
        except duckdb.TransactionException:
            rollback(connection)
            if last:
                raise
    raise AssertionError


def delete_commits(connection: duckdb.DuckDBPyConnection, first: int, last: int) -> None:
    """Delete the rows of these commits, in the transaction of a caller who is `deleting`."""
    low, high = first << BATCH_BITS, (last + 1) << BATCH_BITS
    for table in SEQ_TABLES:
        connection.execute(f"delete from {table} where seq >= {low} and seq < {high}")
    # What a row of `superseded` hides came with an earlier commit and is gone.
    for table in (*BATCH_TABLES, "superseded", "batches"):
        connection.execute(f"delete from {table} where batch between {first} and {last}")


def sweep(store: LakeStore) -> tuple[int, int]:
    """Delete shapes and sources that no row refers to. Collectors then store those that they use again; how many went."""
    with store.catalog.deleting():
        # From now on no commit refers to one of these shapes that was not stored by then.
        bound = store.catalog.count_sweep()
    used_shapes = f"select shape from spans where shape <= {bound}"
    used_sources = " union all ".join(
        f"select source_id from {table}" for table in ("shapes", "quarantine", "points")
    )
    with closing(store.writing()) as connection:
        connection.execute(f"create or replace temp table used as select distinct * from ({used_shapes})")  # fmt: skip

        def delete() -> tuple[int, int]:
            store.catalog.count_sweep()
            [(shapes,)] = connection.execute(
                f"delete from shapes where shape <= {bound} and shape not in (from used)"
            ).fetchall()
            [(sources,)] = connection.execute(
                f"delete from sources where source_id not in ({used_sources})"
            ).fetchall()
            return int(shapes), int(sources)

        return alone(store, connection, delete)


def replaced(store: LakeStore, most: int = _MOST_HIDDEN) -> int:
    """Delete the rows of requests and calls that newer ones have replaced, where they are more than `most`; how many went."""
    with closing(store.writing()) as connection:
        [(hidden,)] = connection.execute("select count(*) from superseded").fetchall()
        if hidden <= most:
            return 0

        def delete() -> int:
            gone = 0
            for table in ("requests", "llm_calls"):
                [(n,)] = connection.execute(
                    f"delete from {table} r where exists (select 1 from superseded s where {_OF_TRACE} and r.batch < s.batch)"
                ).fetchall()
                gone += n
            connection.execute("delete from superseded")
            return gone

        return alone(store, connection, delete)
