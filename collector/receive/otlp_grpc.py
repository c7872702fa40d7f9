"""OTLP over gRPC: the three Export methods on raw bytes, so that a body is decoded once, in columns, by the writer. No storage logic.

To gRPC the methods are streams of one message: it calls a method of one message only when that has come, and so before anybody has looked at the token.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from overrun.collector.access import auth
from overrun.collector.errors import BadPayload, CollectorError, QueueFull, TooSlow
from overrun.collector.ingest.writer import METRICS, TRACES, Stored, Writer
from overrun.collector.receive import responses
from overrun.collector.receive.otlp_http import store

log = logging.getLogger("overrun.collector")
_SERVICES = {
    "traces": "opentelemetry.proto.collector.trace.v1.TraceService",
    "metrics": "opentelemetry.proto.collector.metrics.v1.MetricsService",
    "logs": "opentelemetry.proto.collector.logs.v1.LogsService",
}
# Bodies that one connection may have under way.
_STREAMS = 64
# Bodies that are read at once, each as large as the limit, and those that wait for that with 64 KiB each (_AHEAD_BYTES): of connections whose last body came in
# time, and of all others.
_READING, _READING_NEW, _WAITING = 8, 4, 128
_AHEAD_BYTES = 65_536
# While others wait, a body that has been read for so long makes room: who sends a byte at a time would hold up everybody.
_PATIENCE_S, _PATIENCE_NEW_S = 2.0, 0.5
_REMEMBERED = 4_096  # connections whose last body came in time
# A connection is given up when it has had no call for so long, and asked whether it is still there when nothing has come for so long.
_IDLE_MS, _ASK_MS, _ANSWER_MS, _HANDSHAKE_MS = 300_000, 60_000, 20_000, 20_000
# How often it is looked whether grpcio still serves, and how often its port is asked for again.
_LOOK_S, _AGAIN_S = 0.25, 0.05
_CODES = {code.value[0]: code for code in grpc.StatusCode}

_Messages = AsyncIterator[bytes]


def server(
    writer: Writer,
    max_body_bytes: int,
    token: str | None = None,
    *,
    max_connections: int = 512,
    body_timeout_s: float = 30.0,
) -> Server:
    """A gRPC server with the OTLP services; the caller adds a port and starts it. With a `token`, senders must carry it."""
    options = [
        ("grpc.max_receive_message_length", max_body_bytes),
        ("grpc.max_metadata_size", 16_384),
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", _STREAMS),
        ("grpc.max_allowed_incoming_connections", max_connections),
        ("grpc.http2.bdp_probe", 0),  # or what is taken ahead of the reader grows to megabytes
        ("grpc.http2.lookahead_bytes", _AHEAD_BYTES),
        ("grpc.max_connection_idle_ms", _IDLE_MS),
        ("grpc.keepalive_time_ms", _ASK_MS),
        ("grpc.keepalive_timeout_ms", _ANSWER_MS),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
    ]
    reader = _Reader(body_timeout_s)
    handlers = [
        grpc.method_handlers_generic_handler(
            service,
            {
                "Export": grpc.stream_unary_rpc_method_handler(
                    _export(signal, writer, token, reader)
                )
            },
        )
        for signal, service in _SERVICES.items()
    ]

    def made() -> grpc.aio.Server:
        new = grpc.aio.server(options=options)
        new.add_generic_rpc_handlers(tuple(handlers))
        return new

    return Server(made)


class Server:
    """A gRPC server that serves again should grpcio's loop end: a call whose path is not UTF-8 ends it, for good and before any token (1.85.1)."""

    def __init__(self, made: Callable[[], grpc.aio.Server]) -> None:
        self._made = made
        self._server = made()
        self._ports: list[tuple[str, grpc.ServerCredentials | None]] = []
        self._watching: asyncio.Task[None] | None = None

    def add_insecure_port(self, address: str) -> int:
        """As grpcio's: the port that was bound. RuntimeError: it is taken."""
        return self._add(address, None)

    def add_secure_port(self, address: str, credentials: grpc.ServerCredentials) -> int:
        """As grpcio's: the port that was bound. RuntimeError: it is taken."""
        return self._add(address, credentials)

    async def start(self) -> None:
        """Serve until `stop`."""
        await self._server.start()
        for name in ("grpc._cython.cygrpc", "asyncio"):
            logging.getLogger(name).addFilter(_is_news)
        self._watching = asyncio.create_task(self._watch())

    async def stop(self, grace_s: float) -> None:
        """Let calls end for so long, then end."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        # Its loop may have ended in this very moment, and says so here.
        with contextlib.suppress(UnicodeDecodeError):
            await self._server.stop(grace_s)

    def _add(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        port = _bound(self._server, address, credentials)
        self._ports.append((f"{address.rpartition(':')[0]}:{port}", credentials))
        return port

    async def _watch(self) -> None:
        while True:
            try:
                await self._server.wait_for_termination(_LOOK_S)
            except Exception as error:  # whatever ended the loop
                log.warning("gRPC stopped serving and is started again: %s", error)
                try:
                    await self._again()
                except Exception as failure:  # tried again
                    log.warning("gRPC cannot be started yet: %s", failure)
                    await asyncio.sleep(_LOOK_S)

    async def _again(self) -> None:
        """A new server on the ports of the old one, whose calls are cancelled: their senders come again, and what was stored is known."""
        await self._server.stop(None)
        self._server = self._made()
        for address, credentials in self._ports:
            while True:
                try:
                    _bound(self._server, address, credentials)
                    break
                except RuntimeError:  # the old one is about to let go of it
                    await asyncio.sleep(_AGAIN_S)
        await self._server.start()


def _bound(
    server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None
) -> int:
    if credentials is None:
        return int(server.add_insecure_port(address))
    return int(server.add_secure_port(address, credentials))


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a record is neither grpcio's traceback of a path that is no text, nor that of an answer to a call that has been broken off: anybody could fill
    the log with them."""
    error = record.exc_info[1] if record.exc_info else None
    # grpcio logs its ExecuteBatchError where the answer fails before it has heard that the client closed the call, and a CancelledError of a call that ends in
    # the midst of being refused (1.85.1).
    if isinstance(error, asyncio.CancelledError) or type(error).__name__ == "ExecuteBatchError":
        return False
    if record.name != "asyncio" and not error:
        return not isinstance(record.msg, UnicodeDecodeError)
    return not isinstance(error, UnicodeDecodeError)


class _Lane:
    """Places at which bodies are read, and those that wait for one."""

    def __init__(self, places: int, waiting: int, patience_s: float) -> None:
        self._places = asyncio.Semaphore(places)
        self._most, self._waiting = waiting, 0
        self._patience_s = patience_s
        # The bodies that are being read, the oldest first: since when, and what ends it.
        self._readers: dict[asyncio.Timeout, float] = {}

    async def body(self, messages: _Messages, timeout_s: float) -> bytes:
        """As `_Reader.body`."""
        if self._waiting >= self._most:
            raise QueueFull(f"{self._most} bodies wait to be read: retry later")
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                await self._turn()
                try:
                    async with asyncio.timeout(None) as limit:
                        self._readers[limit] = asyncio.get_running_loop().time()
                        return await anext(messages)
                finally:
                    self._readers.pop(limit, None)
                    self._places.release()
        except TimeoutError as error:
            raise TooSlow(
                f"the body did not arrive within {timeout_s:g} s, or {self._patience_s:g} s while others waited"
            ) from error
        except StopAsyncIteration as error:
            raise BadPayload("the call has no message") from error
        finally:
            self._waiting -= 1

    async def _turn(self) -> None:
        """Wait for a place to read, which the body that has been read for longest makes if it has had its time."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._places.acquire(), self._patience_s)
                return
            now_s = asyncio.get_running_loop().time()
            for limit, since_s in [*self._readers.items()][:1]:
                if now_s - since_s >= self._patience_s:
                    del self._readers[limit]
                    limit.reschedule(now_s)


class _Reader:
    """Reads bodies, a few at once over all connections. Those whose last body came in time have places of their own: nobody who is slow holds them up."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._known = _Lane(_READING, _WAITING, _PATIENCE_S)
        self._new = _Lane(_READING_NEW, _WAITING, _PATIENCE_NEW_S)
        self._in_time: dict[str, None] = {}

    async def body(self, messages: _Messages, connection: str) -> bytes:
        """The message of a call.

        Raises:
            QueueFull: too many wait to be read. TooSlow: it did not come in time. BadPayload: the call has none.
        """
        lane = self._known if connection in self._in_time else self._new
        try:
            found = await lane.body(messages, self._timeout_s)
        except TooSlow:
            self._in_time.pop(connection, None)
            raise
        self._in_time.pop(connection, None)
        self._in_time[connection] = None
        if len(self._in_time) > _REMEMBERED:
            del self._in_time[next(iter(self._in_time))]
        return found


def _export(
    signal: str, writer: Writer, token: str | None, reader: _Reader
) -> Callable[[_Messages, Any], Awaitable[bytes]]:
    async def stored(messages: _Messages, connection: str) -> Stored:
        with writer.admission.body() as place:
            if signal != "logs":
                writer.check_room(TRACES if signal == "traces" else METRICS, 1)
            body = await reader.body(aiter(messages), connection)
            place.take(len(body))
            return await store(signal, body, writer, place)

    async def export(messages: _Messages, context: grpc.aio.ServicerContext[Any, bytes]) -> bytes:
        try:
            auth.check(dict(context.invocation_metadata() or ()).get("authorization"), token)
            done = await stored(messages, str(context.peer()))
        except CollectorError as error:
            writer.tally.count(
                "refused_requests", protocol="grpc", signal=signal, reason=error.reason
            )
            status = responses.failure(error)
            context.set_trailing_metadata(
                (("grpc-status-details-bin", status.SerializeToString()),)
            )
            await context.abort(_CODES[error.grpc_status], str(error))
        return bytes(responses.success(signal, done).SerializeToString())

    return export
