"""A wall clock that leaps ahead is not followed before it has stayed so for a day; everything else is."""

import pytest

from overrun.collector.process.steady_clock import HOUR_NS, WAIT_NS, Leap, SteadyClock

DAY_NS = 24 * HOUR_NS
T0_NS = 1_790_000_000 * 10**9


class Times:
    """A wall clock that can be set, and time that passes."""

    def __init__(self) -> None:
        self.wall_ns, self.elapsed_ns = T0_NS, 5

    def pass_(self, ns: int) -> None:
        self.wall_ns += ns
        self.elapsed_ns += ns

    def clock(self, newest_ns: int = 0, leap: Leap | None = None) -> SteadyClock:
        return SteadyClock(newest_ns, leap, lambda: self.wall_ns, lambda: self.elapsed_ns)


def test_it_is_the_wall_clock_as_long_as_that_agrees_with_the_time_that_passes() -> None:
    times = Times()
    clock = times.clock()
    for step in (HOUR_NS, 40 * DAY_NS, 60):
        times.pass_(step)
        assert clock.now() == times.wall_ns
    for _ in range(100):  # a clock that is set by a minute every hour
        times.pass_(HOUR_NS)
        times.wall_ns += HOUR_NS // 60
        assert clock.now() == times.wall_ns
    assert clock.leap is None


def test_a_leap_is_waited_out(caplog: pytest.LogCaptureFixture) -> None:
    times = Times()
    clock = times.clock()
    times.pass_(HOUR_NS)
    before = clock.now()
    times.wall_ns += 31 * DAY_NS
    assert clock.now() == before
    assert clock.leap == Leap(31 * DAY_NS, times.wall_ns)
    assert "744.0 hours ahead" in caplog.text
    times.pass_(WAIT_NS - HOUR_NS)
    assert clock.now() == before + WAIT_NS - HOUR_NS
    times.pass_(2 * HOUR_NS)
    assert clock.now() == times.wall_ns
    assert clock.leap is None


def test_a_second_leap_does_not_end_the_wait() -> None:
    times = Times()
    clock = times.clock()
    times.wall_ns += 31 * DAY_NS
    before = clock.now()
    times.wall_ns += 31 * DAY_NS
    assert clock.now() == before
    assert clock.leap is not None


def test_a_clock_that_comes_back_is_followed_at_once() -> None:
    times = Times()
    clock = times.clock()
    times.wall_ns += 31 * DAY_NS
    clock.now()
    times.wall_ns -= 31 * DAY_NS
    assert clock.now() == times.wall_ns
    assert clock.leap is None


def test_a_clock_that_falls_behind_makes_nothing_old_and_its_return_is_no_leap() -> None:
    times = Times()
    clock = times.clock()
    times.wall_ns -= 31 * DAY_NS
    assert clock.now() == times.wall_ns
    times.wall_ns += 31 * DAY_NS
    assert clock.now() == times.wall_ns
    assert clock.leap is None


def test_a_start_long_after_the_newest_commit_is_a_leap_and_a_restart_does_not_end_it() -> None:
    times = Times()
    assert times.clock(T0_NS - HOUR_NS).now() == T0_NS
    assert times.clock(T0_NS + DAY_NS).now() == T0_NS
    clock = times.clock(T0_NS - 40 * DAY_NS)
    assert clock.now() == T0_NS - 40 * DAY_NS
    assert clock.leap is not None
    noted = Leap.read(str(clock.leap))
    times.pass_(HOUR_NS)
    again = times.clock(T0_NS, noted)  # with a commit since
    assert again.now() == T0_NS - 40 * DAY_NS + HOUR_NS
    assert again.leap == noted
    times.pass_(WAIT_NS)
    assert times.clock(T0_NS, noted).now() == times.wall_ns
    assert Leap.read(None) is Leap.read("") is Leap.read("x y") is None
