"""What does a decoder hand on? Spans as sent, in flat columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValueList,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from overrun.collector.arrays import BoolArray, ByteArray, IntArray, WordArray
from overrun.collector.errors import BadPayload

# Deeper nesting than this in an attribute value is cut to null, whatever the settings allow (normalise/limits.py): Python's own recursion has to hold.
MAX_VALUE_DEPTH = 24
BROKEN_VALUE = (
    "a value inside an array or map is broken, not UTF-8, or nested more than a hundred levels deep"
)
NOT_A_REQUEST = "the body is not an OTLP trace export request in protobuf"
# Under which keys the counts of what a sender's limits took are stored, of attributes, events and links: OpenTelemetry's own for formats without such fields.
DROPPED_KEYS = (
    "otel.dropped_attributes_count",
    "otel.dropped_events_count",
    "otel.dropped_links_count",
)
ARRAY, MAP, BLOB = 5, 6, 7  # field numbers of AnyValue: what `Attributes.others` holds


@dataclass(frozen=True, slots=True)
class Attributes:
    """Attributes of many owners, flat: attribute i belongs to row owner[i] and has the key keys[code[i]].

    `kind` (wire.NOTHING ... wire.OTHER) says where its value stands: in `text` (null for the rest), as a whole number or a boolean (0 or 1) in `number`,
    as a fraction in `fraction` (both may share their memory). Arrays, maps and bytes stand in `others`, as protobuf bytes without their tag; others[j]
    is the value of attribute other_at[j].
    """

    owner: IntArray
    keys: list[str]
    code: IntArray
    kind: ByteArray
    text: pa.StringArray
    number: IntArray
    fraction: np.ndarray[Any, np.dtype[np.float64]]
    other_at: IntArray
    other_member: ByteArray
    others: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.owner)

    def other(self, at: int) -> Any:
        """The array, map or bytes of attribute `at` as a Python value; None if it is none of them."""
        j = int(np.searchsorted(self.other_at, at))
        if j == len(self.other_at) or self.other_at[j] != at:
            return None
        return nested(int(self.other_member[j]), self.others[j].as_py())


@dataclass(frozen=True, slots=True)
class Events:
    """Span events, flat; owner[i] is the row of the span. `dropped` says how many attributes the sender's limits took from each."""

    owner: IntArray
    time_ns: IntArray
    name: pa.StringArray
    attributes: Attributes
    dropped: IntArray


@dataclass(frozen=True, slots=True)
class Links:
    """Span links, flat; owner[i] is the row of the span. `whole_ids` says where both ids have their width; elsewhere they are 0. `dropped` as of events."""

    owner: IntArray
    trace_hi: WordArray
    trace_lo: WordArray
    span_id: WordArray
    whole_ids: BoolArray
    attributes: Attributes
    dropped: IntArray


@dataclass(frozen=True, slots=True)
class Source:
    """What all spans of one resource and scope have in common; attribute values are plain Python values."""

    resource: tuple[tuple[str, Any], ...]
    scope_name: str
    scope_version: str
    scope: tuple[tuple[str, Any], ...]
    resource_schema_url: str
    scope_schema_url: str


@dataclass(frozen=True, slots=True)
class RawSpans:
    """n spans as sent: `body` and `source` are indices per span. An id that has not its width is 0, which is no id; times are unsigned, as sent.

    `dropped` has three rows: how many attributes, events and links each span lost to its sender's limits.
    """

    body: IntArray
    source: IntArray
    sources: list[Source]
    trace_hi: WordArray
    trace_lo: WordArray
    span_id: WordArray
    parent_id: WordArray
    start: WordArray
    end: WordArray
    kind: IntArray
    status: IntArray
    flags: IntArray
    name: pa.StringArray
    trace_state: pa.StringArray
    attributes: Attributes
    events: Events
    links: Links
    dropped: IntArray

    def __len__(self) -> int:
        return len(self.body)


def source(
    resource: Resource, resource_url: str, scope: InstrumentationScope, scope_url: str
) -> Source:
    """A resource and a scope of it as plain values."""
    of_resource, of_scope = (
        tuple((a.key, any_value(a.value)) for a in owner.attributes)
        + (((DROPPED_KEYS[0], n),) if (n := owner.dropped_attributes_count) else ())
        for owner in (resource, scope)
    )
    return Source(of_resource, scope.name, scope.version, of_scope, resource_url, scope_url)


def to_ns(times: WordArray) -> IntArray:
    """OTLP's fixed64 nanoseconds as signed 64-bit; what does not fit (after the year 2262) is cut to the largest value."""
    return np.minimum(times, np.uint64(2**63 - 1)).astype(np.int64)


def nested(member: int, raw: bytes) -> Any:
    """The content of an AnyValue's ARRAY, MAP or BLOB as a Python value.

    Raises:
        BadPayload: the bytes are broken, not UTF-8, or nested more than a hundred deep.
    """
    if member == BLOB:
        return raw
    try:
        if member == ARRAY:
            return [any_value(item, 1) for item in ArrayValue.FromString(raw).values]
        return {item.key: any_value(item.value, 1) for item in KeyValueList.FromString(raw).values}
    except DecodeError as error:
        raise BadPayload(BROKEN_VALUE) from error


def any_value(value: AnyValue, depth: int = 0) -> Any:
    """A protobuf AnyValue as a Python value; deeper than MAX_VALUE_DEPTH it is None."""
    kind = value.WhichOneof("value")
    if kind is None or depth > MAX_VALUE_DEPTH:
        return None
    if kind == "array_value":
        return [any_value(item, depth + 1) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {item.key: any_value(item.value, depth + 1) for item in value.kvlist_value.values}
    return getattr(value, kind)
