"""How does OTLP/JSON become the protobuf bytes that everything else reads? Ids are hex there, or base64 as in protobuf's own JSON, which the rest is."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import msgspec
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.collector.decode import json_wire
from overrun.collector.decode.old_otlp import modernize
from overrun.collector.errors import BadPayload

_ID_KEYS = ("traceId", "spanId", "parentSpanId", *json_wire.ID_FIELDS)
_MAX_DEPTH = 100  # messages in messages: as many as protobuf's own parsers take
REQUESTS: dict[str, type[Message]] = {
    "traces": ExportTraceServiceRequest,
    "metrics": ExportMetricsServiceRequest,
    "logs": ExportLogsServiceRequest,
}


def to_protobuf(signal: str, body: bytes) -> bytes:
    """Protobuf bytes of an OTLP/JSON export request (`signal` is traces, metrics or logs). Unknown fields are ignored, as OTLP asks.

    Raises:
        BadPayload: no JSON, no object, an id that is not hex, or a field of the wrong type.
    """
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadPayload(f"the body is not JSON: {error}") from error
    return from_document(signal, document)


def from_document(signal: str, document: Any) -> bytes:
    """As `to_protobuf`, from the decoded JSON value. The ids in `document` may be rewritten in place."""
    if not isinstance(document, dict):
        raise BadPayload(f"an OTLP/JSON request is an object, not {type(document).__name__}")
    modernize(document)
    plain = json_wire.encode(REQUESTS[signal], document)
    return by_protobuf(signal, document) if plain is None else plain


def by_protobuf(signal: str, document: dict[str, Any]) -> bytes:
    """As `from_document`, by protobuf's own parser: whatever it takes is right."""
    message = REQUESTS[signal]()
    try:
        for holder in _id_holders(document):
            for key in _ID_KEYS:
                # 8 and 16 bytes end in `=` as base64, which no hex does: protobuf's own JSON (Tempo).
                if isinstance(holder.get(key), str) and not holder[key].endswith("="):
                    holder[key] = base64.b64encode(bytes.fromhex(holder[key])).decode()
        ParseDict(document, message, ignore_unknown_fields=True, max_recursion_depth=_MAX_DEPTH)
        return bytes(message.SerializeToString())
    except (ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise BadPayload(
            f"the body is not an OTLP/JSON {signal} request: {str(error)[:300]}"
        ) from error


def _id_holders(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every object that carries ids: spans and their links, log records, exemplars. Found by shape, not by path: both spellings occur."""
    stack: list[Any] = [document]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if any(key in item for key in _ID_KEYS):
                yield item
            stack.extend(
                value
                for key, value in item.items()
                if key not in ("attributes", "body") and isinstance(value, dict | list)
            )
        elif isinstance(item, list):
            stack.extend(item)


def to_json(message: Message) -> bytes:
    """A response message as OTLP/JSON."""
    return msgspec.json.encode(MessageToDict(message))
