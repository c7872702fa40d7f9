"""How do the spans of a lake become request rows? One process assembles what all collectors have stored; others stand by (`overrun serve --role`).

The process that holds the lease reads the spans of each new snapshot, in the order of the snapshots, and keeps them in memory until their traces are quiet.
Its rows are appended in one commit with the mark up to which everything is assembled. The trigger of catalog.sql refuses the commit if the lease has gone to
another process, which begins at the mark. A row of before is not deleted (that would fail every writer beside it): `superseded` hides it.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from overrun.collector.config import CollectorSettings, PrivacySettings
from overrun.collector.dialects import Dialect
from overrun.collector.errors import CollectorError, StoreUnavailable
from overrun.collector.ingest.lake_writer import LakeWriter
from overrun.collector.ingest.pipeline import latest_start, rules_of
from overrun.collector.ingest.quiet_traces import LOOK_BACK_NS, QuietTraces, Seen
from overrun.collector.ingest.recent_rows import Recent
from overrun.collector.ingest.response_ids import ResponseIds
from overrun.collector.ingest.rounds import MAX_TRACES, POLL_S, Assemble, Assembled, Assembling
from overrun.collector.ingest.writer import ASSEMBLED, append, rollback
from overrun.collector.normalise import stages
from overrun.collector.normalise.stages import MODEL_ROLES
from overrun.collector.process import footprint
from overrun.collector.process.steady_clock import SteadyClock
from overrun.collector.store.answers import fetch_table
from overrun.collector.store.lake.address import LakeAddress
from overrun.collector.store.lake.catalog import ASSEMBLER, Lease
from overrun.collector.store.lake.lake import LakeStore, open_lake, sign

log = logging.getLogger("overrun.collector")
# A process that has not renewed its lease for so long has lost it.
LEASE_S = 10.0
# Spans of the last twenty minutes before the mark whose traces are remembered when a process takes over; more would take it longer than looking for them.
_MOST_KNOWN = 3_000_000
# Snapshots read at once: some 20,000 spans each.
_SNAPSHOTS = 8
# What the model calls among `spans` and `valued` may share with those of other traces (reading.joining_ids), and when they started.
_IDS = (
    "select start_ns, id from (select s.start_ns, unnest([v.response_id, v.depends_on]) as id from valued v join spans s using (seq) "
    f"join shapes h using (shape) where h.role in ({', '.join(map(str, MODEL_ROLES.to_pylist()))})) where id is not null"
)


class LakePipeline(Assembling):
    """A lake with its writer; with `assembles`, a thread that assembles while it holds the lease, until `close`."""

    writer: LakeWriter

    def __init__(
        self,
        store: LakeStore,
        settings: CollectorSettings,
        privacy: PrivacySettings,
        assemble: Assemble,
        words: Dialect | None = None,
        *,
        assembles: bool = True,
    ) -> None:
        super().__init__(assemble, settings.quiet_s)
        stages.learn(words)
        self.store = self.lake = store
        self._catalog = store.catalog
        self.clock = SteadyClock()
        self._max_age_s = settings.max_trace_age_s
        self.holder = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._lease: Lease | None = None
        self._begin(0, 0)
        self.writer = LakeWriter(store, settings, rules_of(privacy, store.salt()))
        self._writing = store.writing()
        self._thread = threading.Thread(target=self._watch, name="overrun-assembler", daemon=True)
        if assembles:
            self._thread.start()

    def _begin(self, through: int, latest_ns: int) -> None:
        """Remember nothing of what was read; read on after this snapshot."""
        self.quiet = QuietTraces(latest_ns, max_age_s=self._max_age_s)
        self._recent, self._response_ids = Recent(), ResponseIds(latest_ns)
        self._read, self._shapes, self._doubled = through, 0, None

    def _watch(self) -> None:
        refusal = ""
        while not self._stop.wait(POLL_S):
            try:
                self._round()
                refusal = ""
            except Exception as error:  # the thread's edge: it is tried again
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                if reason != refusal:
                    log.warning("assembling stopped, trying again: %s", reason)
                refusal = reason
            footprint.give_back()

    def _round(self) -> None:
        """Keep the lease, read what is new, assemble what is quiet."""
        while self._holds():
            more = self._read_on()
            self._assemble_due(self._quiet_s, at_least=MAX_TRACES if more else 1)
            self._move_mark()
            if not more or self._stop.is_set():
                return

    def _holds(self) -> bool:
        lease = self._catalog.claim(self.holder, LEASE_S)
        if lease is None:
            if self._lease is not None:
                log.warning("another process assembles now: this one stands by")
                self._lease = None
                self._begin(0, 0)
            return False
        if self._lease is None or lease.epoch != self._lease.epoch:
            log.info("this process assembles from snapshot %d on", lease.through)
            with self.lake.asking() as cursor:
                self._take_over(cursor, lease.through, latest_start(self.lake))
                self._learn(
                    fetch_table(cursor, "from shapes").to_pylist(),
                    fetch_table(cursor, "from sources").to_pylist(),
                )
        self._lease = lease
        return True

    def _take_over(self, cursor: duckdb.DuckDBPyConnection, through: int, latest_ns: int) -> None:
        """Begin after a snapshot, knowing which traces and calls of the time before it are assembled: those that are not among them need not be looked for."""
        floor_ns = max(latest_ns - 2 * LOOK_BACK_NS, 0)
        before = f"at (version => {through})"
        of_time = f"from lake.main.spans {before} where start_ns >= {floor_ns}"
        try:
            [(spans,)] = cursor.execute(f"select count(*) {of_time}").fetchall()
            if spans > _MOST_KNOWN:
                self._begin(through, latest_ns)
                return
            # Beyond the mark, too, some traces have been assembled before others that still waited: rows of theirs are replaced.
            rows = " union all ".join(
                f"select trace_hi, trace_lo, start_ns from {table} where start_ns >= {floor_ns}"
                for table in ASSEMBLED
            )
            traces = fetch_table(
                cursor,
                f"select trace_hi, trace_lo, min(start_ns) as start_ns from (select trace_hi, trace_lo, start_ns {of_time} union all {rows}) group by all",
            )
            ids = fetch_table(
                cursor,
                _IDS.replace("valued v", f"lake.main.span_values v {before}").replace(
                    "spans s", f"lake.main.spans s {before}"
                )
                + f" and start_ns >= {floor_ns}",
            )
        except duckdb.Error as error:  # that snapshot has been let go of: what is known is less
            log.info("traces of before the mark are unknown: %s", str(error).splitlines()[0])
            cursor.rollback()
            cursor.begin()
            self._begin(through, latest_ns)
            return
        self._begin(through, floor_ns)
        self.quiet.remember(*(column.to_numpy() for column in traces.columns))
        self._add_ids(ids)

    def _add_ids(self, ids: pa.Table) -> None:
        if ids.num_rows:
            self._response_ids.add(
                ids.column("id").combine_chunks(), ids.column("start_ns").to_numpy()
            )

    def _learn(self, shapes: list[dict[str, Any]], sources: list[dict[str, Any]]) -> None:
        self._recent.learn(
            {row["shape"]: row for row in shapes}, [(row["source_id"], row) for row in sources]
        )
        self._shapes += len(shapes)

    def _read_on(self) -> bool:
        """Read the next snapshots of collectors; whether there may be more."""
        last = self._catalog.last_snapshot()
        snapshots = self._catalog.collected(self._read, _SNAPSHOTS)
        if not snapshots:
            self._read = max(self._read, last)  # those between are of others than collectors
            return False
        between = {"first": snapshots[0], "last": snapshots[-1]}

        def added(table: str, order: str = "seq") -> pa.Table:
            return fetch_table(
                cursor,
                f"select snapshot_id, t.* from ducklake_table_insertions('lake', 'main', '{table}', $first, $last) t order by snapshot_id, {order}",
                between,
            ).combine_chunks()

        with self.lake.asking() as cursor:
            self._learn(
                added("shapes", "shape").to_pylist(), added("sources", "source_id").to_pylist()
            )
            spans, valued = added("spans"), added("span_values")
            notes = added("span_notes", "time_ns")
            # `spans` and `valued` are read from this frame.
            ids: pa.Table = cursor.execute(_IDS).to_arrow_table()
        now_s = time.monotonic()
        for snapshot in snapshots:
            new = _of(spans, snapshot)
            self._recent.add(snapshot, new, _of(valued, snapshot))
            self._note(new, "start_ns", snapshot, now_s)
            self._note(_of(notes, snapshot), "time_ns", snapshot, now_s)
        self._add_ids(ids)
        self._read = snapshots[-1]
        return len(snapshots) == _SNAPSHOTS

    def _note(self, rows: pa.Table, time_of: str, snapshot: int, now_s: float) -> None:
        if rows.num_rows:
            hi, lo, at = (rows.column(c).to_numpy() for c in ("trace_hi", "trace_lo", time_of))
            self.quiet.note(hi, lo, at, snapshot, now_s)

    def _move_mark(self) -> None:
        through = self.quiet.assembled_through(self._read, {})
        if self._lease is not None and through > self._lease.through:
            self._catalog.move_mark(self._lease.epoch, through)

    def _put(self, made: Assembled, replaced: pa.Table, through: int, floor: int) -> None:
        lease, connection = self._lease, self._writing
        if lease is None:
            raise StoreUnavailable("another process assembles now")
        with self._catalog.committing() as turn:
            number = turn.number
            try:
                connection.begin()
                changed = _supersede(connection, replaced, number, floor)
                for table in ASSEMBLED:
                    changed += append(connection, table, getattr(made, table), number).num_rows
                if changed:
                    sign(connection, ASSEMBLER, f"{lease.epoch}:{through}:{number}")
                connection.commit()
            except duckdb.Error:
                rollback(connection)
                # An answer that was lost: the lease shows whether the commit is there.
                if not self._catalog.has_committed(lease.epoch, number):
                    raise

    def _last_commit(self) -> int:
        return self._read

    def _last_shape(self) -> int:
        return self._shapes

    def _numbered(self, came: list[Seen]) -> tuple[int, ...]:
        """Nothing: snapshots come in another order than numbers."""
        del came
        return ()

    def assembled_until(self) -> float:
        """Requests whose last span came before this moment (Unix s) are in every answer, whichever process assembles."""
        until = self._catalog.assembled_until()
        return time.time() if until is None else until

    def close(self) -> None:
        """Store and answer what is queued, and close the lake. What waits is assembled by the next process that holds the lease."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            self.writer.close()
            self._catalog.release(self.holder)
        except CollectorError as error:
            log.warning("the lease was not released and runs out by itself: %s", error)
        finally:
            self._writing.close()
            self.store.close()


def open_pipeline(
    address: str,
    settings: CollectorSettings,
    privacy: PrivacySettings,
    assemble: Assemble,
    words: Dialect | None,
    *,
    assembles: bool,
) -> LakePipeline:
    """Open a lake with its writer, and assemble it if asked to.

    Raises:
        ConfigError: no such address. StoreError: it cannot be opened.
    """
    store = open_lake(LakeAddress.read(address), memory_limit=settings.memory_limit)
    return LakePipeline(store, settings, privacy, assemble, words, assembles=assembles)


def _of(rows: pa.Table, snapshot: int) -> pa.Table:
    """The rows of one snapshot among those of several, which are in their order."""
    numbers = rows.column("snapshot_id").to_numpy()
    first, end = np.searchsorted(numbers, [snapshot, snapshot + 1]).tolist()
    return rows.slice(first, end - first).drop_columns(["snapshot_id"])


def _supersede(
    connection: duckdb.DuckDBPyConnection, replaced: pa.Table, number: int, floor: int
) -> int:
    """Hide the rows of these traces that are there (`replaced` is read from this frame); how many traces have some."""
    if not replaced.num_rows:
        return 0
    old = " union ".join(
        f"select trace_hi, trace_lo from {table} semi join replaced using (trace_hi, trace_lo) where start_ns >= {floor}"
        for table in ASSEMBLED
    )
    [(n,)] = connection.execute(
        f"insert into superseded select trace_hi, trace_lo, {number} from ({old})"
    ).fetchall()
    return int(n)
