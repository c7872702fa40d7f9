"""How do stored spans become request rows? Ties store, writer and the watch for quiet traces together, for the server and for imports alike.

Rounds (rounds.py) say what is assembled; here is when, and that its rows replace the old ones of the same traces in one transaction, together with the mark up
to which a restart need not look again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import duckdb
import pyarrow as pa

from overrun.collector.config import CollectorSettings, PrivacySettings
from overrun.collector.dialects import Dialect
from overrun.collector.errors import StoreUnavailable
from overrun.collector.ingest.quiet_traces import QuietTraces, Seen
from overrun.collector.ingest.recent_rows import Recent
from overrun.collector.ingest.response_ids import ResponseIds
from overrun.collector.ingest.rounds import MAX_TRACES, POLL_S, Assemble, Assembled, Assembling
from overrun.collector.ingest.writer import ASSEMBLED, Writer, append
from overrun.collector.normalise import prompt_features, stages
from overrun.collector.normalise.known_keys import Enumerations
from overrun.collector.normalise.spans import Rules
from overrun.collector.process import footprint
from overrun.collector.process.steady_clock import CLOCK_LEAP, Leap, SteadyClock
from overrun.collector.store.database import BATCH_BITS, set_meta
from overrun.collector.store.proof import Claims
from overrun.collector.store.store import Store
from overrun.collector.store.unassembled import assembled_through, unassembled

log = logging.getLogger("overrun.collector")
T = TypeVar("T")
# When the server stops, what is pending is assembled for so long; the rest is stored, and assembled at the next start.
_CLOSING_S = 3.0


class Pipeline(Assembling):
    """A store with its writer, assembling quiet traces in a thread of its own until `close`."""

    def __init__(
        self,
        store: Store,
        settings: CollectorSettings,
        privacy: PrivacySettings,
        assemble: Assemble,
        words: Dialect | None = None,
        *,
        serving: bool = False,
    ) -> None:
        """`words` is the operator's own vocabulary; it holds for the process.

        `serving`: others send, and are refused above `memory_soft_mib`. Without it the process has other memory than ours, and nobody would come again.
        """
        super().__init__(assemble, settings.quiet_s)
        stages.learn(words)
        self.store = store
        latest_ns = latest_start(store)
        self.clock = clock_of(store)
        self.quiet = QuietTraces(latest_ns, max_age_s=settings.max_trace_age_s)
        self._recent = Recent()
        self._response_ids = ResponseIds(latest_ns)
        lines = settings if serving else replace(settings, memory_soft_mib=0, memory_hard_mib=0)
        self.writer = Writer(
            store,
            lines,
            rules_of(privacy, store.salt()),
            self.quiet,
            self._recent,
            self._response_ids,
            self.clock,
        )
        self._recover()
        self._thread = threading.Thread(target=self._watch, name="overrun-assembler", daemon=True)
        self._thread.start()

    def _recover(self) -> None:
        """Traces that were stored but not yet assembled when the process last ended. They take what is left of each round; new telemetry does not wait for them."""
        through, found = assembled_through(self.store), unassembled(self.store)
        if found.num_rows:
            hi, lo, start = (
                found.column(c).to_numpy() for c in ("trace_hi", "trace_lo", "start_ns")
            )
            log.info("%d older traces are assembled beside new ones", found.num_rows)
            self.quiet.recover(hi, lo, start, through + 1, self.writer.last_batch, time.monotonic())

    def _watch(self) -> None:
        while not self._stop.wait(POLL_S):
            while (
                self._assemble_due(self._quiet_s, at_least=MAX_TRACES) and not self._stop.is_set()
            ):
                footprint.give_back()
            self._assemble_due(self._quiet_s)
            self.writer.rest()
            footprint.give_back()

    def _put(self, made: Assembled, replaced: pa.Table, through: int, floor: int) -> None:
        claims, last = Claims(), self.writer.last_batch
        self.writer.call(
            lambda connection: _replace(connection, made, replaced, through, floor, last, claims),
            claims,
            ASSEMBLED,
        ).result()

    def _last_commit(self) -> int:
        return self.writer.last_batch

    def _last_shape(self) -> int:
        return self.writer.last_shape

    def _numbered(self, came: list[Seen]) -> tuple[int, ...]:
        if not came:
            return ()
        return (
            min(one.first_batch for one in came) << BATCH_BITS,
            (max(one.last_batch for one in came) + 1) << BATCH_BITS,
        )

    def between_rounds(self, run: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """The result of `run(connection)`, which deletes spans, shapes or sources, in a transaction of the writer while nothing is being assembled.

        A round that had read such spans before would store their request afterwards; later rounds find only what is left in the store.
        """

        def forgetting(connection: duckdb.DuckDBPyConnection) -> T:
            result = run(connection)
            self.writer.learn_anew(connection)
            return result

        with self._busy:
            return self.writer.call(forgetting).result()

    def drain(self, within_s: float | None = None) -> None:
        """Assemble everything that is stored, quiet or not; returns when nothing is pending, or after `within_s`.

        Raises:
            StoreUnavailable: assembling failed (see the log); the spans are safe and it is tried again at the next start.
        """
        until_s = None if within_s is None else time.monotonic() + within_s
        while self.pending():
            if until_s is not None and time.monotonic() > until_s:
                log.warning(
                    "%d traces are stored but not assembled yet: the next start assembles them",
                    self.pending(),
                )
                return
            if self._assemble_due(0.0) or not self.pending():
                continue
            raise StoreUnavailable(
                f"{self.pending()} traces are stored but could not be assembled: see the log. The next start tries again"
            )

    def close(self) -> None:
        """Store and answer what is queued, assemble what is pending (as far as it takes seconds), close the store."""
        self._stop.set()
        self._thread.join()
        try:
            self.drain(_CLOSING_S)
        finally:
            self.writer.close()
            self.store.close()


def rules_of(privacy: PrivacySettings, salt: bytes) -> Rules:
    """What may be stored, with the key of this store's user hashes."""
    return Rules(
        privacy.store_text,
        privacy.hash_users,
        salt,
        frozenset(privacy.keep_long),
        prompt_features.measuring(privacy),
        Enumerations() if privacy.attributes == "known" else None,
    )


def clock_of(store: Store) -> SteadyClock:
    """The clock by which what is in this store ages."""
    with store.asking() as cursor:
        [(newest_ns,)] = cursor.execute(
            "select coalesce(max(received_ns), 0) from batches"
        ).fetchall()
    return SteadyClock(int(newest_ns), Leap.read(store.meta(CLOCK_LEAP)))


def latest_start(store: Store) -> int:
    """The latest start of a span that the store holds, 0 without one."""
    with store.asking() as cursor:
        found = cursor.execute("select max(start_ns) from spans").fetchall()[0][0]
    return 0 if found is None else int(found)


def _replace(
    connection: duckdb.DuckDBPyConnection,
    made: Assembled,
    replaced: pa.Table,
    through: int,
    floor: int,
    batch: int,
    claims: Claims,
) -> None:
    """Put the new rows in the place of the old ones of the traces in `replaced` (read from this frame), none of which started before `floor`."""
    for table in ASSEMBLED:
        old = f"from {table} t semi join replaced using (trace_hi, trace_lo) where t.start_ns >= $floor"
        # One row; fetchone would leave the result open.
        if (
            replaced.num_rows
            and connection.execute(f"select exists (select 1 {old})", {"floor": floor}).fetchall()[
                0
            ][0]
        ):
            connection.execute(
                f"delete from {table} where rowid in (select t.rowid {old})", {"floor": floor}
            )
        claims.wrote(
            table,
            append(connection, table, getattr(made, table), batch),
            f"start_ns >= {floor}",
            made.covered,
        )
    set_meta(connection, "assembled_through", str(through))
