"""What stands in what? Questions about parents of spans, each answered in constant time or by a compiled walk, however deep the spans are nested."""

from __future__ import annotations

from typing import Any

import numpy as np

from overrun.analysis.words.arrays import BoolArray, IntArray
from overrun.collector.process.compiled import njit, read_only

_MAX_DEPTH = 10_000  # chains of parents are cut here, against cycles


def is_below(row: int, ancestor: int, parent: Any) -> bool:
    """Whether `ancestor` is above `row` (or `row` itself)."""
    return bool(_leads_to(row, ancestor, read_only(parent), _MAX_DEPTH))


def tops(parent: IntArray) -> IntArray:
    """The outermost row that each is in: its root."""
    top = np.where(parent >= 0, parent, np.arange(len(parent)))
    for _ in range(_MAX_DEPTH.bit_length()):
        above = top[top]
        if bool((above == top).all()):
            break
        top = above
    return top


def under(parent: IntArray, rows: IntArray, marked: BoolArray) -> BoolArray:
    """Which of these rows are somewhere in a marked one."""
    above = parent[rows]
    nearest = tops(np.where(marked, -1, parent))[np.maximum(above, 0)]
    return (above >= 0) & marked[nearest]


class Nesting:
    """What stands in what, for many questions about parents that do not change: each is answered at once, however deep the spans are nested."""

    def __init__(self, parent: IntArray) -> None:
        self._parent = parent
        self._first, self._last = _numbered(read_only(parent))

    def is_below(self, row: int, ancestor: int) -> bool:
        """As the function of that name."""
        if row < 0 or ancestor < 0 or self._first[row] < 0:  # in a circle
            return is_below(row, ancestor, self._parent)
        return bool(self._first[ancestor] <= self._first[row] <= self._last[ancestor])


@njit(cache=True, nogil=True)
def _leads_to(row, ancestor, parent, most):
    """See `is_below`."""
    for _ in range(most):
        if row < 0:
            return False
        if row == ancestor:
            return True
        row = parent[row]
    return False


@njit(cache=True, nogil=True)
def _numbered(parent):
    """Number the rows so that what is below a row has its number (`first`) up to `last`; -1 and -2 where parents go in a circle."""
    n = len(parent)
    size = np.ones(n, dtype=np.int64)
    inside = np.zeros(n, dtype=np.int64)
    for i in range(n):
        if parent[i] >= 0:
            inside[parent[i]] += 1
    order = np.empty(n, dtype=np.int64)  # from the innermost outwards
    m = 0
    for i in range(n):
        j = i
        while j >= 0 and inside[j] == 0:
            inside[j] = -1
            order[m] = j
            m += 1
            j = parent[j]
            if j >= 0:
                size[j] += size[order[m - 1]]
                inside[j] -= 1
    first = np.full(n, -1, dtype=np.int64)
    last = np.full(n, -2, dtype=np.int64)
    free = np.empty(n, dtype=np.int64)  # the number that the next row inside takes
    numbered = 0
    for k in range(m - 1, -1, -1):
        i = order[k]
        p = parent[i]
        if p < 0:
            first[i] = numbered
            numbered += size[i]
        elif first[p] >= 0:
            first[i] = free[p]
            free[p] += size[i]
        else:
            continue
        last[i] = first[i] + size[i] - 1
        free[i] = first[i] + 1
    return first, last


@njit(cache=True, nogil=True)
def calls_inside(above, calls):
    """How many of the calls stand somewhere inside each row."""
    n = len(above)
    found = np.zeros(n, dtype=np.int64)
    counts = np.zeros(n, dtype=np.int64)
    waiting = np.zeros(n, dtype=np.int64)
    for call in calls:
        counts[call] = 1
    for i in range(n):
        if above[i] >= 0:
            waiting[above[i]] += 1
    for i in range(n):
        j = i
        while j >= 0 and waiting[j] == 0:
            waiting[j] = -1
            p = above[j]
            if p >= 0:
                found[p] += found[j] + counts[j]
                waiting[p] -= 1
            j = p
    return found
