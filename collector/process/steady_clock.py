"""What time is it, if the wall clock may jump? A clock that follows the wall clock, but not through a leap forward until that has lasted for a day.

What is deleted by age, and how far minutes are folded, must not depend on a clock that is wrong for an hour. So time goes on by the monotonic clock from
where the wall clock was, or from the newest commit of the file at a start. A leap that lasts is believed: then it was the old time that was wrong, or the
server was off.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger("overrun.collector")
HOUR_NS = 3600 * 10**9
# Clocks are set by seconds, after a long sleep of the machine's own by minutes; nothing that is deleted by age is deleted by the hour.
TOLERANCE_NS = HOUR_NS
# A server that was off for less than this is not worth a word.
OFF_NS = 24 * HOUR_NS
# Long enough that somebody sees the warning on a working day, short beside the days for which telemetry is kept.
WAIT_NS = 24 * HOUR_NS


# The store's note of a leap that is being waited out.
CLOCK_LEAP = "clock_leap"


def _wall_ns() -> int:
    return time.time_ns()


def _elapsed_ns() -> int:
    """Monotonic time that also counts while the machine sleeps, where there is such a clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic_ns() if clock is None else time.clock_gettime_ns(clock)


@dataclass(frozen=True, slots=True)
class Leap:
    """The wall clock has been `ahead_ns` ahead of what it should show, since it showed `since_ns`. As text in the store, so that a restart does not end the wait."""

    ahead_ns: int
    since_ns: int

    def __str__(self) -> str:
        return f"{self.ahead_ns} {self.since_ns}"

    @classmethod
    def read(cls, text: str | None) -> Leap | None:
        """The leap that a store noted; None if there is none."""
        parts = (text or "").split()
        return (
            cls(int(parts[0]), int(parts[1]))
            if len(parts) == 2 and all(part.isdigit() for part in parts)
            else None
        )


class SteadyClock:
    """`now` for everything that deletes or folds by age. Thread-safe."""

    def __init__(
        self,
        newest_ns: int = 0,
        leap: Leap | None = None,
        wall: Callable[[], int] = _wall_ns,
        elapsed: Callable[[], int] = _elapsed_ns,
    ) -> None:
        """`newest_ns` is when the file's newest commit was received (0: it has none); `leap` is what an earlier process was waiting out."""
        self._lock = threading.Lock()
        self._wall, self._elapsed = wall, elapsed
        now_ns = wall()
        self._base_ns = now_ns
        self._base_elapsed = elapsed()
        self._leap: Leap | None = None
        if leap is not None and leap.since_ns - TOLERANCE_NS <= now_ns < leap.since_ns + WAIT_NS:
            self._leap = leap
            self._base_ns = now_ns - leap.ahead_ns
        elif leap is None and 0 < newest_ns < now_ns - OFF_NS:
            self._base_ns = newest_ns

    @property
    def leap(self) -> Leap | None:
        """The leap that is being waited out; None if the wall clock is believed."""
        return self._leap

    def now(self, wall_ns: int | None = None) -> int:
        """Unix time in ns: never later than the wall clock, and behind it while a leap forward is waited out."""
        with self._lock:
            wall_ns = self._wall() if wall_ns is None else wall_ns
            steady_ns = self._base_ns + self._elapsed() - self._base_elapsed
            ahead_ns = wall_ns - steady_ns
            if ahead_ns <= TOLERANCE_NS:
                if self._leap is not None:
                    log.warning(
                        "the clock is right again: telemetry expires and is folded by age as before"
                    )
                    self._leap = None
                if ahead_ns >= -TOLERANCE_NS:
                    self._follow(wall_ns)
                return min(wall_ns, steady_ns) if ahead_ns < -TOLERANCE_NS else wall_ns
            if self._leap is None:
                self._leap = Leap(ahead_ns, wall_ns)
                log.warning(
                    "the clock is %.1f hours ahead of the newest commit and of the elapsed time: nothing expires by age until this has lasted %d hours. "
                    "If the clock is right, or the server was off, do nothing. Otherwise set the clock",
                    ahead_ns / HOUR_NS,
                    WAIT_NS // HOUR_NS,
                )
            if wall_ns - self._leap.since_ns < WAIT_NS:
                return steady_ns
            # Believed only if that much time has really passed: the clock may have leapt again.
            if steady_ns - (self._leap.since_ns - self._leap.ahead_ns) < WAIT_NS - TOLERANCE_NS:
                self._leap = Leap(ahead_ns, wall_ns)
                return steady_ns
            log.warning(
                "the clock has been %.1f hours ahead for a day and is trusted now",
                ahead_ns / HOUR_NS,
            )
            self._leap = None
            self._follow(wall_ns)
            return wall_ns

    def _follow(self, wall_ns: int) -> None:
        self._base_ns, self._base_elapsed = wall_ns, self._elapsed()
