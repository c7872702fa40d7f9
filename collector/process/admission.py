"""May another body come in? One budget of bytes and decoded items for all ports and signals, and a soft and a hard line of memory.

Bytes count from when they are read or inflated until the writer's queue takes the body over. Items count from before they are decoded until they are
stored. Both are taken before they exist, so that what is refused costs nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from overrun.collector.errors import PayloadTooLarge, QueueFull, StoreUnavailable
from overrun.collector.process import footprint

_LOOK_S = 0.05  # how old what is known of the process's memory may be: reading it takes 20 µs
# Of the soft line: above it no second question is answered beside another, so that reading is refused before telemetry is.
_READING_RATIO = 0.75
# Senders come again later the longer memory takes to be given back.
_AGAIN_S = 5


class Admission:
    """What all receivers of a process may hold together."""

    def __init__(
        self,
        max_bytes: int,
        max_items: int,
        body_items: int,
        soft_bytes: int = 0,
        hard_bytes: int = 0,
        used: Callable[[], int] | None = None,
    ) -> None:
        """`body_items` bounds one body. `soft_bytes` and `hard_bytes` of memory: 0 sets no line. `used` reads the memory that the process uses."""
        self.max_bytes, self.max_items, self.body_items = max_bytes, max_items, body_items
        self._soft, self._hard = soft_bytes, hard_bytes
        self._used = used or footprint.own_memory
        self._lock = threading.Lock()
        self._looked_s, self._memory = -_LOOK_S, 0
        self.bytes = 0
        self.items = 0
        self.answering = 0

    def check(self) -> None:
        """Refuse a new body while memory is above the soft line.

        Raises:
            QueueFull: the sender should come again.
        """
        if refusal := self.refusal():
            raise QueueFull(refusal, _AGAIN_S)

    def refusal(self) -> str:
        """Why no new body is taken; empty if one would be."""
        return self._over(self._soft, "memory_soft_mib")

    @contextmanager
    def body(self) -> Iterator[Place]:
        """Room for one body, given back at the end.

        Raises:
            QueueFull: memory is above the soft line.
        """
        self.check()
        place = Place(self)
        try:
            yield place
        finally:
            place.give_back()

    @contextmanager
    def answer(self) -> Iterator[None]:
        """One question is answered. One alone always may be, whatever it takes; others beside it only while there is memory for them.

        Raises:
            StoreUnavailable: whoever asks should ask again.
        """
        line = int(self._soft * _READING_RATIO)
        with self._lock:
            if self.answering and line and self._now() > line:
                raise StoreUnavailable(
                    f"the process uses {self._memory >> 20} MiB and answers {self.answering} other questions: ask again"
                )
            self.answering += 1
        try:
            yield
        finally:
            with self._lock:
                self.answering -= 1

    def _over(self, line: int, setting: str) -> str:
        if not line or self._now() <= line:
            return ""
        return f"the process uses {self._memory >> 20} MiB, {setting} is {line >> 20}: retry later"

    def _now(self) -> int:
        now_s = time.monotonic()
        if now_s - self._looked_s >= _LOOK_S:
            self._looked_s, self._memory = now_s, self._used()
            if self._hard and self._memory > self._hard:
                footprint.give_back()
                self._memory = self._used()
        return self._memory

    def _take(self, place: Place, size: int, items: int) -> None:
        if (size > 0 or items) and (over := self._over(self._hard, "memory_hard_mib")):
            raise QueueFull(over, _AGAIN_S)
        with self._lock:
            # A body that is alone may take more than there is: its own limits bound it, and refused it could never come.
            if self.bytes + size > self.max_bytes and self.bytes > place.bytes and size > 0:
                raise QueueFull(
                    f"{self.bytes} bytes are still arriving, the limit is {self.max_bytes} (queue_mib): retry later"
                )
            if self.items + items > self.max_items and self.items > place.items and items:
                raise QueueFull(
                    f"{self.items} items are being read or stored, the limit is {self.max_items} (queue_items): retry later"
                )
            self.bytes += size
            self.items += items
            place.bytes += size
            place.items += items

    def _give(self, place: Place, size: int, items: int) -> None:
        with self._lock:
            self.bytes -= size
            self.items -= items
            place.bytes -= size
            place.items -= items


class Place:
    """What one body holds of the budget."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.most = admission.body_items
        self.bytes = 0
        self.items = 0

    def take(self, size: int) -> None:
        """So many bytes are about to be held.

        Raises:
            QueueFull: there is no room for them now.
        """
        self._admission._take(self, size, 0)

    def give(self, size: int) -> None:
        """So many of these bytes are held no longer."""
        self._admission._give(self, size, 0)

    def take_items(self, items: int) -> None:
        """The body is about to become so many items.

        Raises:
            PayloadTooLarge: no body may have so many. QueueFull: there is no room for them now.
        """
        if items > self.most:
            raise PayloadTooLarge(
                f"the body has more than {self.most} items (spans, attributes, points, buckets)(max_body_items): send smaller batches"
            )
        self._admission._take(self, 0, max(items - self.items, 0))

    def queued(self) -> None:
        """The writer's queue counts the bytes from now on."""
        self._admission._give(self, self.bytes, 0)

    def give_back(self) -> None:
        """Nothing of the body is held any more."""
        self._admission._give(self, self.bytes, self.items)
