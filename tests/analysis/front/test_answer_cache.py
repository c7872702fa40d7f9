"""Answers that are kept while nothing is written: never one that a commit has overtaken, never an error."""

import pytest

from overrun.analysis.front.answer_cache import Kept


class Store:
    """Counts its commits and how often it is asked."""

    def __init__(self) -> None:
        self.commits, self.asked = 0, 0
        self.kept = Kept(lambda: self.commits, most=2)

    def get(self, key: str = "question") -> bytes:
        return self.kept.get(key, self._made)

    def _made(self) -> bytes:
        self.asked += 1
        return f"{self.asked}".encode()


def test_an_answer_holds_until_something_is_committed() -> None:
    store = Store()
    assert [store.get(), store.get()] == [b"1", b"1"]
    store.commits += 1
    assert [store.get(), store.get()] == [b"2", b"2"]


def test_an_answer_that_a_commit_overtook_is_made_again() -> None:
    store = Store()

    def overtaken() -> bytes:
        store.commits += 1
        return b"of before"

    assert store.kept.get("question", overtaken) == b"of before"
    assert store.get() == b"1"


def test_the_least_recently_wanted_answer_goes_first() -> None:
    store = Store()
    for key in ("a", "b", "a", "c", "a", "b"):
        store.get(key)
    assert store.asked == 4  # a, b, c, and b again


def test_an_error_is_not_kept() -> None:
    store = Store()
    with pytest.raises(ValueError, match="no such metric"):
        store.kept.get("question", lambda: (_ for _ in ()).throw(ValueError("no such metric")))
    assert store.get() == b"1"


def test_what_no_longer_holds_once_made_is_not_kept() -> None:
    store = Store()
    made = [store.kept.get("question", store._made, holds=lambda: False) for _ in range(2)]
    assert made == [b"1", b"2"]


def test_kept_answers_are_bounded_in_bytes() -> None:
    store = Store()
    kept = Kept(lambda: store.commits, most_bytes=1_000)
    for key in range(30):
        assert len(kept.get(key, lambda: b"x" * 90)) == 90
    assert kept.bytes == 990
    assert len(kept.get("large", lambda: b"x" * 2_000)) == 2_000
    assert kept.bytes == 0


def test_answers_of_before_a_commit_take_no_room() -> None:
    store = Store()
    for key in ("a", "b"):
        store.get(key)
    store.commits += 1
    store.get("c")
    assert store.kept.bytes == 1
