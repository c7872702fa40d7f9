"""A client that asks and does not take its answer is given up."""

import asyncio
import contextlib
import socket
from typing import Any

import pytest
import uvicorn
import uvloop

from overrun.collector.receive import http_protocol
from tests.waiting import LIMIT_S, until_true

LARGE = b"x" * (32 << 20)  # more than the system keeps for a connection


class Answers:
    """An application that answers every request in pieces, and notes how its clients end."""

    def __init__(self) -> None:
        self.pieces = 0
        self.ended = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for at in range(0, len(LARGE), 65_536):
            self.pieces += 1
            piece = LARGE[at : at + 65_536]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        self.ended.set()


async def serving(app: Answers, bound: socket.socket) -> tuple[uvicorn.Server, asyncio.Task[None]]:
    config = uvicorn.Config(
        app, http=http_protocol.limited(8), ws="none", lifespan="off", log_config=None
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve([bound]))
    await until_true(lambda: server.started)
    return server, task


def test_a_client_that_takes_nothing_of_its_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_protocol, "STUCK_S", 0.2)

    async def run(bound: socket.socket) -> None:
        app = Answers()
        server, task = await serving(app, bound)
        reader, writer = await asyncio.open_connection(*bound.getsockname(), limit=1_024)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        async with asyncio.timeout(LIMIT_S):
            await app.ended.wait()
            got = b""
            with contextlib.suppress(ConnectionError):
                got = await reader.read()
        assert len(got) < len(LARGE)
        # What was not sent was handed over all the same, and dropped.
        assert app.pieces == len(LARGE) // 65_536
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        server.should_exit = True
        await task

    with socket.create_server(("127.0.0.1", 0)) as bound:
        asyncio.run(run(bound))


class Waits:
    """An application that answers no request."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun.set()
        await asyncio.sleep(3600)


def test_a_server_that_ends_before_a_request_does_asks_the_sender_to_come_again() -> None:
    async def answer() -> bytes:
        app = Waits()
        bound = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            http_protocol.answering_to_the_end(app),
            loop="none",
            http=http_protocol.limited(8),
            lifespan="off",
            log_config=None,
            timeout_graceful_shutdown=0,
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[bound]))
        await until_true(lambda: server.started)
        reader, writer = await asyncio.open_connection(*bound.getsockname())
        writer.write(b"POST /v1/traces HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx")
        await app.begun.wait()
        server.should_exit = True
        found = await reader.read()
        writer.close()
        await serving
        return found

    found = asyncio.run(answer())
    assert found.startswith(b"HTTP/1.1 503"), found
    assert b"retry-after: 1" in found


def test_an_answer_to_a_connection_that_is_being_closed_is_no_news() -> None:
    """uvloop's transports raise where asyncio's say nothing."""

    async def write() -> None:
        loop = asyncio.get_running_loop()
        bound = socket.create_server(("127.0.0.1", 0))
        made: list[Any] = []

        class Kept(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                made.append(transport)

        listening = await loop.create_server(Kept, sock=bound)
        _, writer = await asyncio.open_connection(*bound.getsockname())
        await until_true(lambda: made)
        made[0].abort()
        await asyncio.sleep(0.05)
        with pytest.raises(RuntimeError, match="closed"):  # what is guarded against
            made[0].write(b"late")
        http_protocol._Writable(made[0]).write(b"late")
        assert http_protocol._Writable(made[0]).is_closing()
        writer.close()
        listening.close()

    uvloop.run(write())
