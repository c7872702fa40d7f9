"""What is computed in the background: never waited for, told with its age, made anew when it is old, and not too often."""

import threading

from overrun.analysis.diagnosis.background import Later
from tests.waiting import LIMIT_S


class Made:
    """A clock that the test moves, and a job that counts how often it ran."""

    def __init__(self, fresh_s: float = 60.0, takes_s: float = 0.0) -> None:
        self.time, self.takes_s, self.runs, self.fails = 100.0, takes_s, 0, False
        self.later: Later[int] = Later("test", fresh_s, clock=lambda: self.time)

    def get(self, key: str = "question") -> tuple[float, int] | None:
        found = self.later.get(key, self._job)
        thread = self.later._thread
        if thread is not None:
            thread.join(LIMIT_S)
        return found

    def _job(self) -> int:
        self.runs += 1
        self.time += self.takes_s
        if self.fails:
            raise ValueError("no answer")
        return self.runs


def test_the_first_question_is_not_waited_for_and_the_second_has_the_answer() -> None:
    made, hold = Made(), threading.Event()
    assert made.later.get("slow", lambda: (hold.wait(LIMIT_S) and 7) or 0) is None
    assert made.later.get("slow", lambda: 0) is None
    hold.set()
    thread = made.later._thread
    assert thread is not None
    thread.join(LIMIT_S)
    assert made.later.last("slow") == (0.0, 7)


def test_an_answer_is_told_with_its_age_and_made_anew_once_it_is_old() -> None:
    made = Made()
    assert made.get() is None
    made.time += 60.0
    assert (made.get(), made.runs) == ((60.0, 1), 1)
    made.time += 1.0
    assert (made.get(), made.runs) == ((61.0, 1), 2)
    assert made.get() == (0.0, 2)


def test_what_takes_long_is_made_anew_after_ten_times_as_long() -> None:
    made = Made(fresh_s=1.0, takes_s=5.0)
    made.get()
    made.time += 44.0  # 49 s after it began, of 50
    assert (made.get(), made.runs) == ((49.0, 1), 1)
    made.time += 2.0
    made.get()
    assert made.runs == 2


def test_a_failure_is_no_answer_and_is_tried_again() -> None:
    made = Made()
    made.fails = True
    assert (made.get(), made.get()) == (None, None)
    made.fails = False
    made.get()
    assert made.get() == (0.0, 3)
    assert made.later.last("another question") is None


def test_it_counts_every_question_that_was_worked_at_so_that_a_failed_one_is_asked_again() -> None:
    made = Made()
    made.get("one")
    assert made.later.made == 1
    made.fails = True
    made.get("two")
    assert (made.later.made, made.runs) == (2, 2)
    assert made.get("one") is not None


def test_what_is_asked_last_is_answered_first() -> None:
    made: Later[str] = Later("test", 60.0)
    begun, hold, done = threading.Event(), threading.Event(), list[str]()

    def job(name: str) -> str:
        begun.set()
        hold.wait(LIMIT_S)
        done.append(name)
        return name

    for name in ("running", "forgotten", "again", "last", "again"):
        made.get(name, lambda name=name: job(name))  # type: ignore[misc]
        assert begun.wait(LIMIT_S)
    hold.set()
    thread = made._thread
    assert thread is not None
    thread.join(LIMIT_S)
    assert done == ["running", "again", "last", "forgotten"]
