"""How do quiet traces become rows of requests, round after round? What a store that assembles does, whatever holds it: a file (pipeline.py) or a lake (lake_pipeline.py).

What assembling means is the caller's business (`Assemble`, from `analysis`); here is which traces are taken, what of their spans is in memory, and what happens
where a round fails. Where the rows go is the store's (`_put`).
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa

from overrun.collector.arrays import BoolArray
from overrun.collector.errors import StoreUnavailable
from overrun.collector.ingest.quiet_traces import LOOK_BACK_NS, Key, QuietTraces, Seen
from overrun.collector.ingest.reading import Known, Unread, doubled_sources, quiet_spans
from overrun.collector.ingest.recent_rows import Recent
from overrun.collector.ingest.response_ids import ResponseIds
from overrun.collector.ingest.writer import Writer
from overrun.collector.process.steady_clock import SteadyClock
from overrun.collector.process.tracing import tracer
from overrun.collector.store.store import Store

log = logging.getLogger("overrun.collector")
# Traces assembled at once: enough to amortise the queries (about 10 ms), few enough to keep the writer free for senders and memory small
# (20,000 spans take 30 MB while they are assembled).
MAX_TRACES = 2_000
# Rounds are at least this far apart: each one scans the newest spans once, however many traces it takes.
POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Assembled:
    """Rows of `requests` and `llm_calls`, and the traces that they replace (columns trace_hi, trace_lo)."""

    requests: pa.Table
    llm_calls: pa.Table
    covered: pa.Table


# The spans of the quiet traces and of those that report the same model calls (columns of sql/quiet_spans.sql) -> their rows.
Assemble = Callable[[pa.Table], Assembled]


class Assembling(ABC):
    """A store with its writer and the traces that wait. Thread-safe but for `_put`, which one thread calls at a time."""

    store: Store
    writer: Writer
    quiet: QuietTraces
    clock: SteadyClock
    _recent: Recent
    _response_ids: ResponseIds

    def __init__(self, assemble: Assemble, quiet_s: float) -> None:
        self._assemble, self._quiet_s = assemble, quiet_s
        self._doubled: tuple[int, pa.Table] | None = None
        self._stop = threading.Event()
        self._busy = threading.Lock()

    @abstractmethod
    def _put(self, made: Assembled, replaced: pa.Table, through: int, floor: int) -> None:
        """Put the new rows in the place of the old ones of the traces in `replaced`, none of which started before `floor`, with the mark `through`: every trace up
        to this commit is assembled."""

    @abstractmethod
    def _last_commit(self) -> int:
        """The newest commit whose traces are known to `quiet`."""

    @abstractmethod
    def _last_shape(self) -> int:
        """A number that stands while `shapes` and `sources` do."""

    @abstractmethod
    def _numbered(self, came: list[Seen]) -> tuple[int, ...]:
        """From which number (`seq`) on and before which one the spans of these traces are, where the commits that they came with show it."""

    @abstractmethod
    def close(self) -> None:
        """Store and answer what is queued, and close the store."""

    def _assemble_due(self, quiet_s: float, at_least: int = 1) -> bool:
        """Assemble one round of quiet traces if that many are due; True if there was something to do and it was stored."""
        with self._busy:
            taken = self.quiet.take(time.monotonic(), quiet_s, MAX_TRACES)
            if len(taken) < at_least:  # what was taken is taken again
                return False
            with tracer.start_as_current_span("assemble", attributes={"traces": len(taken)}):
                failed = self._assemble_all(taken)
            self.quiet.done({key: seen for key, seen in taken.items() if key not in failed})
            self._recent.let_go(self.quiet.assembled_through(self._last_commit(), {}) + 1)
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
        unread = self._unread(traces, list(taken.values()), kept & (held is not None))
        try:
            with self.store.asking() as cursor:
                made = self._made(cursor, traces, held, unread)
        except duckdb.OutOfMemoryException:
            # Rows that wait for a checkpoint fill what is allowed without readers: chunk events make a call as large as a hundred others.
            with self.store.reading() as cursor:
                made = self._made(cursor, traces, held, unread)
        through = self.quiet.assembled_through(self._last_commit(), taken)
        floor = int(traces.column("start_ns").to_numpy().min()) - LOOK_BACK_NS
        covered: list[Key] = list(
            zip(*(column.to_numpy().tolist() for column in made.covered.columns), strict=True)
        )
        unstored = {key for key, seen in taken.items() if seen.new and not seen.covered}
        replaced = made.covered.filter(
            pa.array([key not in unstored for key in covered], pa.bool_())
        )
        self._put(made, replaced, through, floor)
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

    def _unread(self, traces: pa.Table, seen: list[Seen], kept: BoolArray) -> list[Unread]:
        """The traces that are not in memory; apart, those of which it is known with which commits their spans came."""
        ids = traces.select(["trace_hi", "trace_lo"])
        new = np.fromiter((one.new for one in seen), np.bool_, len(seen))
        absent = new & ~kept
        came = [one for one, is_unread in zip(seen, absent.tolist(), strict=True) if is_unread]
        return [
            Unread(ids.filter(pa.array(~new))),
            Unread(ids.filter(pa.array(absent)), *self._numbered(came)),
        ]

    def _held(self, new: list[Seen], traces: pa.Table) -> pa.Table | None:
        """The spans of new traces that are still in memory."""
        if not new:
            return None
        hi, lo = (traces.column(name).to_numpy() for name in ("trace_hi", "trace_lo"))
        return self._recent.rows(
            hi, lo, min(seen.first_batch for seen in new), max(seen.last_batch for seen in new)
        )

    def _doubled_sources(self, cursor: duckdb.DuckDBPyConnection) -> pa.Table:
        shapes = self._last_shape()
        if self._doubled is None or self._doubled[0] != shapes:
            self._doubled = shapes, doubled_sources(cursor)
        return self._doubled[1]

    def pending(self) -> int:
        """How many traces are stored and not assembled."""
        return len(self.quiet) + self.quiet.backlog

    def assembled_until(self) -> float:
        """Requests whose last span came before this moment (Unix s) are in every answer."""
        oldest = self.quiet.oldest_s()
        return time.time() - (0.0 if oldest is None else time.monotonic() - oldest)


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
