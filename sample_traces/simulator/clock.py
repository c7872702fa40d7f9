"""In which order do things happen? A simulated clock that runs generators as processes: `yield` what to wait for, `return` the result.

A process yields a number of seconds, a `Signal` (resumes with its value), or `(signal, seconds)` (resumes with True when the signal came
in time). Events at the same moment run in the order in which they were planned, so a run depends on nothing but its input.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable
from typing import Any

Process = Generator[Any, Any, Any]


class Signal:
    """Something that happens once and carries a value."""

    __slots__ = ("fired", "value", "waiters")

    def __init__(self) -> None:
        self.fired = False
        self.value: Any = None
        self.waiters: list[Callable[[Any], None]] = []


class Clock:
    """Simulated seconds since the start of the run."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._planned = 0

    def at(self, time_s: float, call: Callable[..., None], *args: Any) -> None:
        """Plan a call; a moment that has passed means now."""
        self._planned += 1
        heapq.heappush(self._heap, (max(time_s, self.now), self._planned, call, args))

    def start(self, process: Process) -> Signal:
        """Run a process from now on; the signal carries what it returns."""
        done = Signal()
        self._resume(process, done, None)
        return done

    def fire(self, signal: Signal, value: Any = None) -> None:
        """Let the signal happen; a second time changes nothing."""
        if signal.fired:
            return
        signal.fired, signal.value = True, value
        for wake in signal.waiters:
            wake(value)
        signal.waiters.clear()

    def all_of(self, signals: Iterable[Signal]) -> Process:
        """Wait for every signal; their values in the given order."""
        values = []
        for signal in signals:
            values.append((yield signal))
        return values

    def run(self, until_s: float) -> None:
        """Let everything happen that is planned up to a moment."""
        while self._heap and self._heap[0][0] <= until_s:
            self.now, _, call, args = heapq.heappop(self._heap)
            call(*args)
        self.now = until_s

    def _resume(self, process: Process, done: Signal, value: Any) -> None:
        try:
            wanted = process.send(value)
        except StopIteration as end:
            self.fire(done, end.value)
            return
        if isinstance(wanted, Signal):
            self._when(wanted, lambda got: self._resume(process, done, got))
        elif isinstance(wanted, tuple):
            self._within(process, done, *wanted)
        else:
            self.at(self.now + wanted, self._resume, process, done, None)

    def _when(self, signal: Signal, wake: Callable[[Any], None]) -> None:
        if signal.fired:
            self.at(self.now, wake, signal.value)
        else:
            signal.waiters.append(wake)

    def _within(self, process: Process, done: Signal, signal: Signal, seconds: float) -> None:
        settled = False

        def settle(in_time: bool) -> None:
            nonlocal settled
            if not settled:
                settled = True
                self._resume(process, done, in_time)

        self._when(signal, lambda _: settle(True))
        self.at(self.now + seconds, settle, False)


class Bucket:
    """A limit of tokens: filled at a rate, full when it is first asked, and never holding more than `most`."""

    def __init__(self, clock: Clock, per_s: float, most: float) -> None:
        self._clock, self._per_s, self._most = clock, per_s, most
        self._level, self._since = most, clock.now

    def take(self, tokens: float) -> bool:
        """Take tokens if all of them are there (a full bucket gives any number); False, and nothing taken, otherwise."""
        self._level = min(self._most, self._level + self._per_s * (self._clock.now - self._since))
        self._since = self._clock.now
        if self._level < min(tokens, self._most):
            return False
        self._level -= tokens
        return True

    def owe(self, tokens: float) -> None:
        """Take tokens that have been used already, there or not."""
        self._level -= tokens


class Slots:
    """A number of places that processes hold for a while, first come first served: a semaphore, a pool, a single thread."""

    def __init__(self, clock: Clock, size: int) -> None:
        self._clock, self._free = clock, size
        self._waiting: list[Signal] = []

    def take(self) -> Process:
        """Wait for a place."""
        if self._free > 0:
            self._free -= 1
            return
        place = Signal()
        self._waiting.append(place)
        yield place

    def give(self) -> None:
        """Hand the place to whoever waits longest."""
        if self._waiting:
            self._clock.fire(self._waiting.pop(0))
        else:
            self._free += 1
