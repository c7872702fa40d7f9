"""Answers are made a few at once, only while a client waits, and once for all who ask the same."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import pytest
from starlette.requests import Request

from overrun.analysis.front.answering import Answering, Asking, TookTooLong, Unwanted
from overrun.analysis.front.http_answers import asked
from overrun.analysis.front.question_table import ENTRIES
from overrun.collector.errors import StoreUnavailable
from tests.waiting import LIMIT_S, until_true

# Minutes of work for DuckDB, unless it is interrupted.
ENDLESS = "select sum(a.range * b.range) from range(10_000_000) a, range(10_000_000) b"


class Store:
    """A database in memory that counts its readers and changes."""

    def __init__(self) -> None:
        self.readers, self.changes, self.made = 0, 0, 0
        self.reads = threading.Event()
        self.release = threading.Event()
        self.connection = duckdb.connect()
        self.answering = Answering(
            "test", self.reading, at_once=1, changes=lambda: self.changes, most_waiting=2
        )

    @contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        cursor = self.connection.cursor()
        self.readers += 1
        self.reads.set()
        try:
            yield cursor
        finally:
            cursor.close()
            self.readers -= 1

    def endless(self, asking: Asking[bytes]) -> bytes:
        with asking.reading() as cursor:
            return str(cursor.execute(ENDLESS).fetchall()).encode()

    def held(self, asking: Asking[bytes]) -> bytes:
        """Made once `release` is set."""
        self.made += 1
        self.reads.set()
        assert self.release.wait(LIMIT_S)
        return b"%d" % self.made

    def ask(
        self,
        make: Callable[[Asking[bytes]], bytes],
        key: str | None = None,
        *,
        gone: Callable[[], Coroutine[Any, Any, None]] | None = None,
        within_s: float = LIMIT_S,
    ) -> "asyncio.Task[bytes]":
        waiting = self.answering.get(make, (gone or stays)(), within_s=within_s, key=key)
        return asyncio.create_task(waiting)


async def stays() -> None:
    await asyncio.Event().wait()


async def leaves() -> None:
    """A client that has gone."""


def test_a_query_ends_when_its_client_has_gone() -> None:
    async def run() -> None:
        store = Store()
        going = asyncio.Event()

        async def gone() -> None:
            await going.wait()

        answer = store.ask(store.endless, gone=gone)
        await until_true(store.reads.is_set)
        going.set()
        with pytest.raises(Unwanted):
            await answer
        await until_true(lambda: store.readers == 0 and store.answering.open == 0)
        assert store.answering.given_up == 1

    asyncio.run(run())


def test_an_answer_ends_after_its_time() -> None:
    async def run() -> None:
        store = Store()
        with pytest.raises(TookTooLong, match="shorter window"):
            await store.ask(store.endless, within_s=0.1)
        await until_true(lambda: store.readers == 0 and store.answering.open == 0)

    asyncio.run(run())


def test_a_question_whose_client_left_is_never_begun() -> None:
    async def run() -> None:
        store = Store()
        first = store.ask(store.held)
        await until_true(store.reads.is_set)
        with pytest.raises(Unwanted):
            await store.ask(store.held, gone=leaves)
        await until_true(lambda: store.answering.open == 1)
        store.release.set()
        assert await first == b"1"
        await until_true(lambda: store.answering.open == 0)
        assert store.made == 1

    asyncio.run(run())


def test_equal_questions_at_once_are_answered_once() -> None:
    async def run() -> None:
        store = Store()
        one = store.ask(store.held, "report")
        await until_true(store.reads.is_set)
        others = [store.ask(store.held, "report") for _ in range(5)]
        leaving = store.ask(store.held, "report", gone=leaves)
        with pytest.raises(Unwanted):
            await leaving
        store.release.set()
        assert await asyncio.gather(one, *others) == [b"1"] * 6
        assert (store.made, store.answering.shared, store.answering.given_up) == (1, 6, 0)

    asyncio.run(run())


def test_an_answer_that_was_begun_before_a_commit_is_not_shared() -> None:
    async def run() -> None:
        store = Store()
        before = store.ask(store.held, "report")
        await until_true(store.reads.is_set)
        store.changes += 1
        after = [store.ask(store.held, "report") for _ in range(2)]
        await until_true(lambda: store.answering.open == 2)
        store.changes += 1  # the second waits, so it will see this one, too
        after.append(store.ask(store.held, "report"))
        await asyncio.sleep(0)
        store.release.set()
        assert await before == b"1"
        assert await asyncio.gather(*after) == [b"2"] * 3

    asyncio.run(run())


def test_more_questions_than_may_wait_are_asked_to_come_again() -> None:
    async def run() -> None:
        store = Store()
        waiting = [store.ask(store.held) for _ in range(3)]
        await until_true(lambda: store.answering.open == 3)
        with pytest.raises(StoreUnavailable, match="ask again"):
            await store.ask(store.held)
        store.release.set()
        assert sorted(await asyncio.gather(*waiting)) == [b"1", b"2", b"3"]

    asyncio.run(run())


def test_errors_reach_all_who_asked() -> None:
    async def run() -> None:
        store = Store()

        def fails(asking: Asking[bytes]) -> bytes:
            store.held(asking)
            raise ValueError("no such metric")

        both = [store.ask(fails, "report"), store.ask(fails, "report")]
        await until_true(store.reads.is_set)
        store.release.set()
        found = await asyncio.gather(*both, return_exceptions=True)
        assert [str(error) for error in found] == ["no such metric"] * 2

    asyncio.run(run())


def test_a_request_that_is_broken_off_gives_its_answer_up() -> None:
    async def run() -> None:
        store = Store()
        endpoint = asked(
            lambda given, asking: store.endless(asking), ENTRIES["report"], store.answering
        )
        scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []}

        async def receive() -> dict[str, str]:
            await until_true(store.reads.is_set)
            return {"type": "http.disconnect"}

        answer = await endpoint(Request({**scope, "path_params": {}}, receive))
        assert (answer.status_code, answer.body) == (503, b"")
        await until_true(lambda: store.readers == 0)

    asyncio.run(run())
