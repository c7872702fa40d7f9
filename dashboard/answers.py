"""Which of the server's answers are still good? Each question is asked once, however many sessions want it, and kept while the store stands still.

An answer is good for some seconds whatever happens, so that a click back and forth asks nothing. After that it is good as long as the store's mark (how far it
has come) is the one that stood before the answer was asked for: over a store at rest nothing is computed twice, over a moving one nothing is old.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, TypeVar

T = TypeVar("T")
FRESH_S: Final = 10.0
# The rest of an answer that is not whole is seconds away.
PART_S: Final = 2.0
# A late span can change a request without moving the mark: nothing is kept for longer than this.
KEEP_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class _Kept:
    future: Future[Any]
    mark: object
    at: float


class Answers:
    """Answers by question, the least recently wanted ones forgotten beyond `most`. They are shared: nobody changes one."""

    def __init__(
        self,
        mark: Callable[[], object],
        *,
        most: int = 256,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`mark` tells how far the store has come now; None is no mark."""
        self._mark, self._most, self._clock = mark, most, clock
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._seen: object = None

    def saw(self, mark: object) -> None:
        """Another answer told how far the store has come."""
        self._seen = mark

    def get(
        self,
        key: Hashable,
        ask: Callable[[], T],
        *,
        fresh_s: float = FRESH_S,
        keep_s: float = KEEP_S,
        whole: Callable[[T], bool] | None = None,
        part_s: float = PART_S,
    ) -> T:
        """The kept answer if it is good, else that of `ask`, which nobody else asks meanwhile; its errors are raised and not kept.

        One that is not `whole` yet is good for `part_s` only, whether the store moves or not.
        """
        while True:
            with self._lock:
                found = self._kept.get(key)
            good = found is not None and self._good(found, fresh_s, keep_s, whole, part_s)
            with self._lock:
                if self._kept.get(key) is not found:
                    continue  # somebody was faster
                if found is None or not good:
                    found, mine = _Kept(Future(), self._seen, self._clock()), True
                    self._kept[key] = found
                else:
                    mine = False
                self._kept.move_to_end(key)
                while len(self._kept) > self._most:
                    self._kept.popitem(last=False)
            break
        if mine:
            self._ask(key, found, ask)
        result: T = found.future.result()
        return result

    def found(self, key: Hashable) -> Any:
        """The kept answer of any age, None where there is none; nothing is asked."""
        with self._lock:
            found = self._kept.get(key)
        return (
            found.future.result()
            if found is not None and found.future.done() and found.future.exception() is None
            else None
        )

    def forget(self) -> None:
        """Ask everything again."""
        with self._lock:
            self._kept.clear()
            self._seen = None

    def _ask(self, key: Hashable, kept: _Kept, ask: Callable[[], object]) -> None:
        try:
            kept.future.set_result(ask())
        except BaseException as error:
            with self._lock:
                if self._kept.get(key) is kept:
                    del self._kept[key]
            kept.future.set_exception(error)

    def _good(
        self,
        kept: _Kept,
        fresh_s: float,
        keep_s: float,
        whole: Callable[[T], bool] | None,
        part_s: float,
    ) -> bool:
        if not kept.future.done():
            return True
        age = self._clock() - kept.at
        if whole is not None and not whole(kept.future.result()):
            return age <= min(fresh_s, part_s)
        if age <= fresh_s:
            return True
        return age <= keep_s and kept.mark is not None and self._mark() == kept.mark
