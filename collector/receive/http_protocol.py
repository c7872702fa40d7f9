"""How is a sender kept from holding what it has no use of? uvicorn's HTTP protocol with limits on a request's head, and bodies that wait at the sender's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import MutableMapping
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from overrun.collector.access.hosts import App, Receive, Scope, Send

MAX_HEAD_BYTES = 65_536  # request line and headers; and what comes of a body that is none of it: chunk extensions, trailers
HEAD_TIMEOUT_S = 20.0
# A client that takes less than 48 KiB of its answer in so long is given up: the answer takes memory, and an export a file.
STUCK_S = 30.0
# What is read at once of a body that the application has asked for; and before that, so that hundreds of senders who are refused from the head on have not
# put their bodies here meanwhile.
_READ_BYTES, _FIRST_BYTES = 262_144, 16_384


class _Room(threading.local):
    """Where an event loop reads, for all of its connections: it hands over what it has read before it turns to the next. Each has a thread of its own."""

    def __init__(self) -> None:
        self.whole = memoryview(bytearray(_READ_BYTES))


_room = _Room()


class _Writable:
    """A transport that takes what is written to it once it is being closed, as asyncio's do. uvloop's raise, and uvicorn logs a traceback of each answer whose
    client left in this moment: anybody could fill the log."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class GuardedProtocol(HttpToolsProtocol, asyncio.BufferedProtocol):
    """Closes a connection whose request line and headers are too long (431) or take too long to come (408).

    Trailers of a body are dropped: among the headers they would change what has been checked.

    Of a body, what came with its head is read, the rest once the application receives it (or has answered: it is thrown away then).

    A client that does not take its answer is given up.

    Beyond `max_connections` the one that has been without a request for longest is closed (503); if all have one, the new one is.
    """

    max_connections: ClassVar[int] = 512
    # Connections without a request under way, the one that waits longest first.
    _idle: ClassVar[dict[GuardedProtocol, None]] = {}
    _head_bytes = 0
    _in_head = True
    _in_body = False
    _bodiless_bytes = 0  # that have come since the last byte of a body
    _late: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.transport = _Writable(transport)  # type: ignore[assignment]  # as much of one as is used
        self._idle[self] = None
        if len(self.connections) > self.max_connections:
            next(iter(self._idle))._refuse(503)
        self._late = self.loop.call_later(HEAD_TIMEOUT_S, self._refuse, 408)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        self._idle.pop(self, None)
        self._end_stuck()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(STUCK_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._end_stuck()
        super().resume_writing()

    def get_buffer(self, sizehint: int) -> memoryview:
        return _room.whole if self._in_body else _room.whole[:_FIRST_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(_room.whole[:nbytes])  # type: ignore[arg-type]  # httptools reads any buffer

    def data_received(self, data: bytes) -> None:
        was_in_head = self._in_head
        if self._in_body:
            self._bodiless_bytes += len(data)
        super().data_received(data)
        if was_in_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._refuse(431)
        elif self._bodiless_bytes > MAX_HEAD_BYTES:
            self._refuse(431)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._late is None:
            self._late = self.loop.call_later(HEAD_TIMEOUT_S, self._refuse, 408)
        self._in_head, self._head_bytes = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._end_head()
        self._idle.pop(self, None)
        self._in_body, self._bodiless_bytes = True, 0
        super().on_headers_complete()

    def on_chunk_complete(self) -> None:
        self._bodiless_bytes = 0

    def on_body(self, body: bytes) -> None:
        self._bodiless_bytes = 0
        super().on_body(body)
        if self.cycle is not None and not self.cycle.response_complete:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        self._in_body, self._bodiless_bytes = False, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle is not None and self.cycle.response_complete:
            self._idle[self] = None
            self.cycle.body = bytearray()  # what a refused sender had sent: uvicorn keeps it until the connection's next request

    def _end_head(self) -> None:
        self._in_head = False
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _end_stuck(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

    def _refuse(self, status: int) -> None:
        self._end_head()
        self._idle.pop(self, None)
        if self.transport is not None and not self.transport.is_closing():
            if (
                self.cycle is None
                or self.cycle.response_complete
                or not self.cycle.response_started
            ):
                self.transport.write(
                    STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n"
                )
            self.transport.close()


def answering_to_the_end(app: App) -> App:
    """`app`, whose requests are answered 503 where the server ends before they do: a sender comes again. uvicorn would answer 500, after which none does."""

    async def ending(scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noted(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await app(scope, receive, noted)
        except asyncio.CancelledError:  # uvicorn's, once the time for ending is over
            if begun or scope["type"] != "http":
                raise
            headers = [(b"content-length", b"0"), (b"retry-after", b"1"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": 503, "headers": headers})
            await send({"type": "http.response.body", "body": b""})

    return ending


def limited(max_connections: int) -> type[GuardedProtocol]:
    """The protocol of one server that holds so many connections at most."""
    members = {"max_connections": max_connections, "_idle": {}}
    return type("LimitedProtocol", (GuardedProtocol,), members)
