"""Which traces wait, for how long, and from which commit on a restart must look again."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from overrun.collector.ingest.quiet_traces import REMEMBERED, QuietTraces, Seen


def note(
    quiet: QuietTraces, traces: list[int], batch: int, now_s: float, start_ns: int = 100
) -> None:
    keys = np.array(traces, dtype=np.uint64)
    quiet.note(keys * 0 + 7, keys, np.full(len(traces), start_ns, dtype=np.int64), batch, now_s)


def taken(quiet: QuietTraces, now_s: float, quiet_s: float = 2.0, limit: int = 100) -> list[int]:
    return [lo for _, lo in quiet.take(now_s, quiet_s, limit)]


def test_a_trace_is_taken_once_it_has_been_quiet_long_enough() -> None:
    quiet = QuietTraces()
    note(quiet, [1], 1, now_s=10.0)
    assert taken(quiet, 11.9) == []
    assert taken(quiet, 12.0) == [1]


def test_a_later_span_starts_the_wait_again_and_the_earliest_start_stays() -> None:
    quiet = QuietTraces()
    note(quiet, [1], 1, 10.0, start_ns=500)
    note(quiet, [2], 2, 10.5)
    note(quiet, [1], 3, 11.5, start_ns=900)
    assert taken(quiet, 13.0) == [2]
    assert quiet.take(13.5, 2.0, 100)[(7, 1)].start_ns == 500


def test_traces_of_one_note_are_counted_once_with_their_earliest_start() -> None:
    quiet = QuietTraces()
    hi, lo = np.array([7, 7, 7], dtype=np.uint64), np.array([1, 2, 1], dtype=np.uint64)
    quiet.note(hi, lo, np.array([300, 50, 200], dtype=np.int64), 1, 0.0)
    assert {key: seen.start_ns for key, seen in quiet.take(10.0, 2.0, 9).items()} == {
        (7, 1): 200,
        (7, 2): 50,
    }


def test_no_more_than_the_limit_is_taken_oldest_first() -> None:
    quiet = QuietTraces()
    for i in range(5):
        note(quiet, [i], i + 1, float(i))
    assert taken(quiet, 100.0, limit=2) == [0, 1]


def test_what_was_taken_stays_pending_until_it_is_done_and_is_taken_again_after_a_failure() -> None:
    quiet = QuietTraces()
    note(quiet, [1, 2], 1, 0.0)
    first = quiet.take(10.0, 2.0, 100)
    assert len(quiet) == 2
    assert quiet.take(10.0, 2.0, 100) == first
    quiet.done(first)
    assert (len(quiet), taken(quiet, 10.0)) == (0, [])


def test_a_late_span_brings_an_assembled_trace_back_with_its_known_start() -> None:
    quiet = QuietTraces()
    note(quiet, [1], 1, 0.0, start_ns=50)
    quiet.done(quiet.take(10.0, 2.0, 100))
    note(quiet, [1], 2, 20.0, start_ns=900)
    assert quiet.take(30.0, 2.0, 100)[(7, 1)].start_ns == 50


def test_a_span_that_comes_while_its_trace_is_being_assembled_is_not_lost() -> None:
    quiet = QuietTraces()
    note(quiet, [1], 1, 0.0)
    running = quiet.take(10.0, 2.0, 100)
    note(quiet, [1], 2, 10.5)
    assert quiet.assembled_through(2, running) == 1
    quiet.done(running)
    assert (len(quiet), taken(quiet, 12.5)) == (1, [1])


def test_the_mark_never_passes_a_commit_with_a_waiting_trace() -> None:
    quiet = QuietTraces()
    note(quiet, [1], 1, 0.0)
    note(quiet, [2], 2, 9.0)
    note(quiet, [3], 3, 9.5)
    running = quiet.take(10.0, 2.0, 100)
    assert quiet.assembled_through(3, running) == 1  # traces 2 and 3 wait since commits 2 and 3
    quiet.done(running)
    rest = quiet.take(20.0, 2.0, 100)
    assert quiet.assembled_through(3, rest) == 3


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("note"), st.lists(st.integers(1, 4), min_size=1, max_size=3)),
            st.tuples(st.just("assemble"), st.booleans()),
        ),
        max_size=30,
    )
)
def test_in_any_order_of_arrival_every_commit_after_the_mark_is_looked_at_again(
    steps: list[tuple[str, object]],
) -> None:
    """A model: a trace is covered by the last assembly that saw all of its commits; the mark may not pass an uncovered one."""
    quiet, batch, now_s = QuietTraces(), 0, 0.0
    uncovered: dict[int, int] = {}  # trace -> first commit that no stored row covers
    for kind, value in steps:
        now_s += 1.0
        if kind == "note":
            batch += 1
            assert isinstance(value, list)
            note(quiet, value, batch, now_s)
            for trace in value:
                uncovered.setdefault(trace, batch)
        else:
            running = quiet.take(now_s, 1.5, 2)  # an assembly reads all that is stored by now
            mark = quiet.assembled_through(batch, running)
            if value:  # else: storing the rows failed
                quiet.done(running)
                for _, trace in running:
                    uncovered.pop(trace, None)
                assert mark < min(uncovered.values(), default=batch + 1)
    assert uncovered.keys() <= set(taken(quiet, now_s + 10.0))


def test_a_trace_that_never_goes_quiet_is_taken_at_a_greatest_age() -> None:
    quiet = QuietTraces(max_age_s=900.0)
    times = []
    for second in range(2_000):
        note(quiet, [1], second + 1, float(second), start_ns=100 + second)
        found = quiet.take(second + 0.5, 2.0, 100)
        if found:
            assert quiet.assembled_through(second + 1, found) == second + 1
            times.append(second)
            quiet.done(found)
        if second == 1_000:  # others push its start out of what is remembered of all
            quiet.done({(8, n): Seen(0.0, 1, 1, 1) for n in range(REMEMBERED + 1)})
    assert times == [900, 1_801]
    [last] = quiet.take(2_100.0, 2.0, 100).values()
    assert (last.first_batch, last.start_ns) == (1_803, 100)


def test_traces_of_an_earlier_process_come_after_new_ones_and_hold_the_mark() -> None:
    quiet = QuietTraces()
    old = np.array([5, 3, 4], dtype=np.uint64)
    quiet.recover(old * 0 + 7, old, np.array([50, 30, 40], dtype=np.int64), 10, 12, 0.0)
    note(quiet, [1, 2], 13, 1.0)
    assert (len(quiet), quiet.backlog, quiet.oldest_s()) == (2, 3, 0.0)
    first = quiet.take(10.0, 2.0, 3)
    assert [lo for _, lo in first] == [1, 2, 3]
    assert quiet.assembled_through(13, first) == 9
    quiet.done(first)
    second = quiet.take(10.0, 2.0, 3)
    assert {key: (s.first_batch, s.last_batch, s.new) for key, s in second.items()} == {
        (7, 4): (10, 12, False),
        (7, 5): (10, 12, False),
    }
    assert quiet.assembled_through(13, second) == 13
