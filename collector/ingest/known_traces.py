"""Has this trace been seen before? A filter of the traces of the last minutes: "no" is certain, "yes" is wrong for one trace in 50,000.

A trace that is certainly new has nothing in the store yet, so that it can be assembled from memory and replaces nothing. Bloom's filter (1970), two
generations of 2.5 M traces and 8 MB each: what the older one forgets is known to have started before a certain moment.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from overrun.collector.arrays import BoolArray, IntArray, WordArray
from overrun.collector.process.compiled import njit

_BITS = 1 << 26
_TRACES = 2_500_000  # of one generation: 27 bits each
_HASHES = 8
SEED = np.uint64(
    secrets.randbits(63) | 1
)  # of the hash of trace ids: senders cannot choose ids that collide


@njit(cache=True, nogil=True)
def spot_of(trace_hi: Any, trace_lo: Any, seed: Any) -> Any:
    """A hash of a trace id, whose low bits are good."""
    spot = (trace_hi ^ trace_lo * seed) * seed
    return spot ^ (spot >> np.uint64(32))


class KnownTraces:
    """Traces seen since the process began; `latest_ns` is the latest start of a span that was there before."""

    def __init__(self, latest_ns: int, traces: int = _TRACES) -> None:
        self._traces = traces
        # One filter stands for both until the first is full: 8 MB less to keep, and to clear at each start.
        self._now = self._before = np.zeros(_BITS // 8, dtype=np.uint8)
        self._count = 0
        self._latest_now = self._latest_before = latest_ns
        self.latest_forgotten_ns = latest_ns

    def add(
        self, trace_hi: WordArray, trace_lo: WordArray, start_ns: IntArray, until_ns: int
    ) -> BoolArray:
        """Remember these traces (each once) and their starts up to `until_ns`; which of them may have been seen before."""
        if self._count + len(trace_hi) > self._traces:
            self._before, self._now = self._now, np.zeros(_BITS // 8, dtype=np.uint8)
            self.latest_forgotten_ns = max(self.latest_forgotten_ns, self._latest_before)
            self._latest_before, self._count = self._latest_now, 0
        known: Any = _add(self._now, self._before, trace_hi, trace_lo, SEED)
        self._count += len(trace_hi)
        sane = start_ns[start_ns <= until_ns]
        if len(sane):
            self._latest_now = max(self._latest_now, int(sane.max()))
        return np.asarray(known, dtype=np.bool_)


@njit(cache=True, nogil=True)
def _add(now: Any, before: Any, trace_hi: Any, trace_lo: Any, seed: Any) -> Any:
    known = np.empty(len(trace_hi), dtype=np.bool_)
    bits = np.uint64(8 * len(now) - 1)
    for t in range(len(trace_hi)):
        spot = (trace_hi[t] ^ trace_lo[t] * seed) * seed
        spot ^= spot >> np.uint64(29)
        step = (trace_lo[t] ^ spot) * seed | np.uint64(1)
        step ^= step >> np.uint64(31)
        step |= np.uint64(1)
        in_now, in_before = True, True
        for _ in range(_HASHES):
            bit = spot & bits
            byte, mask = np.int64(bit >> np.uint64(3)), np.uint8(1 << (bit & np.uint64(7)))
            in_before = in_before and before[byte] & mask != 0
            in_now = in_now and now[byte] & mask != 0
            now[byte] |= mask
            spot += step
        known[t] = in_now or in_before
    return known
