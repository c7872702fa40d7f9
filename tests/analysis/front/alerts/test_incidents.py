"""The rules by which conditions become incidents, one at a time."""

from __future__ import annotations

from overrun.analysis.front.alerts.incidents import Condition, Notice, Seen, State, step
from overrun.analysis.words.finding import Severity

T0 = 1_795_600_000.0


def condition(key: str = "a", severity: Severity = "warning", for_s: float = 120.0) -> Condition:
    return Condition(
        group="requests", key=key, severity=severity, summary=f"{key} is wrong", for_s=for_s
    )


def run(
    minutes: dict[int, list[Condition]],
    last: int,
    *,
    muted: range = range(0),
    unknown: range = range(0),
) -> list[tuple[int, str]]:
    """(minute, event) of every notice; minutes that are not listed hold nothing."""
    state, out = State(), list[tuple[int, str]]()
    for minute in range(last):
        seen = Seen(
            at=T0 + 60 * minute,
            conditions=minutes.get(minute, []),
            unknown=frozenset({"requests"} if minute in unknown else ()),
        )
        found: list[Notice]
        state, found = step(
            state,
            seen,
            every_s=60.0,
            resolve_after_s=300.0,
            muted=lambda g, m=minute: m in muted,  # type: ignore[misc]
        )
        out += [(minute, notice.event) for notice in found]
    return out


def held(first: int, last: int, *conditions: Condition) -> dict[int, list[Condition]]:
    return {minute: list(conditions) or [condition()] for minute in range(first, last)}


def test_what_holds_fires_after_its_time_and_resolves_after_the_quiet_time() -> None:
    # It holds from minute 1 to 9; two minutes must pass; five quiet ones follow the last.
    assert run(held(1, 10), 30) == [(3, "fired"), (14, "resolved")]


def test_what_breaks_off_too_early_never_fires() -> None:
    assert run({**held(1, 3), **held(4, 6), **held(7, 9)}, 30) == []


def test_a_return_within_the_quiet_time_is_the_same_incident() -> None:
    assert run({**held(1, 10), **held(13, 20)}, 40) == [(3, "fired"), (24, "resolved")]


def test_more_conditions_of_a_group_are_one_incident_that_is_raised_once() -> None:
    worse = condition("b", "critical")
    minutes = held(1, 10) | held(10, 20, condition(), worse) | held(20, 25, condition())
    assert run(minutes, 40) == [(3, "fired"), (12, "raised"), (29, "resolved")]


def test_a_mute_window_delays_what_still_holds_and_drops_what_is_over() -> None:
    assert run(held(1, 10), 40, muted=range(20)) == []
    assert run(held(1, 30), 60, muted=range(20)) == [(20, "fired"), (34, "resolved")]
    # An end within a mute is sent when it is over.
    assert run(held(1, 10), 40, muted=range(5, 20)) == [(3, "fired"), (20, "resolved")]


def test_an_incident_of_which_nothing_is_known_ends_after_an_hour() -> None:
    assert run(held(1, 10), 100, unknown=range(10, 100)) == [(3, "fired"), (69, "resolved")]


def test_a_restart_keeps_what_is_open_and_begins_again_what_was_about_to_fire() -> None:
    state, notices = step(
        State(), Seen(at=T0, conditions=[condition()]), every_s=60.0, resolve_after_s=300.0
    )
    # Half an hour later the same holds: that it held in between is not known.
    state, notices = step(
        state, Seen(at=T0 + 1_800, conditions=[condition()]), every_s=60.0, resolve_after_s=300.0
    )
    assert notices == []
    state, notices = step(
        state, Seen(at=T0 + 1_920, conditions=[condition()]), every_s=60.0, resolve_after_s=300.0
    )
    assert [n.event for n in notices] == ["fired"]
    state, notices = step(
        state, Seen(at=T0 + 9_000, conditions=[condition()]), every_s=60.0, resolve_after_s=300.0
    )
    assert notices == []
    assert list(state.open) == ["requests"]
