"""What do log records tell of spans? Some senders say how a streamed answer ended in an event beside its span, and nowhere else.

Log records are not stored. Of the two events that the GenAI conventions have for an answer, the finish reason is taken; their texts are not read.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from overrun.collector.errors import BadPayload
from overrun.collector.normalise import privacy, readers

NOT_STORED = "log records are not stored (except calls and deployments that they report, and the finish reason of an answer): send traces and metrics here, and logs to a log store"
# The event's name -> the keys that say why an answer ended, in its attributes or in its body.
_EVENTS = {
    "gen_ai.choice": ("finish_reason",),
    "gen_ai.client.inference.operation.details": (
        "gen_ai.response.finish_reasons",
        "gen_ai.response.finish_reason",
    ),
}
_MESSAGES = "gen_ai.output.messages"  # where else an answer's end is told, beside its text
_MAX_REASON = 64  # characters; a longer one is no reason


class Note(NamedTuple):
    """What a log record tells of a span. Ids as two and one unsigned 64-bit numbers, the record's time in Unix nanoseconds."""

    trace_hi: int
    trace_lo: int
    span_id: int
    time_ns: int
    finish_reason: str


_NOTES: Final = msgspec.json.Decoder(list[Note])


def told(body: bytes) -> tuple[int, list[Note]]:
    """How many records a logs request holds, and what they tell of spans.

    Raises:
        BadPayload: the body is not a logs request.
    """
    try:
        request = ExportLogsServiceRequest.FromString(body)
    except DecodeError as error:
        raise BadPayload(
            f"the body is not an OTLP logs export request in protobuf: {error}"
        ) from error
    records = 0
    notes: list[Note] = []
    for resource in request.resource_logs:
        for scope in resource.scope_logs:
            records += len(scope.log_records)
            notes += [n for record in scope.log_records if (n := _note(record)) is not None]
    return records, notes


def pack(notes: list[Note]) -> bytes:
    """The notes as a body for the writer; `unpack` reads it."""
    return msgspec.json.encode(notes)


def unpack(data: bytes) -> list[Note]:
    """What `pack` was given."""
    return _NOTES.decode(data)


def _note(record: LogRecord) -> Note | None:
    name = record.event_name or _text(_of(record.attributes, "event.name"))
    keys = _EVENTS.get(name or "")
    if keys is None or len(record.trace_id) != 16 or len(record.span_id) != 8:
        return None
    for values in (record.attributes, record.body.kvlist_value.values):
        reason = next(
            (reason for key in keys if (reason := _text(_of(values, key)))), None
        ) or _of_messages(_of(values, _MESSAGES))
        if reason and len(reason) <= _MAX_REASON and not privacy.is_sentence(reason):
            at = min(record.time_unix_nano or record.observed_time_unix_nano, 2**63 - 1)
            high, low = int.from_bytes(record.trace_id[:8]), int.from_bytes(record.trace_id[8:])
            return Note(
                high, low, int.from_bytes(record.span_id), at, readers.finish_reason(reason)
            )
    return None


def _of_messages(value: AnyValue | None) -> str | None:
    """Why the last of these messages ended."""
    found = value.array_value.values if value is not None else []
    return _text(_of(found[-1].kvlist_value.values, "finish_reason")) if found else None


def _of(values: object, key: str) -> AnyValue | None:
    found: KeyValue
    for found in values:  # type: ignore[attr-defined]
        if found.key == key:
            return found.value
    return None


def _text(value: AnyValue | None) -> str | None:
    """A text, or the first of several."""
    if value is not None and value.array_value.values:
        value = value.array_value.values[0]
    return value.string_value or None if value is not None else None
