"""What is kept, for how long, and that one question is asked once."""

import threading

import pytest

from overrun.dashboard.answers import FRESH_S, KEEP_S, PART_S, Answers
from tests.waiting import LIMIT_S


class Store:
    """A clock and a store whose mark the test moves."""

    def __init__(self) -> None:
        self.time, self.mark, self.asked = 0.0, 1, 0
        self.answers = Answers(lambda: self.mark, most=3, clock=lambda: self.time)
        self.answers.saw(self.mark)

    def get(self, key: str = "report") -> int:
        return self.answers.get(key, self._ask)

    def _ask(self) -> int:
        self.asked += 1
        return self.asked


def test_a_fresh_answer_is_given_again_even_if_the_store_has_moved() -> None:
    store = Store()
    assert store.get() == 1
    store.time, store.mark = FRESH_S, 2
    assert store.get() == 1


def test_an_older_answer_is_good_while_the_store_stands_still() -> None:
    store = Store()
    store.get()
    store.time = KEEP_S
    assert store.get() == 1
    store.time = KEEP_S + 1
    assert store.get() == 2


def test_an_answer_that_is_not_whole_is_asked_anew_within_seconds() -> None:
    store = Store()
    assert store.answers.get("report", store._ask, whole=lambda count: count > 1) == 1
    store.time = PART_S
    assert store.answers.get("report", store._ask, whole=lambda count: count > 1) == 1
    store.time = PART_S + 1
    assert (
        store.answers.get("report", store._ask, whole=lambda count: count > 1, part_s=FRESH_S) == 1
    )  # who need not have it whole does not wait
    assert store.answers.get("report", store._ask, whole=lambda count: count > 1) == 2
    store.time = KEEP_S
    assert store.answers.get("report", store._ask, whole=lambda count: count > 1) == 2


def test_an_older_answer_is_asked_anew_when_the_store_has_moved() -> None:
    store = Store()
    store.get()
    store.time, store.mark = FRESH_S + 1, 2
    assert store.get() == 2
    store.answers.saw(2)


def test_without_a_mark_nothing_is_kept_beyond_its_freshness() -> None:
    store = Store()
    store.answers.forget()
    store.get()
    store.time = FRESH_S + 1
    assert store.get() == 2


def test_an_error_is_raised_and_not_kept() -> None:
    store = Store()

    def fails() -> int:
        raise LookupError("no server")

    with pytest.raises(LookupError):
        store.answers.get("report", fails)
    assert store.get() == 1


def test_the_least_wanted_answers_are_forgotten() -> None:
    store = Store()
    for key in ("a", "b", "c", "a", "d"):
        store.get(key)
    assert store.asked == 4
    store.get("a")
    assert store.asked == 4
    store.get("b")
    assert store.asked == 5


def test_ten_who_want_the_same_ask_once() -> None:
    store, started, going = Store(), threading.Event(), threading.Event()

    def slow() -> int:
        started.set()
        assert going.wait(LIMIT_S)
        return store._ask()

    heard: list[int] = []
    threads = [
        threading.Thread(target=lambda: heard.append(store.answers.get("report", slow)))
        for _ in range(10)
    ]
    threads[0].start()
    assert started.wait(LIMIT_S)
    for thread in threads[1:]:
        thread.start()
    going.set()
    for thread in threads:
        thread.join(LIMIT_S)
    assert heard == [1] * 10
    assert store.asked == 1
