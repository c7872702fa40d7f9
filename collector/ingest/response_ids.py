"""May another stored span have this response id? Counts how many stored model calls have each one: if no more than are at hand, "no" is certain.

Looking through the store for partners (an engine's span of a client's call, in a trace of its own) costs more the more is stored: at 80,000 spans a second
it would be ten times what assembling costs. Hashes in open addressing, 28 bits and a count of 4 each, in tables that grow; the oldest table goes first.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from overrun.collector.arrays import BoolArray, IntArray, WordArray
from overrun.collector.ingest.known_traces import SEED
from overrun.collector.ingest.quiet_traces import LOOK_BACK_NS
from overrun.collector.normalise.packing import text_buffers
from overrun.collector.process.compiled import njit

_MANY = 15  # a count this high may be higher
_FIRST_BITS, _LAST_BITS = 14, 21  # slots of the first table and of the largest: 64 kB, 8 MB
# Tables kept together have at most so many slots: 24 MB for 4 M calls, six minutes at 80,000 spans a second with one call in eight.
_SLOTS = 3 << _LAST_BITS
_FULL_RATIO = 0.65


@dataclass(slots=True)
class _Table:
    slots: Any
    used: int
    latest_ns: int


class ResponseIds:
    """The writer adds, the assembler asks. Thread-safe."""

    def __init__(self, latest_ns: int, clock: Callable[[], int] = time.time_ns) -> None:
        """`latest_ns` is the latest start of a span that the store holds already."""
        self._lock = threading.Lock()
        self._clock = clock
        self._forgotten_ns = min(latest_ns, clock() + LOOK_BACK_NS)
        self._tables = deque([_empty(_FIRST_BITS)])

    def add(self, response_ids: pa.Array, start_ns: IntArray) -> None:
        """Model calls with these ids have been stored."""
        hashes = _hashes(response_ids)
        until_ns = self._clock() + LOOK_BACK_NS
        latest_ns = int(start_ns[start_ns <= until_ns].max(initial=0))
        with self._lock:
            table = self._tables[-1]
            if table.used + len(hashes) > _FULL_RATIO * len(table.slots):
                table = self._grow(len(hashes))
            table.used += _add(table.slots, hashes)
            table.latest_ns = max(table.latest_ns, latest_ns)

    def _grow(self, at_least: int) -> _Table:
        bits = min(len(self._tables[-1].slots).bit_length() + 1, _LAST_BITS)
        while _FULL_RATIO * (1 << bits) < at_least:
            bits += 1
        self._tables.append(_empty(bits))
        while sum(len(table.slots) for table in self._tables) > _SLOTS and len(self._tables) > 1:
            self._forgotten_ns = max(self._forgotten_ns, self._tables.popleft().latest_ns)
        return self._tables[-1]

    def elsewhere(self, response_ids: pa.Array, floor_ns: int) -> BoolArray:
        """For which of these (the ids of all calls at hand) a call that is not at hand, and started at `floor_ns` or later, may be stored."""
        hashes = _hashes(response_ids)
        with self._lock:
            if floor_ns <= self._forgotten_ns:
                return np.ones(len(hashes), dtype=np.bool_)
            stored = np.zeros(len(hashes), dtype=np.int64)
            for table in self._tables:
                _count_into(stored, table.slots, hashes)
        _, which, at_hand = np.unique(hashes, return_inverse=True, return_counts=True)
        return np.asarray(stored > at_hand[which], dtype=np.bool_)


def _empty(bits: int) -> _Table:
    return _Table(np.zeros(1 << bits, dtype=np.uint32), 0, 0)


def _hashes(texts: pa.Array) -> WordArray:
    offsets, data = text_buffers(texts)
    found: WordArray = _hash_all(offsets, data, SEED)
    return found


@njit(cache=True, nogil=True)
def _hash_all(offsets: Any, data: Any, seed: Any) -> Any:
    out = np.empty(len(offsets) - 1, dtype=np.uint64)
    for i in range(len(out)):
        value = seed
        for at in range(offsets[i], offsets[i + 1]):
            value = (value ^ np.uint64(data[at])) * np.uint64(
                1099511628211
            )  # FNV-1a, with a secret beginning
        value ^= value >> np.uint64(31)
        value *= seed
        out[i] = value ^ (value >> np.uint64(29))
    return out


@njit(cache=True, nogil=True)
def _add(slots: Any, hashes: Any) -> Any:
    """How many slots were taken."""
    last = np.uint64(len(slots) - 1)
    taken = 0
    for value in hashes:
        mark = np.uint32((value >> np.uint64(36)) << np.uint64(4))
        at = np.int64(value & last)
        while slots[at] != 0 and slots[at] & np.uint32(0xFFFFFFF0) != mark:
            at = (at + 1) & np.int64(last)
        if slots[at] == 0:
            slots[at] = mark | np.uint32(1)
            taken += 1
        elif slots[at] & np.uint32(_MANY) < _MANY:
            slots[at] += np.uint32(1)
    return taken


@njit(cache=True, nogil=True)
def _count_into(counts: Any, slots: Any, hashes: Any) -> None:
    """Add how many of each are in this table; _MANY counts as more than anybody has at hand."""
    last = np.uint64(len(slots) - 1)
    for i in range(len(hashes)):
        mark = np.uint32((hashes[i] >> np.uint64(36)) << np.uint64(4))
        at = np.int64(hashes[i] & last)
        while slots[at] != 0 and slots[at] & np.uint32(0xFFFFFFF0) != mark:
            at = (at + 1) & np.int64(last)
        if slots[at] != 0:
            count = np.int64(slots[at] & np.uint32(_MANY))
            counts[i] += count if count < _MANY else 1 << 40
