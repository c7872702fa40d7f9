"""How many items will a body become? Counted on its bytes, before anything is decoded: an empty protobuf message is two bytes and costs hundreds once read.

An item is one element of a repeated field: a span, an attribute, an event, a log record, a data point, a bucket, an element of an array value. Some cost
more than others (`_WEIGHTS`). The layout is read from protobuf's own descriptors, so that a field which OTLP adds is counted with the next release of these.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.collector.decode.wire import BYTES, block, skip, tag
from overrun.collector.process.compiled import inlined, lean, read_only

# What an element costs, in attributes. Each of these is read by Python: a source takes 15 µs, a data point 1 kB of rows (2026-11-26).
_WEIGHTS: Final = {
    **dict.fromkeys(("ResourceSpans", "ScopeSpans", "ResourceMetrics", "ScopeMetrics"), 16),
    **dict.fromkeys(("ResourceLogs", "ScopeLogs", "Metric"), 16),
    **dict.fromkeys(("NumberDataPoint", "HistogramDataPoint", "SummaryDataPoint"), 8),
    "ExponentialHistogramDataPoint": 8,
    "LogRecord": 4,
}
_FIELDS = 32  # numbers below this are looked up; OTLP's are at most 20
_OLD = 1000  # where senders before OTLP 0.15 put their scopes, today's field 2 (old_otlp.py)
_DEPTH = 128  # messages in messages; protobuf's decoders refuse more than 100
# Of a field: which message it holds (-1: none), its weight (0: not repeated), and the width of its packed elements (0: none, -1: varints).
_CHILD, _WEIGHT, _WIDTH = range(3)
_WIDTHS = {
    FieldDescriptor.TYPE_DOUBLE: 8,
    FieldDescriptor.TYPE_FIXED64: 8,
    FieldDescriptor.TYPE_SFIXED64: 8,
    FieldDescriptor.TYPE_FLOAT: 4,
    FieldDescriptor.TYPE_FIXED32: 4,
    FieldDescriptor.TYPE_SFIXED32: 4,
    FieldDescriptor.TYPE_MESSAGE: 0,
    FieldDescriptor.TYPE_STRING: 0,
    FieldDescriptor.TYPE_BYTES: 0,
}
_ROOTS: Final[dict[str, Any]] = {
    "traces": ExportTraceServiceRequest,
    "metrics": ExportMetricsServiceRequest,
    "logs": ExportLogsServiceRequest,
}


def _layout() -> tuple[Any, dict[str, int]]:
    """The table (message, field number, _CHILD to _WIDTH) of all messages, and which message each signal's request is."""
    number: dict[str, int] = {}
    messages: list[Descriptor] = []

    def known(message: Descriptor) -> int:
        if message.full_name not in number:
            number[message.full_name] = len(messages)
            messages.append(message)
        return number[message.full_name]

    roots = {signal: known(kind.DESCRIPTOR) for signal, kind in _ROOTS.items()}
    rows: list[Any] = []
    while len(rows) < len(messages):
        row = np.zeros((_FIELDS, 3), dtype=np.int64)
        row[:, _CHILD] = -1
        for field in messages[len(rows)].fields:
            holds = field.message_type
            row[field.number, _CHILD] = -1 if holds is None else known(holds)
            if field.is_repeated:
                row[field.number, _WEIGHT] = 1 if holds is None else _WEIGHTS.get(holds.name, 1)
                row[field.number, _WIDTH] = _WIDTHS.get(field.type, -1)
        rows.append(row)
    return read_only(np.stack(rows)), roots


_TABLE, _MESSAGE = _layout()


def count(signal: str, body: bytes, most: int) -> int:
    """The items of an export request in protobuf, by weight; counting ends soon after `most`. What is broken is counted up to there."""
    stack = np.empty((_DEPTH, 2), dtype=np.int64)
    data = np.frombuffer(body, dtype=np.uint8)
    return int(_count(read_only(data), _TABLE, _MESSAGE[signal], stack, most))


def count_json(body: bytes) -> int:
    """The items of a JSON document: an object counts half, any other value a quarter, as Python's objects cost (70 bytes a value, 300 bytes an item)."""
    return int(_quarters(read_only(np.frombuffer(body, dtype=np.uint8)))) // 4 + 1


@inlined()
def _after(data, at, end, wire):  # type: ignore[no-untyped-def]
    """Where the next field begins. What is in a group (3 its begin, 4 its end) counts as if it stood beside it."""
    return at if wire in (3, 4) else skip(data, at, end, wire)


@inlined()
def _packed(data, at, end, width):  # type: ignore[no-untyped-def]
    """The elements of a packed field."""
    if width >= 0:
        return (end - at) // width if width > 0 else 0
    found = 0
    for i in range(at, end):
        found += data[i] < 128
    return found


@lean()
def _count(data, table, message, stack, most):  # type: ignore[no-untyped-def]
    """See `count`. Depth-first over the messages, without recursion: `stack` holds the message and the end of each that is open."""
    items, depth, at = 0, 0, 0
    end = len(data)
    stack[0, 0], stack[0, 1] = message, end
    while items <= most:
        if at >= end:
            if depth == 0:
                break
            depth -= 1
            message, end = stack[depth, 0], stack[depth, 1]
            continue
        field, wire, at = tag(data, at, end)
        if at < 0:
            break
        if field == _OLD and depth == 1:
            field = 2
        if field >= _FIELDS:
            items += depth < 2  # these levels are walked by Python, field by field
            at = _after(data, at, end, wire)
            if at < 0:
                break
            continue
        weight = table[message, field, _WEIGHT]
        items += max(weight, depth < 2)
        if wire != BYTES:
            at = _after(data, at, end, wire)
            if at < 0:
                break
            continue
        first, at = block(data, at, end)
        if at < 0:
            break
        child = table[message, field, _CHILD]
        if child >= 0 and depth + 1 < len(stack):
            depth += 1
            message, end, at = child, at, first
            stack[depth, 0], stack[depth, 1] = message, end
        else:
            items += _packed(data, first, at, table[message, field, _WIDTH])
    return items


@lean()
def _quarters(data):  # type: ignore[no-untyped-def]
    """Quarter items of a JSON document: two an object, one an array or a comma. Nothing in a text counts."""
    found = 0
    in_text = False
    at = 0
    while at < len(data):
        byte = data[at]
        if in_text:
            if byte == 92:  # a backslash: the next byte is part of the text
                at += 1
            elif byte == 34:
                in_text = False
        elif byte == 34:
            in_text = True
        elif byte == 123:
            found += 2
        elif byte == 91 or byte == 44:
            found += 1
        at += 1
    return found
