"""When is telemetry stored in a lake, and when is it acknowledged? As in a file (writer.py), but for the commit, which other processes must agree with.

A commit is one PostgreSQL transaction: the snapshot, the list of its files, and the hashes of its bodies under a primary key. A body that another collector has
stored meanwhile fails the commit; the others of its group are then stored without it. After an error whose outcome is unknown the hashes tell it, so what
was acknowledged is stored once. Small commits are dear (26 us of CPU a span at 3,000 spans, 10 at 20,000), so bodies gather for longer.
"""

from __future__ import annotations

import logging
import random
import time
from collections import OrderedDict

import duckdb

from overrun.collector.config import CollectorSettings
from overrun.collector.errors import CollectorError, StoreUnavailable
from overrun.collector.ingest.cardinality import Sources
from overrun.collector.ingest.quiet_traces import QuietTraces
from overrun.collector.ingest.writer import HASH_AGE_S, Group, Job, Waiting, Writer, rollback
from overrun.collector.normalise.spans import Rules
from overrun.collector.store.lake.catalog import COLLECTOR
from overrun.collector.store.lake.lake import LakeStore, sign
from overrun.collector.store.layout import Shapes
from overrun.collector.store.proof import Claims

log = logging.getLogger("overrun.collector")
# A body waits so long for others since it came.
GATHER_S = 0.5
# A group that PostgreSQL or the object store refuses is tried again for so long; then its senders are asked to come again.
_TRY_S = 8.0
_FORGET_S = 600.0


class LakeWriter(Writer):
    """The writer of one collector of a lake."""

    def __init__(self, store: LakeStore, settings: CollectorSettings, rules: Rules) -> None:
        self._lake, self._catalog = store, store.catalog
        self._swept = 0
        self._forgot_s = time.monotonic()
        super().__init__(store, settings, rules, QuietTraces())
        # Half of what may wait: the other half comes while this commits.
        self._commit_bytes = max(self._commit_bytes, self.queue_bytes // 2)

    def _load_from(self, cursor: duckdb.DuckDBPyConnection) -> None:
        [(last,)] = cursor.execute("select coalesce(max(batch), 0) from batches").fetchall()
        self._last_batch = int(last)
        self._hashes = OrderedDict()
        self._shapes = Shapes(
            0,
            self._new_shapes.take,
            lambda n: self._count_cut("shapes", n),
            self._catalog.reserve_shapes,
        )
        self._ends = {}
        rows = cursor.execute("select source_id, service from sources").fetchall()
        self._sources = Sources(
            {int(row[0]) for row in rows}, {str(row[1]) for row in rows}, self._new_sources
        )

    @property
    def changes(self) -> int:
        """The newest snapshot: while it stands, a question over a fixed window has the same answer."""
        return self._catalog.newest_snapshot()

    def _linger(self) -> bool:
        while self._bodies and not self._closing and self._waiting_bytes < self._commit_bytes:
            left = self._bodies[0].came_s + GATHER_S - time.monotonic()
            if left <= 0:
                break
            self._wake.wait(left)
        return True

    def _stored(self, digests: list[bytes]) -> set[bytes]:
        known = super()._stored(digests)
        return known | self._catalog.stored([d for d in digests if d not in known])

    def _take_in(self, bodies: list[Waiting]) -> tuple[Group, list[Waiting]]:
        until_s, pause_s = time.monotonic() + _TRY_S, 0.05
        group: Group | None = None
        repeats: list[Waiting] = []
        while True:
            try:
                if group is None or self._stored([body.digest for body in group.bodies]):
                    group, repeats = self._decode([b for b in bodies if not b.future.done()])
                if group.bodies:
                    self._store_group(group)
                return group, repeats
            except (duckdb.Error, StoreUnavailable) as error:
                rollback(self._lake.connection)
                if time.monotonic() > until_s or isinstance(error, duckdb.FatalException):
                    raise
                log.info("a commit failed, trying again: %s", str(error).splitlines()[0])
                time.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, 1.0)

    def _store_group(self, group: Group) -> None:
        connection, now_ns = self._lake.connection, time.time_ns()
        with self._catalog.committing() as turn:
            batch = turn.number
            self._learn_anew_after(turn.swept)
            laid_out = self._lay_out(group, batch)
            connection.begin()
            self._append_group(group, laid_out, batch, Claims())
            self._append_batch(batch, now_ns, laid_out)
            hashes = ",".join(body.digest.hex() for body in group.bodies)
            sign(connection, COLLECTOR, f"{turn.swept};{hashes}")
            connection.commit()
        self.refusal = None
        self._remember(laid_out)
        self._committed(group, batch, laid_out.count, len(laid_out.points))

    def _learn_anew_after(self, swept: int) -> None:
        """Where shapes and sources have been deleted: which of those that were stored are still there?"""
        if swept != self._swept:
            self._load_state()
            self._swept = swept

    def _note_traces(self, group: Group, batch: int, now_s: float) -> None:
        """Nothing: the assembler reads from the lake what every collector has stored."""

    def _run_job(self, job: Job) -> None:
        job.future.set_exception(
            StoreUnavailable("a lake is changed by its collectors and its assembler alone")
        )

    def _checkpoint(self) -> None:
        """Now and then, delete the hashes of bodies that may come again as new ones."""
        if time.monotonic() - self._forgot_s >= _FORGET_S:
            self._forgot_s = time.monotonic()
            try:
                self._catalog.forget_bodies(HASH_AGE_S)
            except CollectorError as error:
                log.warning("old hashes were not deleted: %s", error)

    def _reopen_after(self, error: Exception) -> None:
        """Nothing: a lake's state is in PostgreSQL, and the connection to it comes back by itself."""
