"""Who waits for which answer? Questions are answered in threads: few at once, only as long as a client waits, and once for all who ask the same.

A question may share an answer that has not been begun, or one during which nothing has been written since it began. Both see what was
acknowledged before the question came. What nobody waits for any more is interrupted: its rows would fill memory for no one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final, Generic, TypeVar

import duckdb

from overrun.collector.errors import StoreUnavailable
from overrun.collector.process import footprint

log = logging.getLogger("overrun.api")
T = TypeVar("T")
Reading = Callable[[], AbstractContextManager[duckdb.DuckDBPyConnection]]
# Questions that may wait for their turn: pages ask six at a time. More are asked to come again.
MOST_WAITING: Final = 64
# DuckDB forgets an interrupt between two questions of an answer, so it is repeated at this distance.
_AGAIN_S: Final = 0.01


class Unwanted(Exception):
    """No client waits for the answer any more."""


class TookTooLong(StoreUnavailable):
    """The answer was given up after its time."""

    http_status = 504


class Asking(Generic[T]):
    """One answer that is waited for or being made."""

    def __init__(self, make: Callable[[Asking[T]], T], reading: Reading) -> None:
        self._make, self._reading = make, reading
        self._lock = threading.Lock()
        self._cursors: set[duckdb.DuckDBPyConnection] = set()
        self.given_up = False
        self.count: int | None = None  # of changes, when it was begun
        self.clients = 0
        self.work: Future[T]
        self.done: asyncio.Future[T]  # the same, for the event loop

    def run(self, changes: Callable[[], int]) -> T:
        """Make the answer, in this thread.

        Raises:
            Unwanted: it was given up.
        """
        self._check()
        self.count = changes()
        began_s = time.thread_time()
        try:
            return self._make(self)
        except Exception as error:  # whatever an interrupted question led to
            if self.given_up:
                raise Unwanted from error
            raise
        finally:
            footprint.free_cycles(time.thread_time() - began_s)

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor to read with, whose questions end when the answer is given up."""
        self._check()
        with self._reading() as cursor:
            with self._lock:
                self._cursors.add(cursor)
            try:
                yield cursor
            finally:
                with self._lock:  # before it is closed
                    self._cursors.discard(cursor)

    def give_up(self) -> None:
        """Make nothing further; interrupt the question that runs now."""
        with self._lock:
            self.given_up = True
            for cursor in self._cursors:
                with suppress(duckdb.Error):
                    cursor.interrupt()

    def _check(self) -> None:
        if self.given_up:
            raise Unwanted


class Answering:
    """A few threads that answer. To be used from one event loop."""

    def __init__(
        self,
        name: str,
        reading: Reading,
        *,
        at_once: int,
        changes: Callable[[], int] = lambda: 0,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        """`reading` opens a cursor of the store; `changes` counts the transactions that have been committed, as for `answer_cache.Kept`."""
        self._reading, self._changes = reading, changes
        self._at_once, self._most_waiting = at_once, most_waiting
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix=name)
        self._shared: dict[Hashable, Asking[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.open = 0  # answers that wait or are made
        self.given_up = 0
        self.shared = 0  # questions that were answered with another's answer

    async def get(
        self,
        make: Callable[[Asking[T]], T],
        gone: Coroutine[Any, Any, None],
        *,
        within_s: float,
        key: Hashable = None,
    ) -> T:
        """The answer of `make`, called in a thread, or that of an equal question (same `key`) that still holds.

        `gone` returns when the client has gone.

        Raises:
            Unwanted: the client has gone. TookTooLong: there is no answer within so many seconds. StoreUnavailable: too many wait.
            Whatever `make` raises.
        """
        leaving = asyncio.ensure_future(gone)
        asking: Asking[T] | None = None
        try:
            asking = self._asked(make, key)
            asking.clients += 1
            either: set[asyncio.Future[Any]] = {asking.done, leaving}
            done, _ = await asyncio.wait(
                either, timeout=within_s, return_when=asyncio.FIRST_COMPLETED
            )
            if asking.done in done:
                return asking.done.result()
            if leaving in done:
                raise Unwanted
            raise TookTooLong(
                f"there was no answer within {within_s:g} s: ask for a shorter window, or again"
            )
        finally:
            leaving.cancel()
            if asking is not None:
                self._left(asking, key)

    def _asked(self, make: Callable[[Asking[T]], T], key: Hashable) -> Asking[T]:
        found = self._shared.get(key) if key is not None else None
        if found is not None and found.count in (None, self._changes()):
            self.shared += 1
            return found
        if self.open >= self._at_once + self._most_waiting:
            raise StoreUnavailable(
                f"{self.open} questions are being answered or wait for that: ask again in a few seconds"
            )
        asking = Asking(make, self._reading)
        asking.work = self._pool.submit(asking.run, self._changes)
        asking.done = asyncio.wrap_future(asking.work)
        self.open += 1
        if key is not None:
            self._shared[key] = asking
        asking.done.add_done_callback(lambda _: self._ended(asking, key))
        return asking

    def _ended(self, asking: Asking[Any], key: Hashable) -> None:
        self.open -= 1
        self._forget(asking, key)
        if not asking.done.cancelled():
            asking.done.exception()  # seen, also where no client is left to hear of it

    def _left(self, asking: Asking[Any], key: Hashable) -> None:
        asking.clients -= 1
        if asking.clients or asking.done.done():
            return
        self.given_up += 1
        self._forget(asking, key)
        if asking.work.cancel():  # it had not begun
            return
        task = asyncio.ensure_future(_end(asking))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _forget(self, asking: Asking[Any], key: Hashable) -> None:
        if self._shared.get(key) is asking:
            del self._shared[key]


async def _end(asking: Asking[Any]) -> None:
    """Interrupt an answer until it has ended."""
    while not asking.done.done():
        asking.give_up()
        await asyncio.sleep(_AGAIN_S)
