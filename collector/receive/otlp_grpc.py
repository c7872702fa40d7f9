"""OTLP over gRPC: the three Export methods on raw bytes, so that a body is decoded once, in columns, by the writer. No storage logic."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from overrun.collector.access import auth
from overrun.collector.errors import CollectorError
from overrun.collector.ingest.writer import Writer
from overrun.collector.receive import responses
from overrun.collector.receive.otlp_http import store

_SERVICES = {
    "traces": "opentelemetry.proto.collector.trace.v1.TraceService",
    "metrics": "opentelemetry.proto.collector.metrics.v1.MetricsService",
    "logs": "opentelemetry.proto.collector.logs.v1.LogsService",
}
# Bodies that one connection may have under way: each may be as large as the limit and is in memory before anybody can refuse it.
_STREAMS = 64
_CODES = {code.value[0]: code for code in grpc.StatusCode}


def server(writer: Writer, max_body_bytes: int, token: str | None = None) -> grpc.aio.Server:
    """A gRPC server with the OTLP services; the caller adds a port and starts it. With a `token`, senders must carry it."""
    options = [
        ("grpc.max_receive_message_length", max_body_bytes),
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", _STREAMS),
    ]
    made = grpc.aio.server(options=options)
    handlers = [
        grpc.method_handlers_generic_handler(
            service, {"Export": grpc.unary_unary_rpc_method_handler(_export(signal, writer, token))}
        )
        for signal, service in _SERVICES.items()
    ]
    made.add_generic_rpc_handlers(tuple(handlers))
    return made


def _export(
    signal: str, writer: Writer, token: str | None
) -> Callable[[bytes, Any], Awaitable[bytes]]:
    async def export(body: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        try:
            auth.check(dict(context.invocation_metadata() or ()).get("authorization"), token)
            stored = await store(signal, body, writer)
        except CollectorError as error:
            writer.tally.count(
                "refused_requests", protocol="grpc", signal=signal, reason=error.reason
            )
            status = responses.failure(error)
            context.set_trailing_metadata(
                (("grpc-status-details-bin", status.SerializeToString()),)
            )
            await context.abort(_CODES[error.grpc_status], str(error))
        return bytes(responses.success(signal, stored).SerializeToString())

    return export
