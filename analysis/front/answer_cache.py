"""Which answers still hold? Those over a fixed window are kept as long as nothing has been written: asking again costs nothing."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

# A page asks up to six questions. Most answers have less than 100 kB; a list of requests may have several MB.
MOST_ANSWERS: Final = 64
MOST_BYTES: Final = 8 << 20


class Kept:
    """Answers by question, the least recently wanted ones forgotten beyond `most`. Safe to share between threads."""

    def __init__(
        self,
        changes: Callable[[], int],
        *,
        most: int = MOST_ANSWERS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """`changes` counts the transactions that have been committed: the count moves after what it counts can be read."""
        self._changes, self._most, self._most_bytes = changes, most, most_bytes
        self.bytes = 0
        self._answers: OrderedDict[Hashable, tuple[int, bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self, key: Hashable, make: Callable[[], bytes], holds: Callable[[], bool] = lambda: True
    ) -> bytes:
        """The kept answer if the store still holds the same, else that of `make`, whose errors are raised and not kept; nor is one of which `holds` is False.

        The count is read before the answer is made: one that is made beside a commit is taken for the older of the two and made again.
        """
        count = self._changes()
        with self._lock:
            found = self._answers.get(key)
            if found is not None and found[0] == count:
                self._answers.move_to_end(key)
                return found[1]
        made = make()
        if not holds():
            return made
        with self._lock:
            self._drop(lambda _, kept: kept[0] < count)  # none of them holds any more
            self._drop(lambda other, _: other == key)
            self._answers[key] = count, made
            self.bytes += len(made)
            while len(self._answers) > self._most or self.bytes > self._most_bytes:
                self.bytes -= len(self._answers.popitem(last=False)[1][1])
        return made

    def _drop(self, which: Callable[[Hashable, tuple[int, bytes]], bool]) -> None:
        for key in [key for key, kept in self._answers.items() if which(key, kept)]:
            self.bytes -= len(self._answers.pop(key)[1])
