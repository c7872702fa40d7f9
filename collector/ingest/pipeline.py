"""How do stored spans become request rows? Ties store, writer and the watch for quiet traces together, for the server and for imports alike.

What assembling means is the caller's business (`Assemble`, from `analysis`); here is only when it runs, and that its rows replace the old
ones of the same traces in one transaction, together with the mark up to which a restart need not look again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import duckdb
import numpy as np
import pyarrow as pa

from overrun.collector.arrays import BoolArray
from overrun.collector.config import CollectorSettings, PrivacySettings
from overrun.collector.dialects import Dialect
from overrun.collector.errors import StoreUnavailable
from overrun.collector.ingest.quiet_traces import LOOK_BACK_NS, Key, QuietTraces, Seen
from overrun.collector.ingest.reading import Known, Unread, doubled_sources, quiet_spans
from overrun.collector.ingest.recent_rows import Recent
from overrun.collector.ingest.response_ids import ResponseIds
from overrun.collector.ingest.writer import ASSEMBLED, Writer, append
from overrun.collector.normalise import prompt_features, stages
from overrun.collector.normalise.known_keys import Enumerations
from overrun.collector.normalise.spans import Rules
from overrun.collector.process import footprint
from overrun.collector.process.steady_clock import CLOCK_LEAP, Leap, SteadyClock
from overrun.collector.process.tracing import tracer
from overrun.collector.store.database import BATCH_BITS, set_meta
from overrun.collector.store.proof import Claims
from overrun.collector.store.store import Store
from overrun.collector.store.unassembled import assembled_through, unassembled

log = logging.getLogger("overrun.collector")
T = TypeVar("T")
# Traces assembled at once: enough to amortise the queries (about 10 ms), few enough to keep the writer free for senders and memory small
# (20,000 spans take 30 MB while they are assembled).
MAX_TRACES = 2_000
# When the server stops, what is pending is assembled for so long; the rest is stored, and assembled at the next start.
_CLOSING_S = 3.0
# Rounds are at least this far apart: each one scans the newest spans once, however many traces it takes.
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Assembled:
    """Rows of `requests` and `llm_calls`, and the traces that they replace (columns trace_hi, trace_lo)."""

    requests: pa.Table
    llm_calls: pa.Table
    covered: pa.Table


# The spans of the quiet traces and of those that report the same model calls (columns of sql/quiet_spans.sql) -> their rows.
Assemble = Callable[[pa.Table], Assembled]


class Pipeline:
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
        stages.learn(words)
        self.store = store
        latest_ns = _latest_start(store)
        self.clock = clock_of(store)
        self.quiet = QuietTraces(latest_ns, max_age_s=settings.max_trace_age_s)
        self._recent = Recent()
        self._response_ids = ResponseIds(latest_ns)
        self._doubled: tuple[int, pa.Table] | None = None
        rules = Rules(
            privacy.store_text,
            privacy.hash_users,
            store.salt(),
            frozenset(privacy.keep_long),
            prompt_features.measuring(privacy),
            Enumerations() if privacy.attributes == "known" else None,
        )
        lines = settings if serving else replace(settings, memory_soft_mib=0, memory_hard_mib=0)
        self.writer = Writer(
            store, lines, rules, self.quiet, self._recent, self._response_ids, self.clock
        )
        self._quiet_s = settings.quiet_s
        self._assemble = assemble
        self._stop = threading.Event()
        self._busy = threading.Lock()
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
        while not self._stop.wait(_POLL_S):
            while (
                self._assemble_due(self._quiet_s, at_least=MAX_TRACES) and not self._stop.is_set()
            ):
                footprint.give_back()
            self._assemble_due(self._quiet_s)
            self.writer.rest()
            footprint.give_back()

    def _assemble_due(self, quiet_s: float, at_least: int = 1) -> bool:
        """Assemble one round of quiet traces if that many are due; True if there was something to do and it was stored."""
        with self._busy:
            taken = self.quiet.take(time.monotonic(), quiet_s, MAX_TRACES)
            if len(taken) < at_least:  # what was taken is taken again
                return False
            with tracer.start_as_current_span("assemble", attributes={"traces": len(taken)}):
                failed = self._assemble_all(taken)
            self.quiet.done({key: seen for key, seen in taken.items() if key not in failed})
            self._recent.let_go(self.quiet.assembled_through(self.writer.last_batch, {}) + 1)
            if failed:
                self._stop.wait(1.0)
            return not failed

    def _assemble_all(self, taken: dict[Key, Seen]) -> dict[Key, Seen]:
        """Assemble and store; returns the traces that failed. They stay pending and are tried again, their spans are safe.

        One trace that cannot be assembled must not hold up the others of its round: the round is halved until that trace stands alone.
        """
        try:
            self._assemble_now(taken)
        except duckdb.InterruptException:
            log.warning(
                "assembling %d traces stopped because the database was reopened: trying again",
                len(taken),
            )
            return taken
        except (
            Exception
        ) as error:  # the thread's edge: whatever went wrong, it is logged and tried again
            if len(taken) > 1 and not isinstance(error, duckdb.Error | StoreUnavailable):
                keys = list(taken)
                halves = (keys[: len(keys) // 2], keys[len(keys) // 2 :])
                return {
                    key: seen
                    for half in halves
                    for key, seen in self._assemble_all({k: taken[k] for k in half}).items()
                }
            log.exception("assembling %d traces failed, trying again", len(taken))
            return taken
        return {}

    def _assemble_now(self, taken: dict[Key, Seen]) -> None:
        traces = _as_table(taken)
        first = self._recent.first_batch()
        kept = np.fromiter(
            (seen.new and seen.first_batch >= first for seen in taken.values()),
            np.bool_,
            len(taken),
        )
        held = self._held(
            [seen for seen, is_kept in zip(taken.values(), kept.tolist(), strict=True) if is_kept],
            traces.filter(pa.array(kept)),
        )
        unread = _unread(traces, list(taken.values()), kept & (held is not None))
        try:
            with self.store.asking() as cursor:
                made = self._made(cursor, traces, held, unread)
        except duckdb.OutOfMemoryException:
            # Rows that wait for a checkpoint fill what is allowed without readers: chunk events make a call as large as a hundred others.
            with self.store.reading() as cursor:
                made = self._made(cursor, traces, held, unread)
        through = self.quiet.assembled_through(self.writer.last_batch, taken)
        floor = int(traces.column("start_ns").to_numpy().min()) - LOOK_BACK_NS
        last = self.writer.last_batch
        covered: list[Key] = list(
            zip(*(column.to_numpy().tolist() for column in made.covered.columns), strict=True)
        )
        unstored = {key for key, seen in taken.items() if seen.new and not seen.covered}
        replaced = made.covered.filter(
            pa.array([key not in unstored for key in covered], pa.bool_())
        )
        claims = Claims()
        self.writer.call(
            lambda connection: _replace(connection, made, replaced, through, floor, last, claims),
            claims,
            ASSEMBLED,
        ).result()
        self.quiet.cover(key for key in covered if key not in taken)

    def _made(
        self,
        cursor: duckdb.DuckDBPyConnection,
        traces: pa.Table,
        held: pa.Table | None,
        unread: list[Unread],
    ) -> Assembled:
        """The requests of these traces, from what is stored of them and what is still in memory."""
        known = Known(held, unread, self._doubled_sources(cursor), self._response_ids)
        return self._assemble(quiet_spans(cursor, traces, known))

    def _held(self, new: list[Seen], traces: pa.Table) -> pa.Table | None:
        """The spans of new traces that are still in memory."""
        if not new:
            return None
        hi, lo = (traces.column(name).to_numpy() for name in ("trace_hi", "trace_lo"))
        return self._recent.rows(
            hi, lo, min(seen.first_batch for seen in new), max(seen.last_batch for seen in new)
        )

    def _doubled_sources(self, cursor: duckdb.DuckDBPyConnection) -> pa.Table:
        shapes = self.writer.last_shape
        if self._doubled is None or self._doubled[0] != shapes:
            self._doubled = shapes, doubled_sources(cursor)
        return self._doubled[1]

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
        while self._pending():
            if until_s is not None and time.monotonic() > until_s:
                log.warning(
                    "%d traces are stored but not assembled yet: the next start assembles them",
                    self._pending(),
                )
                return
            if self._assemble_due(0.0) or not self._pending():
                continue
            raise StoreUnavailable(
                f"{self._pending()} traces are stored but could not be assembled: see the log. The next start tries again"
            )

    def _pending(self) -> int:
        return len(self.quiet) + self.quiet.backlog

    def close(self) -> None:
        """Store and answer what is queued, assemble what is pending (as far as it takes seconds), close the store."""
        self._stop.set()
        self._thread.join()
        try:
            self.drain(_CLOSING_S)
        finally:
            self.writer.close()
            self.store.close()


def clock_of(store: Store) -> SteadyClock:
    """The clock by which what is in this store ages."""
    with store.asking() as cursor:
        [(newest_ns,)] = cursor.execute(
            "select coalesce(max(received_ns), 0) from batches"
        ).fetchall()
    return SteadyClock(int(newest_ns), Leap.read(store.meta(CLOCK_LEAP)))


def _as_table(taken: dict[Key, Seen]) -> pa.Table:
    hi, lo = (np.fromiter((key[i] for key in taken), np.uint64, len(taken)) for i in (0, 1))
    return pa.table(
        {
            "trace_hi": hi,
            "trace_lo": lo,
            "start_ns": np.fromiter(
                (seen.start_ns for seen in taken.values()), np.int64, len(taken)
            ),
        }
    )


def _unread(traces: pa.Table, seen: list[Seen], kept: BoolArray) -> list[Unread]:
    """The traces that are not in memory; apart, those of which it is known with which commits their spans came."""
    ids = traces.select(["trace_hi", "trace_lo"])
    new = np.fromiter((one.new for one in seen), np.bool_, len(seen))
    came = [one for one, is_unread in zip(seen, (new & ~kept).tolist(), strict=True) if is_unread]
    bounds = (
        (
            min(one.first_batch for one in came) << BATCH_BITS,
            (max(one.last_batch for one in came) + 1) << BATCH_BITS,
        )
        if came
        else ()
    )
    return [Unread(ids.filter(pa.array(~new))), Unread(ids.filter(pa.array(new & ~kept)), *bounds)]


def _latest_start(store: Store) -> int:
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
