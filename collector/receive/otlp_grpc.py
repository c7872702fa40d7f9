"""OTLP over gRPC: the three Export methods on raw bytes, so that a body is decoded once, in columns, by the writer. No storage logic.

To gRPC the methods are streams of one message: it calls a method of one message only when that has come, and so before anybody has looked at the token.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from overrun.collector.access import auth
from overrun.collector.errors import BadPayload, CollectorError, QueueFull, TooSlow
from overrun.collector.ingest.writer import METRICS, TRACES, Stored, Writer
from overrun.collector.receive import responses
from overrun.collector.receive.otlp_http import store

_SERVICES = {
    "traces": "opentelemetry.proto.collector.trace.v1.TraceService",
    "metrics": "opentelemetry.proto.collector.metrics.v1.MetricsService",
    "logs": "opentelemetry.proto.collector.logs.v1.LogsService",
}
# Bodies that one connection may have under way.
_STREAMS = 64
# Bodies that are read at once, each as large as the limit, and those that wait for that with 64 KiB each (_AHEAD_BYTES).
_READING, _WAITING = 8, 256
_AHEAD_BYTES = 65_536
# A connection is given up when it has had no call for so long, and asked whether it is still there when nothing has come for so long.
_IDLE_MS, _ASK_MS, _ANSWER_MS, _HANDSHAKE_MS = 300_000, 60_000, 20_000, 20_000
_CODES = {code.value[0]: code for code in grpc.StatusCode}

_Messages = AsyncIterator[bytes]


def server(
    writer: Writer,
    max_body_bytes: int,
    token: str | None = None,
    *,
    max_connections: int = 512,
    body_timeout_s: float = 30.0,
) -> grpc.aio.Server:
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
    made = grpc.aio.server(options=options)
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
    made.add_generic_rpc_handlers(tuple(handlers))
    return made


class _Reader:
    """Reads bodies, a few at once over all connections."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._reading = asyncio.Semaphore(_READING)
        self._waiting = 0

    async def body(self, messages: _Messages) -> bytes:
        """The message of a call.

        Raises:
            QueueFull: too many wait to be read. TooSlow: it did not come in time. BadPayload: the call has none.
        """
        if self._waiting >= _WAITING:
            raise QueueFull(f"{_WAITING} bodies wait to be read: come again")
        self._waiting += 1
        try:
            async with asyncio.timeout(self._timeout_s), self._reading:
                return await anext(messages)
        except TimeoutError as error:
            raise TooSlow(f"the body did not come within {self._timeout_s:g} s") from error
        except StopAsyncIteration as error:
            raise BadPayload("the call has no message") from error
        finally:
            self._waiting -= 1


def _export(
    signal: str, writer: Writer, token: str | None, reader: _Reader
) -> Callable[[_Messages, Any], Awaitable[bytes]]:
    async def stored(messages: _Messages) -> Stored:
        with writer.admission.body() as place:
            if signal != "logs":
                writer.check_room(TRACES if signal == "traces" else METRICS, 1)
            body = await reader.body(aiter(messages))
            place.take(len(body))
            return await store(signal, body, writer, place)

    async def export(messages: _Messages, context: grpc.aio.ServicerContext[Any, bytes]) -> bytes:
        try:
            auth.check(dict(context.invocation_metadata() or ()).get("authorization"), token)
            done = await stored(messages)
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
