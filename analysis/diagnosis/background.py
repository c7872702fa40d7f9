"""What has been computed in the background? Answers that take seconds, made one after the other in a thread and kept with their age."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from overrun.collector.errors import StoreUnavailable

log = logging.getLogger("overrun.later")
V = TypeVar("V")
_KEPT: Final = 64
# An answer is not made again before so many times what it took: a tenth of a core at most goes into one question, however often it is asked.
_REST: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Kept(Generic[V]):
    value: V
    began: float
    took_s: float


class Later(Generic[V]):
    """Answers by question. `get` never waits: what is unknown, or older than `fresh_s`, is made by the thread."""

    def __init__(
        self,
        name: str,
        fresh_s: float,
        clock: Callable[[], float] = time.monotonic,
        *,
        after_s: float = 0.0,
    ) -> None:
        """`after_s` is how long the thread waits before it begins: who asked has the interpreter for itself until its answer is out."""
        self._name, self._fresh_s, self._clock, self._after_s = name, fresh_s, clock, after_s
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, _Kept[V]] = OrderedDict()
        self._waiting: OrderedDict[Hashable, Callable[[], V]] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._made = 0

    @property
    def made(self) -> int:
        """How many questions have been worked at so far, those that failed included: moves once an answer can be got, or asked for again."""
        return self._made

    def get(self, key: Hashable, job: Callable[[], V]) -> tuple[float, V] | None:
        """Return (age in seconds, answer), None where there is none yet; begins to make it where that is due."""
        with self._lock:
            known = self._known.get(key)
            age = 0.0 if known is None else self._clock() - known.began
            if known is None or age > max(self._fresh_s, _REST * known.took_s):
                # What is asked now comes first: of a question that is not asked again, no client waits for the answer.
                self._waiting.setdefault(key, job)
                self._waiting.move_to_end(key)
                while len(self._waiting) > _KEPT:
                    self._waiting.popitem(last=False)
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                    self._thread.start()
            return None if known is None else (age, known.value)

    def put(self, key: Hashable, value: V, took_s: float) -> None:
        """Keep an answer that somebody else has made just now, in so many seconds."""
        with self._lock:
            self._keep(key, _Kept(value, self._clock(), took_s))

    def last(self, key: Hashable) -> tuple[float, V] | None:
        """Return (age in seconds, answer) if there is one, and begin nothing."""
        with self._lock:
            known = self._known.get(key)
            return None if known is None else (self._clock() - known.began, known.value)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                key = next(reversed(self._waiting))
                job = self._waiting[key]
            time.sleep(self._after_s)
            began, made = self._clock(), None
            try:
                made = _Kept(job(), began, self._clock() - began)
            except StoreUnavailable:  # the server ends
                log.info("%s did not finish", self._name)
            except Exception:  # the edge of a thread: the answer stays unknown, the log learns why
                log.exception("%s failed", self._name)
            with self._lock:
                self._waiting.pop(key, None)
                self._made += 1
                if made is not None:
                    self._keep(key, made)

    def _keep(self, key: Hashable, made: _Kept[V]) -> None:
        self._known[key] = made
        self._known.move_to_end(key)
        while len(self._known) > _KEPT:
            self._known.popitem(last=False)
