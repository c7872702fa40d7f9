"""When is telemetry stored, and when is it acknowledged? One thread owns all writes; a body's future resolves after its transaction has committed and what it wrote
was read back and found equal (proof.py).

Idle, a body is committed at once; while a commit runs, new bodies gather and go together in the next one (up to `commit_mib`). The queue is
bounded in bytes: beyond it senders are refused with a time to come again. A body that was stored in the last day, recognised by its hash
in the same transaction, is acknowledged and not stored twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import duckdb
import numpy as np
import pyarrow as pa

from overrun.collector.config import CollectorSettings
from overrun.collector.decode import nested, otlp_spans, otlp_spans_upb
from overrun.collector.errors import (
    BadPayload,
    CollectorError,
    NotAsWritten,
    QueueFull,
    StoreUnavailable,
)
from overrun.collector.ingest.cardinality import (
    NEW_SHAPES,
    NEW_SOURCES,
    Allowance,
    Sources,
)
from overrun.collector.ingest.quiet_traces import QuietTraces
from overrun.collector.ingest.reading import joining_ids
from overrun.collector.ingest.recent_rows import Recent
from overrun.collector.ingest.response_ids import ResponseIds
from overrun.collector.normalise import log_records
from overrun.collector.normalise.limits import Limits
from overrun.collector.normalise.log_records import Note
from overrun.collector.normalise.packed_texts import unpacked
from overrun.collector.normalise.points import Points, decode_points
from overrun.collector.normalise.quarantine import MISDATED_EVENTS, MISDATED_POINTS, WARNING
from overrun.collector.normalise.spans import MAP_TYPE, Normalized, Rules, normalize, warm
from overrun.collector.process.admission import Admission
from overrun.collector.process.steady_clock import CLOCK_LEAP, SteadyClock
from overrun.collector.process.tally import Tally
from overrun.collector.process.tracing import tracer
from overrun.collector.store.database import BATCH_BITS, set_meta
from overrun.collector.store.layout import Rows, Shapes, shape_rows
from overrun.collector.store.proof import Claims, ends
from overrun.collector.store.store import Store

log = logging.getLogger("overrun.collector")
T = TypeVar("T")
TRACES, METRICS, LOGS = 1, 2, 3
HASH_AGE_S = 24 * 3600.0
# Bodies that wait may wait as long again as the last commit took, for as many others as then came: a commit of two bodies costs little more than one of a
# single body. Senders that answer an acknowledgement with their next body come within milliseconds, those that send by the clock take most of that time.
# None waits longer for others than this since it came: what waited for a long commit or a checkpoint goes at once.
LINGER_RATIO = 1.0
LINGER_MAX_S = 0.05
# Items of the bodies of one commit. 4 MiB of spans as SDKs send them have 120,000; of tiny ones, memory for more is not wanted at once.
COMMIT_ITEMS = 250_000
# Hashes are kept in memory (about 100 bytes each): this many of the newest, even if that is less than a day's.
MAX_HASHES = 500_000
# What a trace takes that waits to be assembled (bytes); rows of waiting traces are bounded apart (recent_rows.py) and read back beyond that.
# At 80,000 spans a second about 20,000 wait, most of them for their quiet time.
PENDING_BYTES = 400
# Spans and points after which the file is reopened, or what DuckDB keeps in memory of each that it has written (10 to 20 bytes) would grow without end.
# That takes 0.1 to 0.2 s (measured): at full speed every eight seconds or more.
RENEW_ROWS = 500_000
# The tables that a commit of telemetry appends to, besides `batches`.
COMMITTED = (
    "spans",
    "span_values",
    "span_events",
    "span_links",
    "quarantine",
    "points",
    "span_notes",
    "shapes",
    "sources",
    "bodies",
)
ASSEMBLED = ("requests", "llm_calls")
BROKEN_IDS = "spans whose trace id or span id is missing or has the wrong length"

_SOURCE_SCHEMA = pa.schema(
    [
        ("source_id", pa.uint64()),
        ("service", pa.string()),
        ("instance", pa.string()),
        ("version", pa.string()),
        ("namespace", pa.string()),
        ("environment", pa.string()),
        ("scope_name", pa.string()),
        ("scope_version", pa.string()),
        ("resource_attributes", MAP_TYPE),
        ("scope_attributes", MAP_TYPE),
        ("resource_schema_url", pa.string()),
        ("scope_schema_url", pa.string()),
    ]
)
_POINT_SCHEMA = pa.schema(
    [
        ("source_id", pa.uint64()),
        ("time_ns", pa.int64()),
        ("start_ns", pa.int64()),
        ("name", pa.string()),
        ("unit", pa.string()),
        ("kind", pa.uint8()),
        ("temporality", pa.uint8()),
        ("monotonic", pa.bool_()),
        ("series", pa.uint64()),
        ("instance", pa.string()),
        ("model", pa.string()),
        ("indicator", pa.string()),
        ("scale", pa.float64()),
        ("value", pa.float64()),
        ("bounds", pa.list_(pa.float64())),
        ("counts", pa.list_(pa.float64())),
        ("sum", pa.float64()),
        ("count", pa.float64()),
        ("attributes", MAP_TYPE),
    ]
)

_NOTE_SCHEMA = pa.schema(
    [
        ("trace_hi", pa.uint64()),
        ("trace_lo", pa.uint64()),
        ("span_id", pa.uint64()),
        ("time_ns", pa.int64()),
        ("finish_reason", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of a body: items stored, items refused for good (partial success), and whether it was already there.

    `reason` is for the sender: why items were refused, or a remark about stored ones.
    """

    items: int
    rejected: int
    reason: str = ""
    duplicate: bool = False


@dataclass(slots=True)
class Waiting:
    signal: int
    data: bytes
    future: Future[Stored]
    came_s: float
    items: int = 0
    digest: bytes = b""


@dataclass(slots=True)
class Job:
    run: Callable[[duckdb.DuckDBPyConnection], Any]
    claims: Claims
    tables: tuple[str, ...]
    future: Future[Any]


@dataclass(slots=True)
class Counters:
    """What has happened since the start; read for /metrics."""

    bodies: int = 0
    duplicates: int = 0
    spans: int = 0
    points: int = 0
    rejected_items: int = 0
    quarantined_spans: int = 0
    refused_bodies: int = 0
    bad_bodies: int = 0
    commits: int = 0
    failed_commits: int = 0
    taken_back_commits: int = 0


@dataclass(slots=True)
class Group:
    """Bodies of one commit, decoded."""

    bodies: list[Waiting] = field(default_factory=list)
    results: list[Stored] = field(default_factory=list)
    spans: list[Normalized] = field(default_factory=list)
    points: list[Points] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LaidOut:
    """Rows of one commit: number of spans, points, new sources by id, and spans as they are laid out, a part at a time."""

    count: int
    points: list[dict[str, Any]]
    sources: dict[int, dict[str, Any]]
    spans: list[Rows]


class Writer:
    """Owns the store's connection in a thread of its own. `submit` from anywhere; `call` runs a function in a transaction of that thread."""

    def __init__(
        self,
        store: Store,
        settings: CollectorSettings,
        rules: Rules,
        quiet: QuietTraces,
        recent: Recent | None = None,
        response_ids: ResponseIds | None = None,
        clock: SteadyClock | None = None,
    ) -> None:
        self._store = store
        self._clock = clock or SteadyClock()
        self._noted = store.meta(CLOCK_LEAP) or ""
        self.tally = Tally()
        self._rules = replace(rules, limits=Limits.of(settings, self.tally))
        self._quiet = quiet
        self._recent = recent or Recent()
        self._response_ids = response_ids or ResponseIds(0)
        self.queue_bytes = settings.queue_mib << 20
        self.admission = Admission(
            self.queue_bytes,
            settings.queue_items,
            settings.max_body_items,
            settings.memory_soft_mib << 20,
            settings.memory_hard_mib << 20,
        )
        self._commit_bytes = settings.commit_mib << 20
        self._most_pending = (settings.waiting_mib << 20) // PENDING_BYTES
        self._decode_spans = (
            otlp_spans.decode_spans if settings.decoder == "fast" else otlp_spans_upb.decode_spans
        )
        self._bodies: deque[Waiting] = deque()
        self._jobs: deque[Job] = deque()
        self._waiting_bytes = 0
        self._wake = threading.Condition()
        self._closing = False
        self._expected = 0
        self._changes = 0
        self._linger_until = 0.0
        self._renewed_at = (
            0  # spans and points that had been stored when the file was last reopened
        )
        self._rest = False
        self._ends_move = (
            False  # whether the next checkpoint may drop row groups, which moves the ends of tables
        )
        self._unmoved = ""  # why the log could not be moved into the file, the last time
        self.counters = Counters()
        self.refusal: str | None = None  # why the store took nothing, the last time it was asked
        self._hashes: OrderedDict[bytes, float] = OrderedDict()
        self._new_shapes, self._new_sources = Allowance(NEW_SHAPES), Allowance(NEW_SOURCES)
        self._load_state()
        self._thread = threading.Thread(target=self._run, name="overrun-writer", daemon=True)
        self._thread.start()

    def _load_state(self) -> None:
        with self._store.asking() as cursor:
            self._load_from(cursor)

    def _load_from(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._last_batch = int(
            cursor.execute("select coalesce(max(batch), 0) from batches").fetchall()[0][0]
        )
        rows = cursor.execute(
            "select hash from bodies order by received_ns desc limit $n", {"n": MAX_HASHES}
        ).fetchall()
        # Since when each is remembered, on the monotonic clock: a leap of the wall clock makes no body new. Retention keeps those of a day in the file.
        known, now_s = self._hashes, time.monotonic()
        found = ((bytes(row[0]), known.get(bytes(row[0]), now_s)) for row in reversed(rows))
        self._hashes = OrderedDict(sorted(found, key=lambda item: item[1]))
        last_shape = cursor.execute("select coalesce(max(shape), 0) from shapes").fetchall()[0][0]
        self._shapes = Shapes(
            int(last_shape), self._new_shapes.take, lambda n: self._count_cut("shapes", n)
        )
        self._ends = ends(cursor, *COMMITTED, *ASSEMBLED)
        sources = cursor.execute("select source_id, service from sources").fetchall()
        self._sources = Sources(
            {int(row[0]) for row in sources}, {str(row[1]) for row in sources}, self._new_sources
        )

    def _count_cut(self, what: str, n: int) -> None:
        self.tally.count("cut", n, what=what)

    def forget(self, shapes: set[int], sources: set[int]) -> None:
        """At the end of a transaction of `call` that deletes these. Should it fail, the file is opened anew."""
        self._shapes.forget(shapes)
        self._sources.known -= sources

    def learn_anew(self, connection: duckdb.DuckDBPyConnection) -> None:
        """In a transaction of `call` that deletes shapes, sources or spans: nothing is remembered of them. Should it fail, the file is reopened."""
        self._load_from(connection)
        self._recent.let_go(self._last_batch + 1)
        self._ends_move = True

    @property
    def last_batch(self) -> int:
        """Number of the last commit."""
        return self._last_batch

    @property
    def changes(self) -> int:
        """How many transactions have been committed: while it stands, a question over a fixed window has the same answer."""
        return self._changes

    @property
    def last_shape(self) -> int:
        """Number of the last shape that is stored: while it stands, so do `shapes` and `sources`."""
        return self._shapes.stored

    @property
    def alive(self) -> bool:
        """Whether the thread that stores runs: without it nothing is ever answered."""
        return self._thread.is_alive()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of bodies that wait for a commit."""
        return self._waiting_bytes

    def submit(self, signal: int, data: bytes, items: int = 0) -> Future[Stored]:
        """Queue one decompressed protobuf body (TRACES or METRICS), or values of spans from log records, packed (LOGS).

        `items` is the number of decoded items, if they were counted. The future resolves after the commit.
        It fails with BadPayload (never stored, do not resend) or StoreUnavailable (resend later).

        Raises:
            QueueFull: the queue has no room; nothing was queued.
            StoreUnavailable: the writer is closing.
        """
        body = Waiting(signal, data, _pending(), time.monotonic(), items)
        with self._wake:
            if self._closing:
                raise StoreUnavailable("the collector is shutting down")
            self.check_room(signal, len(data))
            self._bodies.append(body)
            self._waiting_bytes += len(data)
            self._wake.notify()
        return body.future

    def check_room(self, signal: int, size: int) -> None:
        """Refuse what `submit` would refuse, before a body of so many bytes has come.

        Raises:
            QueueFull: the queue has no room.
        """
        if refusal := self.no_room(signal, size):
            self.counters.refused_bodies += 1
            raise QueueFull(refusal)

    def no_room(self, signal: int = TRACES, size: int = 1) -> str:
        """Why a body of so many bytes would be refused now; empty if it would be taken. What /readyz shows and what senders hear is this one condition."""
        pending = len(self._quiet) if signal == TRACES else 0
        if pending > self._most_pending:
            return f"{pending} traces wait for assembly, the limit of waiting_mib is {self._most_pending}: retry later"
        if self._waiting_bytes + size > self.queue_bytes and self._waiting_bytes:
            return f"{self._waiting_bytes} bytes wait to be stored, the limit is {self.queue_bytes}: retry later"
        return self.admission.refusal()

    def call(
        self,
        run: Callable[[duckdb.DuckDBPyConnection], T],
        claims: Claims | None = None,
        appends: tuple[str, ...] = (),
    ) -> Future[T]:
        """Run `run(connection)` in one transaction of the writer thread; the future has its result after the commit.

        `appends` names the tables of COMMITTED and ASSEMBLED to which `run` appends. The future fails with NotAsWritten, and what was appended is taken
        back, if the store does not hold what `run` claims to have written.
        """
        job = Job(run, Claims() if claims is None else claims, appends, _pending())
        with self._wake:
            if self._closing:
                raise StoreUnavailable("the collector is shutting down")
            self._jobs.append(job)
            self._wake.notify()
        return job.future

    def rest(self) -> None:
        """Have the store give back memory, as soon as nothing is under way."""
        with self._wake:
            self._rest = True
            self._wake.notify()

    def close(self) -> None:
        """Store and answer what is queued, then stop the thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            warm()
        except Exception:  # the thread's edge: without this thread every sender would wait for ever
            log.exception(
                "the compiled code could not be prepared. The first body may fail with the reason"
            )
        while True:
            with self._wake:
                while not (self._bodies or self._jobs or self._closing or self._rest):
                    self._wake.wait()
                if self._closing and not (self._bodies or self._jobs):
                    return
                bodies = self._take() if self._linger() else []
                jobs = list(self._jobs)
                self._jobs.clear()
                rest, self._rest = self._rest, False
            if bodies:
                began = time.monotonic()
                with tracer.start_as_current_span(
                    "commit",
                    attributes={"bodies": len(bodies), "bytes": sum(len(b.data) for b in bodies)},
                ):
                    self._commit(bodies)
                now = time.monotonic()
                with self._wake:
                    self._expected, self._linger_until = (
                        len(bodies) + len(self._bodies),
                        now + (now - began) * LINGER_RATIO,
                    )
            for job in jobs:
                self._run_job(job)
            if bodies or not self._bodies:
                self._checkpoint()
            if rest:
                self._store.settle()

    def _linger(self) -> bool:
        """Wait a little for the senders that have just been answered, if others wait already: one commit of 16 bodies costs half of two of 8.

        Returns whether bodies are to be stored now. A job that comes meanwhile is done in that time; otherwise senders come before jobs.
        """
        while (
            self._bodies
            and not self._closing
            and len(self._bodies) < self._expected
            and self._waiting_bytes < self._commit_bytes
        ):
            left = min(self._linger_until, self._bodies[0].came_s + LINGER_MAX_S) - time.monotonic()
            if left <= 0:
                break
            if self._jobs:
                return False
            self._wake.wait(left)
        return True

    def _take(self) -> list[Waiting]:
        taken: list[Waiting] = []
        size = items = 0
        while self._bodies and (
            not taken
            or (
                size + len(self._bodies[0].data) <= self._commit_bytes
                and items + self._bodies[0].items <= COMMIT_ITEMS
            )
        ):
            body = self._bodies.popleft()
            size += len(body.data)
            items += body.items
            taken.append(body)
        return taken

    def _checkpoint(self) -> None:
        """Move a long log into the file, between commits: senders have their answers and make their next bodies meanwhile."""
        try:
            if self._store.log_is_long():
                self._store.connection.execute("checkpoint")
                self._unmoved = ""
                if self._ends_move:
                    self._ends = ends(self._store.connection, *COMMITTED, *ASSEMBLED)
                    self._ends_move = False
                self._renew()
                self._store.settle()  # under load there is no other moment for it
        except Exception as error:  # the thread's edge: what was answered is in the log, and a disk that takes no more refuses the next commit
            why = str(error).splitlines()[0]
            if why != self._unmoved:  # it is tried again with every commit, and logged once
                log.warning("the write-ahead log could not be merged into the file: %s", why)
            self._unmoved = why
            self._reopen_after(error)

    def _renew(self) -> None:
        """Reopen the file now and then, right after a checkpoint, when there is little to close."""
        stored = self.counters.spans + self.counters.points
        if stored < self._renewed_at + RENEW_ROWS:
            return
        try:
            if self._store.renew():
                self._renewed_at = stored
        except (
            duckdb.Error,
            CollectorError,
        ) as failure:  # the next commit finds it closed and tries again
            log.error(
                "the store was closed for reopening and cannot be opened yet: %s",
                str(failure).splitlines()[0],
            )

    def _run_job(self, job: Job) -> None:
        try:
            self._reopen_if_suspect()
            connection = self._store.connection
            connection.begin()
            job.claims.starts |= {table: self._ends[table] for table in job.tables}
            result = job.run(connection)
            self._commit_transaction()
            self._prove_or_take_back(job.claims)
        except Exception as error:  # the thread's edge: the caller gets it, the thread lives on
            rollback(self._store.connection)
            self._reopen_after(error)
            job.future.set_exception(error)
        else:
            self._changes += 1
            job.future.set_result(result)

    def _commit(self, bodies: list[Waiting]) -> None:
        size = sum(len(b.data) for b in bodies)
        try:
            self._reopen_if_suspect()
            group, repeats = self._take_in(bodies)
        except (
            Exception
        ) as error:  # the thread's edge: every sender is answered, the thread lives on
            rollback(self._store.connection)
            self.counters.failed_commits += 1
            self._reopen_after(error)
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            failure = (
                error
                if isinstance(error, CollectorError)
                else StoreUnavailable(f"the store refused it: {reason}")
            )
            self.refusal = reason
            self._release(size)
            for body in bodies:
                if not body.future.done():
                    body.future.set_exception(failure)
        else:
            self._release(size)
            for body, result in zip(group.bodies, group.results, strict=True):
                body.future.set_result(result)
            for body in repeats:
                self.counters.duplicates += 1
                body.future.set_result(Stored(0, 0, duplicate=True))

    def _take_in(self, bodies: list[Waiting]) -> tuple[Group, list[Waiting]]:
        """Store the bodies that are new. Returns them, decoded, and those that were stored before."""
        group, repeats = self._decode(bodies)
        if group.bodies:
            self._store_group(group)
        return group, repeats

    def _stored(self, digests: list[bytes]) -> set[bytes]:
        """Which of these bodies have been stored in the last day."""
        return {digest for digest in digests if digest in self._hashes}

    def _release(self, size: int) -> None:
        """These bytes wait no longer. Before the answer: its sender may send the next body at once."""
        with self._wake:
            self._waiting_bytes -= size

    def _decode(self, bodies: list[Waiting]) -> tuple[Group, list[Waiting]]:
        """The bodies that are new, decoded; and those that were stored before. A bad one fails alone."""
        new: list[Waiting] = []
        repeats: list[Waiting] = []
        here: set[bytes] = set()
        for body in bodies:
            body.digest = hashlib.blake2b(bytes([body.signal]) + body.data, digest_size=16).digest()
        stored = self._stored([body.digest for body in bodies])
        for body in bodies:
            known = body.digest in stored or body.digest in here
            (repeats if known else new).append(body)
            here.add(body.digest)
        group = Group()
        self._decode_traces([b for b in new if b.signal == TRACES], group)
        for body in (b for b in new if b.signal == METRICS):
            try:
                points = decode_points(body.data, self._rules)
            except BadPayload as error:
                self._refuse(body, error)
                continue
            group.bodies.append(body)
            group.points.append(points)
            group.results.append(
                Stored(
                    len(points.rows),
                    points.rejected,
                    _why_rejected(points),
                )
            )
        for body in (b for b in new if b.signal == LOGS):
            notes = log_records.unpack(body.data)
            group.bodies.append(body)
            group.notes += notes
            group.results.append(Stored(len(notes), 0))
        failed = {b.digest for b in new if b.future.done()}
        # A repeat of a body that has just been refused is refused as well.
        for body in [r for r in repeats if r.digest in failed]:
            repeats.remove(body)
            self._refuse(body, BadPayload("the body is not an OTLP export request in protobuf"))
        return group, repeats

    def _decode_traces(self, bodies: list[Waiting], group: Group) -> None:
        if not bodies:
            return
        try:
            raw = self._decode_spans([b.data for b in bodies])
            nested.check(raw)
            found = normalize(raw, self._rules)
        except BadPayload as error:
            if len(bodies) == 1:
                self._refuse(bodies[0], error)
                return
            for body in bodies:
                self._decode_traces([body], group)
            return
        sent = np.bincount(raw.body, minlength=len(bodies)).tolist()
        group.spans.append(found)
        for i, body in enumerate(bodies):
            rejected = found.rejected.get(i, 0)
            group.bodies.append(body)
            reasons = [BROKEN_IDS] if rejected else []
            group.results.append(
                Stored(
                    sent[i] - rejected,
                    rejected,
                    "; ".join(
                        [
                            *reasons,
                            *([WARNING] if i in found.warned else []),
                            *([MISDATED_EVENTS] if i in found.misdated else []),
                        ]
                    ),
                )
            )

    def _refuse(self, body: Waiting, error: BadPayload) -> None:
        self.counters.bad_bodies += 1
        body.future.set_exception(error)

    def _store_group(self, group: Group) -> None:
        connection = self._store.connection
        batch = self._last_batch + 1
        now_ns = time.time_ns()
        laid_out = self._lay_out(group, batch)
        claims = Claims()
        claims.starts |= {table: self._ends[table] for table in COMMITTED}
        connection.begin()
        self._append_group(group, laid_out, batch, claims)
        # A handful of values: as parameters they cost half of what an Arrow scan does.
        hashes = {
            "hash": [b.digest for b in group.bodies],
            "signal": [b.signal for b in group.bodies],
            "now": now_ns,
        }
        connection.execute("insert into bodies select unnest($hash), unnest($signal), $now", hashes)
        self._append_batch(batch, now_ns, laid_out)
        claims.wrote(
            "bodies",
            pa.table({"received_ns": pa.repeat(pa.scalar(now_ns, pa.int64()), len(group.bodies))}),
            f"received_ns = {now_ns}",
        )
        claims.undo.append(f"delete from batches where batch = {batch}")
        leap = self._note_leap(connection, now_ns)
        self._finish(batch)
        self._prove_or_take_back(claims)
        self.refusal, self._noted = None, leap
        self._remember(laid_out)
        for laid, part in zip(laid_out.spans, group.spans, strict=True):
            self._recent.learn(laid.new, part.sources)
            self._recent.add(batch, laid.spans, laid.span_values)
        self._committed(group, batch, laid_out.count, len(laid_out.points))

    def _lay_out(self, group: Group, batch: int) -> LaidOut:
        """The rows of a group, as the tables have them."""
        count = sum(n.spans.num_rows for n in group.spans)
        points = [row for p in group.points for row in p.rows]
        group.spans = self._sources.fold(group.spans, group.points, self._count_cut)
        listed = [pair for part in group.spans for pair in part.sources]
        listed += [pair for part in group.points for pair in part.sources]
        sources = {i: row for i, row in listed if i not in self._sources.known}
        seqs = itertools.accumulate(
            (part.spans.num_rows for part in group.spans), initial=batch << BATCH_BITS
        )
        spans = [
            self._shapes.lay_out(part.spans, part.shapes, first)
            for part, first in zip(group.spans, seqs, strict=False)
        ]
        return LaidOut(count, points, sources, spans)

    def _append_group(self, group: Group, laid_out: LaidOut, batch: int, claims: Claims) -> None:
        """Append the rows of a group, in the transaction that has begun."""
        connection = self._store.connection
        low, of_batch = batch << BATCH_BITS, f"batch = {batch}"
        of_seq = f"seq >= {low} and seq < {low + (1 << BATCH_BITS)}"
        for laid, part in zip(laid_out.spans, group.spans, strict=True):
            if laid.new:
                numbers = [row["shape"] for row in laid.new.values()]
                claims.wrote(
                    "shapes",
                    append(connection, "shapes", shape_rows(laid.new)),
                    f"shape in ({', '.join(map(str, numbers))})",
                )
            claims.wrote("spans", append(connection, "spans", laid.spans), of_seq)
            claims.wrote("span_values", append(connection, "span_values", laid.span_values), of_seq)
            if part.aside is not None:
                claims.wrote(
                    "quarantine",
                    append(connection, "quarantine", _with_keys(part.aside, part.shapes), batch),
                    of_batch,
                )
            claims.wrote(
                "span_events", append(connection, "span_events", part.events, batch), of_batch
            )
            claims.wrote(
                "span_links", append(connection, "span_links", part.links, batch), of_batch
            )
        if laid_out.points:
            rows = pa.Table.from_pylist(laid_out.points, schema=_POINT_SCHEMA)
            claims.wrote("points", append(connection, "points", rows, batch), of_batch)
        if group.notes:
            claims.wrote(
                "span_notes", append(connection, "span_notes", _noted(group.notes), batch), of_batch
            )
        if laid_out.sources:
            listed = [{"source_id": i, **row} for i, row in laid_out.sources.items()]
            appended = append(
                connection, "sources", pa.Table.from_pylist(listed, schema=_SOURCE_SCHEMA), None
            )
            claims.wrote(
                "sources", appended, f"source_id in ({', '.join(map(str, laid_out.sources))})"
            )

    def _append_batch(self, batch: int, now_ns: int, laid_out: LaidOut) -> None:
        self._store.connection.execute(
            "insert into batches values (?, ?, ?, ?)",
            [batch, now_ns, laid_out.count, len(laid_out.points)],
        )

    def _remember(self, laid_out: LaidOut) -> None:
        """These sources and shapes are stored."""
        self._sources.remember(laid_out.sources)
        for laid in laid_out.spans:
            self._shapes.remember(laid.new)

    def _note_leap(self, connection: duckdb.DuckDBPyConnection, now_ns: int) -> str:
        """Note a leap of the clock with the commit that carries its time: by the newest commit alone, the next start would find nothing odd."""
        self._clock.now(now_ns)
        leap = str(self._clock.leap or "")
        if leap != self._noted:
            set_meta(connection, CLOCK_LEAP, leap)
        return leap

    def _finish(self, batch: int) -> None:
        """Commit. If DuckDB gives the database up meanwhile, the file knows whether the transaction is in it."""
        try:
            self._commit_transaction()
        except duckdb.Error as error:
            self._reopen_after(error)
            if self._last_batch != batch:
                raise StoreUnavailable(
                    f"the store refused it: {str(error).splitlines()[0]}"
                ) from error
            log.warning(
                "the commit is kept; the store was reopened after: %s", str(error).splitlines()[0]
            )

    def _commit_transaction(self) -> None:
        try:
            self._store.connection.commit()
        except duckdb.Error:
            # DuckDB 2.0.0, short of memory, left rows of a failed commit in its tables, and the rows of later commits were read as these.
            self._store.suspect = True
            raise

    def _prove(self, claims: Claims) -> None:
        """Read back what was written; once more as the log has it, if it is not there or cannot be read."""
        try:
            claims.prove(self._store.connection)
        except (duckdb.Error, NotAsWritten) as error:
            log.error(
                "the commit could not be read back, the store is reopened: %s",
                str(error).splitlines()[0],
            )
            self._store.suspect = True
            self._reopen()
            claims.prove(self._store.connection)

    def _prove_or_take_back(self, claims: Claims) -> None:
        """As `_prove`. What is not as it was written after all is deleted: every row that stands where the transaction began to append, or after it, or is its own."""
        try:
            self._prove(claims)
        except (duckdb.Error, CollectorError):
            self.counters.taken_back_commits += 1
            if not self._store.suspect:  # it was reopened
                connection = self._store.connection
                connection.begin()
                claims.take_back(connection)
                self._commit_transaction()
                self._load_state()
            raise
        self._ends |= claims.ends

    def _reopen_if_suspect(self) -> None:
        if self._store.suspect:
            self._reopen()

    def _reopen_after(self, error: Exception) -> None:
        """After a commit that failed, or a fatal error (a checkpoint on a full disk), the database is reopened, so that it recovers without a restart."""
        if not self._store.suspect and not isinstance(
            error, duckdb.FatalException | duckdb.ConnectionException
        ):
            return
        self._store.suspect = True
        try:
            self._reopen()
        except (
            duckdb.Error,
            CollectorError,
        ) as failure:  # logged and tried again with the next commit
            log.error(
                "the store failed and cannot be reopened yet: %s", str(failure).splitlines()[0]
            )

    def _reopen(self) -> None:
        self._store.reopen()
        self._load_state()

    def _committed(self, group: Group, batch: int, spans: int, points: int) -> None:
        now_s = time.monotonic()
        for body in group.bodies:
            self._hashes[body.digest] = now_s
        while self._hashes and (
            len(self._hashes) > MAX_HASHES or next(iter(self._hashes.values())) < now_s - HASH_AGE_S
        ):
            self._hashes.popitem(last=False)
        self._note_traces(group, batch, now_s)
        # After the notes: a reader of this number must find all traces up to it among the waiting ones.
        self._last_batch = batch
        self._changes += 1
        self.counters.commits += 1
        self.counters.bodies += len(group.bodies)
        self.counters.spans += spans
        self.counters.points += points
        self.counters.rejected_items += sum(r.rejected for r in group.results)
        self.counters.quarantined_spans += sum(
            p.aside.num_rows for p in group.spans if p.aside is not None
        )

    def _note_traces(self, group: Group, batch: int, now_s: float) -> None:
        """Remember the traces of a group, to be assembled."""
        for part in group.spans:
            t = part.spans
            hi, lo, start = (t.column(c).to_numpy() for c in ("trace_hi", "trace_lo", "start_ns"))
            self._quiet.note(hi, lo, start, batch, now_s)
            calls = joining_ids(t, "start_ns")
            calls = calls.filter(calls.column("response_id").is_valid())
            if calls.num_rows:
                self._response_ids.add(
                    calls.column("response_id").combine_chunks(),
                    calls.column("start_ns").to_numpy(),
                )
        if group.notes:  # their traces are assembled, again if they were
            hi, lo, at = (
                _noted(group.notes).column(c).to_numpy()
                for c in ("trace_hi", "trace_lo", "time_ns")
            )
            self._quiet.note(hi, lo, at, batch, now_s)


def _why_rejected(points: Points) -> str:
    reasons = ["data points without a usable value"] if points.rejected > points.misdated else []
    return "; ".join([*reasons, MISDATED_POINTS] if points.misdated else reasons)


def _pending() -> Future[Any]:
    """A future that its holder cannot cancel: a body stays stored even if its sender hangs up."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    return future


def _noted(notes: list[Note]) -> pa.Table:
    return pa.Table.from_pylist([note._asdict() for note in notes], schema=_NOTE_SCHEMA)


def append(
    connection: duckdb.DuckDBPyConnection, table: str, rows: pa.Table, batch: int | None = None
) -> pa.Table:
    """Append Arrow rows by column name, and return them as they were handed over; `table` is one of ours, never text from outside."""
    if not rows.num_rows:
        return rows
    # A column without any value is not handed over: its Arrow scan would cost as much as a full one's.
    rows = rows.select(
        [
            name
            for name, column in zip(rows.column_names, rows.columns, strict=True)
            if column.null_count < rows.num_rows
        ]
    )
    if batch is not None:
        rows = rows.append_column("batch", pa.repeat(pa.scalar(batch, pa.int64()), rows.num_rows))
    # `rows` is read from this frame: registering a view of it and dropping that again costs 1 ms, as much as appending 2,000 rows of 8 columns.
    connection.execute(f"insert into {table} ({', '.join(rows.column_names)}) select * from rows")
    return rows


def _with_keys(spans: pa.Table, shapes: dict[int, list[str]]) -> pa.Table:
    keys = [shapes[shape] for shape in spans.column("shape").to_pylist()]
    values = [unpacked(text) for text in spans.column("attribute_values").to_pylist()]
    key_lists, value_lists = (pa.array(texts, pa.list_(pa.string())) for texts in (keys, values))
    return (
        spans.drop_columns(["shape", "attribute_values"])
        .append_column("keys", key_lists)
        .append_column("attribute_values", value_lists)
    )


def rollback(connection: duckdb.DuckDBPyConnection) -> None:
    with contextlib.suppress(duckdb.Error):  # there may be no transaction left to undo
        connection.rollback()
