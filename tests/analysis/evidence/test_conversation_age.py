"""Conversations that begin with the recording: their age is known, and what they add from turn to turn is no growth."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.conversation_age import added_by_age, turns

TURNS, PAUSE_S, SECONDS, HALF = 8, 20.0, 320.0, 160.0


def talks(*, midway: bool, per_turn: int = 200, users: int = 60) -> Calls:
    """One call a turn: users who begin within the first pause, or are met at any turn, each with one conversation after the other."""
    rng = np.random.default_rng(3)
    rows = []
    for user in range(users):
        at, turn, talk = (
            float(rng.uniform(0.0, PAUSE_S)),
            int(rng.integers(0, TURNS)) if midway else 0,
            0,
        )
        while at < SECONDS:
            rows.append((at, f"s-{user}-{talk}", len(rows), 1_000 + per_turn * turn, None))
            turn, at = turn + 1, at + float(rng.uniform(0.8, 1.2)) * PAUSE_S
            if turn == TURNS - (user % 4 if talk == 0 else 0):
                turn, talk = 0, talk + 1
    names = {
        "start_s": pl.Float64,
        "session": pl.String,
        "trace_key": pl.Int64,
        "input_tokens": pl.Int64,
        "turn": pl.Int64,
    }
    return Calls(pl.DataFrame(rows, schema=names, orient="row").sort("start_s"))


def halves(calls: Calls) -> tuple[Calls, Calls]:
    return calls.where(calls.of("start_s") < HALF), calls.where(calls.of("start_s") >= HALF)


def test_the_turn_is_the_request_of_the_conversation_counted_over_both_times() -> None:
    before, now = halves(talks(midway=False))
    found = turns(before, now)
    assert found is not None
    for side, turn in zip((before, now), found, strict=True):
        assert turn.tolist() == ((side.of("input_tokens") - 800.0) / 200.0).tolist()


def test_conversations_met_midway_have_no_known_age() -> None:
    assert turns(*halves(talks(midway=True))) is None
    # Where nothing is sent again, no prompt tells, and no age matters.
    assert turns(*halves(talks(midway=True, per_turn=0))) is not None


def test_recorded_turns_count_wherever_a_conversation_began() -> None:
    calls = talks(midway=True)
    before, now = halves(
        Calls(calls.frame.with_columns(turn=((pl.col("input_tokens") - 800) // 200)))
    )
    found = turns(before, now)
    assert found is not None
    assert found[1].tolist() == now.of("turn").tolist()


def test_times_that_do_not_meet_or_have_no_conversations_tell_no_age() -> None:
    calls = talks(midway=False)
    before, now = halves(calls)
    assert turns(before, now.where(now.of("start_s") > HALF + 5 * PAUSE_S)) is None
    assert turns(*halves(Calls(calls.frame.with_columns(session=pl.lit(None, pl.String))))) is None


@pytest.mark.parametrize(("oldest", "expected"), [(4, 0.0), (8, 400.0)])
def test_former_values_are_read_at_the_turns_of_now_and_on_their_line_beyond(
    oldest: int, expected: float
) -> None:
    turn = np.repeat(np.arange(1.0, 5.0), 40)
    values = 1_000.0 + 200.0 * turn + np.tile([-5.0, 5.0], 80)
    # A mean of turn 2.5 before; of turn 2.5 or of turn 4.5 now, half of which no former call has reached.
    assert added_by_age(values, turn, np.repeat(np.arange(1.0, oldest + 1.0), 40)) == pytest.approx(
        expected, abs=1e-6
    )


def test_a_line_that_is_lost_in_noise_is_none() -> None:
    rng = np.random.default_rng(5)
    turn = np.repeat(np.arange(1.0, 5.0), 40)
    values = rng.normal(500.0, 200.0, len(turn))
    flat = added_by_age(values, turn, np.full(50, 12.0))
    assert flat == pytest.approx(values[turn == 4.0].mean() - values.mean())
