"""How long is telemetry kept? What was received longest ago goes first: by age, and by the size of the file.

Age counts from when a commit was received, not from when its spans happened, so that imported history is as fresh as the day of its import. A clock that
leaps forward expires nothing before it has been so for a day (process/steady_clock.py).
Work is done in small transactions of the writer's thread, a few commits' rows each, so that senders wait for milliseconds at most; a checkpoint
afterwards gives the blocks back to the file, where new rows reuse them (DuckDB does not shrink a file in the middle).
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import duckdb

from overrun.collector.config import RetentionSettings
from overrun.collector.errors import CollectorError, ConfigError
from overrun.collector.ingest.pipeline import clock_of
from overrun.collector.ingest.writer import Writer
from overrun.collector.process.steady_clock import CLOCK_LEAP, TOLERANCE_NS, SteadyClock
from overrun.collector.process.tracing import tracer
from overrun.collector.store.database import BATCH_BITS, set_meta
from overrun.collector.store.proof import Claims
from overrun.collector.store.store import Store

log = logging.getLogger("overrun.retention")
DAY_NS = 86_400 * 10**9
# Rows of one transaction: 100,000 spans are found and marked as gone in about 20 ms.
CHUNK_ROWS = 100_000
# Over the size, so much more is let go that the next round has nothing to do for a while.
SLACK_RATIO = 0.1
# What a share of the rows gives back is an estimate: whole row groups come back. A round asks so often whether the file fits.
_PASSES = 3
# Blocks come back a row group (the rows of one checkpoint) at a time: below this, letting go of the oldest would let go of nearly everything.
MIN_BYTES = 32 << 20
BATCH_TABLES = (
    "quarantine",
    "span_events",
    "span_links",
    "points",
    "requests",
    "llm_calls",
    "span_notes",
)
SEQ_TABLES = ("spans", "span_values")
# What telemetry alone referred to goes with it, so often at most: each span's shape is read for it (0.1 s for ten million).
_SWEEP_S = 3_600.0
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size_bytes(text: str) -> int:
    """`20GB`, `500 MiB` or a number of bytes; 0 is no limit. Units are powers of 1,024, as DuckDB shows them.

    Raises:
        ConfigError: not such a text.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if not found:
        raise ConfigError(
            f"[retention] db_max_size = {text!r} is not a size: use one such as 20GB or 500MB, or 0 for no limit"
        )
    size = int(float(found[1]) * _UNITS[found[2].upper()])
    if 0 < size < MIN_BYTES:
        raise ConfigError(
            f"[retention] db_max_size = {text!r} is too small: use {MIN_BYTES >> 20}MB or more, or 0 for no limit"
        )
    return size


@dataclass(frozen=True, slots=True)
class Expired:
    """What one round let go."""

    batches: int = 0
    spans: int = 0
    points: int = 0


class Retention:
    """Lets go of what is too old or too much; `round` once, or every `check_s` in a thread of its own (`running`)."""

    chunk_rows = CHUNK_ROWS

    def __init__(
        self,
        store: Store,
        writer: Writer,
        settings: RetentionSettings,
        clock: SteadyClock | None = None,
    ) -> None:
        self._store = store
        self._clock = clock or clock_of(store)
        self._noted = store.meta(CLOCK_LEAP)
        self._writer = writer
        self._max_age_ns = int(settings.max_age_days * DAY_NS)
        self._max_bytes = size_bytes(settings.db_max_size)
        self._check_s = settings.check_s
        self._swept_s, self._unused, self._day_ns = -math.inf, False, 0
        self._cut: Counter[str] = Counter()  # what has been noted in the store
        self._stop = threading.Event()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """A round every `check_s` for as long as the block lasts."""
        thread = threading.Thread(target=self._watch, name="overrun-retention", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self._check_s):
            try:
                with tracer.start_as_current_span("expire"):
                    self.round(time.time_ns())
            except (
                duckdb.Error,
                CollectorError,
            ) as error:  # said and tried again: the store may be full or closing
                log.warning(
                    "expiring old telemetry failed, trying again in %g s: %s",
                    self._check_s,
                    str(error).splitlines()[0],
                )

    def round(self, now_ns: int) -> Expired:
        """Let go of everything received before `now_ns` (the wall clock) less the age, then of the oldest until the file is below its size."""
        steady_ns = self._clock.now(now_ns)
        self._day_ns = steady_ns - DAY_NS
        self._note_leap()
        self._note_cuts(steady_ns)
        through, done = self._too_old(steady_ns), Expired()
        for _ in range(_PASSES):
            if self._max_bytes:
                through = max(through, self._too_much())
            gone = self._expire(through)
            if not gone.batches:
                break
            self._give_back()
            done = Expired(
                done.batches + gone.batches, done.spans + gone.spans, done.points + gone.points
            )
        if done.batches:
            log.info(
                "expired %d spans and %d points of %d commits",
                done.spans,
                done.points,
                done.batches,
            )
        self._sweep(steady_ns, done.batches > 0)
        return done

    def _give_back(self) -> None:
        """Have the file reuse the blocks of deleted rows."""
        self._writer.call(checkpoint).result()

    def _too_old(self, now_ns: int) -> int:
        if not self._max_age_ns:
            return 0
        # Up to the last old commit before the first young one: a clock that was behind for a moment has made a young commit look old. What seems to come
        # from the future shows nothing about its age.
        rows = self._ask(
            "select coalesce(max(batch), 0) from batches where received_ns < $before and batch < coalesce("
            "(select min(batch) from batches where received_ns >= $before and received_ns <= $latest), 9223372036854775807)",
            {"before": now_ns - self._max_age_ns, "latest": now_ns + TOLERANCE_NS},
        )
        return int(rows[0][0])

    def _note_leap(self) -> None:
        """Have the store remember a leap of the clock, so that a restart does not end the wait."""
        leap = str(self._clock.leap or "")
        if leap != (self._noted or ""):
            self._writer.call(lambda connection: set_meta(connection, CLOCK_LEAP, leap)).result()
            self._noted = leap

    def _note_cuts(self, now_ns: int) -> None:
        """Add to what the file says was cut since it was made."""
        counts = self._writer.tally.by_label("cut", "what")
        new = {what: n - self._cut[what] for what, n in counts.items() if n > self._cut[what]}
        if new:
            self._writer.call(lambda connection: add_cuts(connection, new, now_ns)).result()
            self._cut = Counter(counts)

    def _sweep(self, now_ns: int, expired: bool) -> None:
        """Once an hour at most: delete hashes of bodies that are remembered no longer, and what the telemetry alone referred to that has expired since."""
        self._unused |= expired
        if time.monotonic() - self._swept_s < _SWEEP_S:
            return
        self._swept_s, unused, self._unused = time.monotonic(), self._unused, False
        gone = self._writer.call(
            lambda connection: self._swept(connection, now_ns - DAY_NS, unused)
        ).result()
        if any(gone):
            self._give_back()
            log.info("deleted %d hashes of bodies, %d unused shapes and %d sources", *gone)

    def _swept(
        self, connection: duckdb.DuckDBPyConnection, day_ns: int, unused: bool
    ) -> tuple[int, int, int]:
        bodies = connection.execute(
            "delete from bodies where received_ns < $day returning signal", {"day": day_ns}
        ).fetchall()
        if not unused:
            return len(bodies), 0, 0
        shapes = connection.execute(
            "delete from shapes where shape not in (select shape from spans) returning shape"
        ).fetchall()
        used = " union all ".join(
            f"select source_id from {table}" for table in ("shapes", "quarantine", "points")
        )
        sources = connection.execute(
            f"delete from sources where source_id not in ({used}) returning source_id"
        ).fetchall()
        self._writer.forget({int(row[0]) for row in shapes}, {int(row[0]) for row in sources})
        return len(bodies), len(shapes), len(sources)

    def _too_much(self) -> int:
        """The last batch to go so that the rest fits, judged by its share of the rows; 0 if all fits."""
        used = used_bytes(self._store)
        if used <= self._max_bytes:
            return 0
        surplus = 1 - self._max_bytes * (1 - SLACK_RATIO) / used
        shares = "select batch, sum(spans + points) over (order by batch) / sum(spans + points) over () as share from batches"
        rows = self._ask(
            f"select min(batch) from ({shares}) where share >= $surplus", {"surplus": surplus}
        )
        return int(rows[0][0] or 0)

    def _expire(self, through: int) -> Expired:
        batches = spans = points = 0
        # The newest commit stays whatever its age: numbering goes on from it, and an empty store has nothing to show.
        for first, last, gone_spans, gone_points in self._chunks(through):
            if self._stop.is_set():
                break
            self._let_go(first, last)
            batches, spans, points = (
                batches + last - first + 1,
                spans + gone_spans,
                points + gone_points,
            )
        self._writer.tally.count("expired_spans", spans)
        self._writer.tally.count("expired_points", points)
        return Expired(batches, spans, points)

    def _let_go(self, first: int, last: int) -> None:
        claims = Claims()
        self._writer.call(
            lambda connection: _delete(connection, first, last, self._day_ns, claims), claims
        ).result()

    def _chunks(self, through: int) -> Iterator[tuple[int, int, int, int]]:
        """(first batch, last batch, spans, points) of each transaction."""
        rows = self._ask(
            "select batch, spans, points from batches where batch <= $through and batch < (select max(batch) from batches) order by batch",
            {"through": through},
        )
        first = last = spans = points = 0
        for batch, some_spans, some_points in rows:
            if first and spans + points + some_spans + some_points > self.chunk_rows:
                yield first, last, spans, points
                first = spans = points = 0
            first, last = first or batch, batch
            spans, points = spans + some_spans, points + some_points
        if first:
            yield first, last, spans, points

    def _ask(self, query: str, parameters: dict[str, int | float]) -> list[tuple[int, ...]]:
        with self._store.asking() as cursor:
            return cursor.execute(query, parameters).fetchall()


def add_cuts(connection: duckdb.DuckDBPyConnection, new: Mapping[str, int], now_ns: int) -> None:
    """Add to the rows of `cuts`. Not as an update, as in `database.set_meta`."""
    held = dict(connection.execute("select what, items from cuts").fetchall())
    for what, n in new.items():
        connection.execute("delete from cuts where what = $what", {"what": what})
        connection.execute(
            "insert into cuts values ($what, $items, $last)",
            {"what": what, "items": int(held.get(what, 0)) + n, "last": now_ns},
        )


def _delete(
    connection: duckdb.DuckDBPyConnection, first: int, last: int, day_ns: int, claims: Claims
) -> None:
    """Delete the rows of these commits; those of the next one are claimed to stay as they are. Hashes of bodies from `day_ns` on stay."""
    for table in SEQ_TABLES:
        connection.execute(
            f"delete from {table} where seq >= $low and seq < $high",
            {"low": first << BATCH_BITS, "high": (last + 1) << BATCH_BITS},
        )
    for table in BATCH_TABLES:
        connection.execute(
            f"delete from {table} where batch >= $first and batch <= $last",
            {"first": first, "last": last},
        )
    connection.execute(
        "delete from bodies where received_ns <= (select max(received_ns) from batches where batch <= $last) and received_ns < $day",
        {"last": last, "day": day_ns},
    )
    connection.execute(
        "delete from batches where batch >= $first and batch <= $last",
        {"first": first, "last": last},
    )
    for table in SEQ_TABLES:
        claims.saw(
            connection, table, f"seq >= {first << BATCH_BITS} and seq < {(last + 2) << BATCH_BITS}"
        )
    for table in BATCH_TABLES:
        claims.saw(connection, table, f"batch between {first} and {last + 1}")


def checkpoint(connection: duckdb.DuckDBPyConnection) -> None:
    """Write the log into the file and give back the blocks of deleted rows. Runs in the writer's transaction, which has changed nothing."""
    connection.execute("checkpoint")


def used_bytes(store: Store) -> int:
    """What the store takes: blocks in use and the write-ahead log of a file, the newest files of a lake."""
    return store.used_bytes()
