"""Which traces have gone quiet and can be assembled? Remembers, per trace, when its last span came, from which commit on, and its earliest start.

A trace that never goes quiet is assembled as far as it has come whenever it has waited for a greatest age, and again at its end.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from overrun.collector.arrays import IntArray, WordArray
from overrun.collector.ingest.known_traces import SEED, KnownTraces, spot_of
from overrun.collector.process.compiled import njit, read_only

Key = tuple[int, int]
# Earliest starts of traces already assembled are remembered for this many traces (300 bytes each).
REMEMBERED = 20_000
# Spans of one trace, and an engine's span of a client's call, are looked for this far before the earliest start that is known of them: the
# longest model call that providers allow. It bounds the scan; a trace's own earlier spans are known unless it is long forgotten.
LOOK_BACK_NS = 600 * 10**9
MAX_AGE_S = 900.0
# Traces assembled in parts whose earliest starts are remembered, however many others come meanwhile.
_LONG = 2_000


@dataclass(slots=True)
class Seen:
    """A trace that waits: when its last span was stored (monotonic s), the first commit not yet assembled and the last one, its earliest span start, whether
    it is certain that nothing of it came before that first commit, whether another trace's round has assembled it meanwhile, and since when it waits."""

    last_s: float
    first_batch: int
    last_batch: int
    start_ns: int
    new: bool = False
    covered: bool = False
    first_s: float = 0.0


class QuietTraces:
    """Traces with spans that no assembled row covers yet, in the order of their last span. Thread-safe."""

    def __init__(
        self,
        latest_ns: int = 0,
        clock: Callable[[], int] = time.time_ns,
        max_age_s: float = MAX_AGE_S,
    ) -> None:
        """`latest_ns` is the latest start of a span that the store holds already; a trace waits for `max_age_s` at most."""
        self._lock = threading.Lock()
        self._clock = clock
        self._known = KnownTraces(min(latest_ns, clock() + LOOK_BACK_NS))
        self._waiting: OrderedDict[Key, Seen] = OrderedDict()
        self._starts: OrderedDict[Key, int] = OrderedDict()
        self._running: dict[Key, Seen] = {}
        self._max_age_s = max_age_s
        self._overdue: OrderedDict[Key, None] = OrderedDict()  # those of `_waiting` over that age
        self._long_starts: OrderedDict[Key, int] = OrderedDict()
        self._recovered = _Recovered()

    def __len__(self) -> int:
        """Traces whose spans came since the start; those of before are the `backlog`."""
        with self._lock:
            return len(self._waiting) + len(self._running)

    @property
    def backlog(self) -> int:
        """How many traces of an earlier process still wait. Senders are not refused because of them."""
        return len(self._recovered)

    def recover(
        self,
        trace_hi: WordArray,
        trace_lo: WordArray,
        start_ns: IntArray,
        batch: int,
        last: int,
        now_s: float,
    ) -> None:
        """An earlier process stored spans of these traces in the commits from `batch` to `last` and did not assemble them. Each trace stands there once."""
        self._known.add(trace_hi, trace_lo, start_ns, self._clock() + LOOK_BACK_NS)
        order = np.argsort(start_ns, kind="stable")
        with self._lock:
            self._recovered = _Recovered(
                trace_hi[order], trace_lo[order], start_ns[order], batch, last, now_s
            )

    def remember(self, trace_hi: WordArray, trace_lo: WordArray, start_ns: IntArray) -> None:
        """Spans of these traces were stored before, and are assembled. Each trace stands there once."""
        self._known.add(trace_hi, trace_lo, start_ns, self._clock() + LOOK_BACK_NS)

    def oldest_s(self) -> float | None:
        """When the last span came of the trace that has waited longest (monotonic s); None if none waits."""
        with self._lock:
            times = [seen.last_s for seen in self._running.values()]
            if self._waiting:
                times.append(next(iter(self._waiting.values())).last_s)
            if len(self._recovered):
                times.append(self._recovered.since_s)
        return min(times, default=None)

    def note(
        self, trace_hi: WordArray, trace_lo: WordArray, start_ns: IntArray, batch: int, now_s: float
    ) -> None:
        """Spans of these traces were stored in commit `batch`."""
        first, start = _distinct(*map(read_only, (trace_hi, trace_lo, start_ns)))
        hi, lo = trace_hi[first], trace_lo[first]
        # Traces from the future (a broken clock) are never new: one of them would make all others old.
        until_ns = self._clock() + LOOK_BACK_NS
        new = (
            ~self._known.add(hi, lo, start, until_ns)
            & (start <= until_ns)
            & (start > self._known.latest_forgotten_ns + LOOK_BACK_NS)
        )
        rows = zip(hi.tolist(), lo.tolist(), start.tolist(), new.tolist(), strict=True)
        with self._lock:
            for h, low, earliest, is_new in rows:
                key = (h, low)
                seen = self._waiting.pop(key, None)
                known = self._starts.get(key, self._long_starts.get(key, earliest))
                begin = min(earliest, known)
                if seen is None:
                    self._waiting[key] = Seen(now_s, batch, batch, begin, is_new, first_s=now_s)
                else:
                    if now_s - seen.first_s >= self._max_age_s:
                        self._overdue[key] = None
                    seen.last_s, seen.last_batch, seen.start_ns = (
                        now_s,
                        batch,
                        min(seen.start_ns, begin),
                    )
                    self._waiting[key] = seen

    def take(self, now_s: float, quiet_s: float, limit: int) -> dict[Key, Seen]:
        """Up to `limit` traces whose last span is at least `quiet_s` old, or that have waited for too long; then those of an earlier process, the oldest first.

        They count as pending until `done`.
        """
        with self._lock:
            while self._overdue and len(self._running) < limit:
                key, _ = self._overdue.popitem(last=False)
                if key in self._waiting and key not in self._running:
                    self._running[key] = self._waiting.pop(key)
            while self._waiting and len(self._running) < limit:
                key, seen = next(iter(self._waiting.items()))
                if now_s - seen.last_s < quiet_s:
                    break
                del self._waiting[key]
                self._overdue.pop(key, None)
                self._running[key] = seen
            # Some of them go on: their spans of after the restart may come first.
            settled = now_s - self._recovered.since_s >= quiet_s
            for key, seen in self._recovered.take(limit - len(self._running) if settled else 0):
                self._running.setdefault(key, seen)
            return dict(self._running)

    def done(self, taken: dict[Key, Seen]) -> None:
        """These traces have been assembled and stored."""
        with self._lock:
            for key, seen in taken.items():
                self._running.pop(key, None)
                self._starts[key] = seen.start_ns
                self._starts.move_to_end(key)
                if key in self._long_starts or seen.last_s - seen.first_s >= self._max_age_s:
                    self._long_starts[key] = seen.start_ns
                    self._long_starts.move_to_end(key)
            while len(self._long_starts) > _LONG:
                self._long_starts.popitem(last=False)
            while len(self._starts) > REMEMBERED:
                self._starts.popitem(last=False)

    def cover(self, others: Iterable[Key]) -> None:
        """These traces were assembled with others that report the same calls: those that still wait have rows, which theirs replace."""
        with self._lock:
            for key in others:
                seen = self._waiting.get(key) or self._running.get(key)
                if seen is not None:
                    seen.covered = True

    def assembled_through(self, last_batch: int, taken: dict[Key, Seen]) -> int:
        """The commit up to which everything is assembled once `taken` is stored; what is after it is looked at again after a crash."""
        with self._lock:
            waiting = [seen.first_batch for seen in self._waiting.values()]
            running = [seen.first_batch for key, seen in self._running.items() if key not in taken]
            recovered = [self._recovered.batch] if len(self._recovered) else []
        return min([*waiting, *running, *recovered, last_batch + 1]) - 1


class _Recovered:
    """Traces of an earlier process that wait, 24 bytes each; taken in the order of their starts."""

    def __init__(
        self,
        trace_hi: WordArray | None = None,
        trace_lo: WordArray | None = None,
        start_ns: IntArray | None = None,
        batch: int = 0,
        last: int = 0,
        since_s: float = 0.0,
    ) -> None:
        none: WordArray = np.empty(0, dtype=np.uint64)
        self._hi = none if trace_hi is None else trace_hi
        self._lo = none if trace_lo is None else trace_lo
        self._start = none.astype(np.int64) if start_ns is None else start_ns
        self._at = 0
        self.batch, self._last, self.since_s = batch, last, since_s

    def __len__(self) -> int:
        return len(self._hi) - self._at

    def take(self, n: int) -> Iterator[tuple[Key, Seen]]:
        """The next `n` of them."""
        first, self._at = self._at, min(self._at + max(n, 0), len(self._hi))
        part = slice(first, self._at)
        rows = zip(
            self._hi[part].tolist(),
            self._lo[part].tolist(),
            self._start[part].tolist(),
            strict=True,
        )
        for hi, lo, start in rows:
            yield (
                (hi, lo),
                Seen(self.since_s, self.batch, self._last, start, first_s=self.since_s),
            )


@njit(cache=True, nogil=True)
def _distinct(trace_hi: Any, trace_lo: Any, start_ns: Any) -> Any:
    """The first row of each trace, and its earliest start."""
    n = len(trace_hi)
    size = 16
    while size < 2 * n:
        size *= 2
    last = np.uint64(size - 1)
    slots = np.full(size, -1, dtype=np.int64)
    first, start = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    found, t = 0, -1
    for r in range(n):
        if t < 0 or trace_hi[r] != trace_hi[first[t]] or trace_lo[r] != trace_lo[first[t]]:
            spot = spot_of(trace_hi[r], trace_lo[r], SEED)
            while True:
                at = np.int64(spot & last)
                t = slots[at]
                if t < 0:
                    t = found
                    slots[at], first[t], start[t] = t, r, start_ns[r]
                    found += 1
                    break
                if trace_hi[r] == trace_hi[first[t]] and trace_lo[r] == trace_lo[first[t]]:
                    break
                spot += np.uint64(1)
        start[t] = min(start[t], start_ns[r])
    return first[:found], start[:found]
