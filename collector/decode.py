"""How do OTLP trace bytes become columns? `decode_spans`: request bodies in, flat Arrow columns out, without a loop over spans.

ptars (Rust) turns the protobuf into nested Arrow at about 0.5-0.9 M spans/s; this file only flattens the nesting. The library is young,
so nothing else in the project knows it, and `decode_upb.py` is the slow, obvious decoder that the tests hold it against.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from ptars import HandlerPool

from collector.errors import BadPayload

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

# Deeper nesting than this in an attribute value is cut to null, whatever the settings allow (collector/limits.py): Python's own recursion has to hold.
MAX_VALUE_DEPTH = 24
BROKEN_VALUE = "a value inside an array or map is broken, not UTF-8, or nested more than a hundred deep"


@dataclass(frozen=True, slots=True)
class Attributes:
    """Attributes of many owners, flat: attribute i belongs to row owner[i]. `value` is OTLP's AnyValue as a struct of one non-null member."""

    owner: Ints
    key: pa.StringArray
    value: pa.StructArray


@dataclass(frozen=True, slots=True)
class Events:
    """Span events, flat; owner[i] is the row of the span."""

    owner: Ints
    time_ns: Ints
    name: pa.StringArray
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class Links:
    """Span links, flat; owner[i] is the row of the span."""

    owner: Ints
    trace_id: pa.BinaryArray
    span_id: pa.BinaryArray
    attributes: Attributes


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
    """n spans as sent: `body` and `source` are indices per span, `span` is OTLP's Span as a struct of columns without its lists."""

    body: Ints
    source: Ints
    sources: list[Source]
    span: pa.StructArray
    attributes: Attributes
    events: Events
    links: Links

    def __len__(self) -> int:
        return len(self.body)


@functools.cache
def _handler() -> Any:
    return HandlerPool([ExportTraceServiceRequest.DESCRIPTOR.file]).get_for_message(ExportTraceServiceRequest.DESCRIPTOR)  # type: ignore[no-untyped-call]


def decode_spans(bodies: Sequence[bytes]) -> RawSpans:
    """Flatten ExportTraceServiceRequest bodies.

    Raises:
        BadPayload: one of the bodies is not such a message (the whole call fails: find the culprit by decoding one by one).
    """
    try:
        batch = _handler().list_to_record_batch(list(bodies))
    except ValueError as error:
        raise BadPayload(f"the body is not an OTLP trace export request in protobuf: {error}") from error
    except BaseException as error:
        # A panic inside the Rust library arrives as a BaseException of its own; a sender must not be able to end the writer with it.
        if type(error).__name__ == "PanicException":
            raise BadPayload(f"the body could not be decoded: {error}") from error
        raise
    per_body = batch.column(0)
    resource_spans = pc.list_flatten(per_body)
    body_of_resource = _parents(per_body)
    scope_lists = resource_spans.field("scope_spans")
    scope_spans = pc.list_flatten(scope_lists)
    resource_of_scope = _parents(scope_lists)
    span_lists = scope_spans.field("spans")
    spans = pc.list_flatten(span_lists)
    scope_of_span = _parents(span_lists)
    return RawSpans(
        body=body_of_resource[resource_of_scope[scope_of_span]],
        source=scope_of_span,
        sources=_sources(resource_spans, scope_spans, resource_of_scope),
        span=spans,
        attributes=_attributes(spans.field("attributes")),
        events=_events(spans.field("events")),
        links=_links(spans.field("links")),
    )


def _parents(lists: pa.ListArray) -> Ints:
    return np.asarray(pc.list_parent_indices(lists).to_numpy(zero_copy_only=False), dtype=np.int64)


def _attributes(lists: pa.ListArray) -> Attributes:
    flat = pc.list_flatten(lists)
    return Attributes(_parents(lists), flat.field("key"), flat.field("value"))


def _events(lists: pa.ListArray) -> Events:
    flat = pc.list_flatten(lists)
    return Events(_parents(lists), to_ns(flat.field("time_unix_nano")), flat.field("name"), _attributes(flat.field("attributes")))


def _links(lists: pa.ListArray) -> Links:
    flat = pc.list_flatten(lists)
    return Links(_parents(lists), flat.field("trace_id"), flat.field("span_id"), _attributes(flat.field("attributes")))


def to_ns(column: pa.UInt64Array) -> Ints:
    """OTLP's fixed64 nanoseconds as signed 64-bit; what does not fit (after the year 2262) is cut to the largest value."""
    return np.asarray(np.minimum(column.to_numpy(zero_copy_only=False), np.uint64(2**63 - 1)), dtype=np.int64)


def _sources(resource_spans: pa.StructArray, scope_spans: pa.StructArray, resource_of_scope: Ints) -> list[Source]:
    resources = [
        ((), "") if r is None and not url else (tuple((a["key"], plain(a["value"])) for a in (r or {"attributes": []})["attributes"]), url)
        for r, url in zip(resource_spans.field("resource").to_pylist(), resource_spans.field("schema_url").to_pylist(), strict=True)
    ]
    out = []
    scopes = zip(resource_of_scope.tolist(), scope_spans.field("scope").to_pylist(), scope_spans.field("schema_url").to_pylist(), strict=True)
    for parent, sent, url in scopes:
        scope = sent or {"name": "", "version": "", "attributes": []}
        attributes = tuple((a["key"], plain(a["value"])) for a in scope["attributes"])
        resource, resource_url = resources[parent]
        out.append(Source(resource, scope["name"], scope["version"], attributes, resource_url, url))
    return out


def plain(value: dict[str, Any] | None) -> Any:
    """One AnyValue, as Arrow gives it (a dict with one member set), as a Python value; nested ones are decoded from their bytes."""
    for member, content in (value or {}).items():
        if content is not None:
            if member == "array_value":
                return [nested(item, 1) for item in content["values"]]
            if member == "kvlist_value":
                return dict(_key_value(item) for item in content["values"])
            return content
    return None


def nested(raw: bytes, depth: int = 0) -> Any:
    """An AnyValue that ptars left as protobuf bytes (it stops at the recursion), as a Python value.

    Raises:
        BadPayload: the bytes are broken, not UTF-8, or nested more than a hundred deep.
    """
    try:
        return any_value(AnyValue.FromString(raw), depth)
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


def _key_value(raw: bytes) -> tuple[str, Any]:
    try:
        item = KeyValue.FromString(raw)
    except DecodeError as error:
        raise BadPayload(BROKEN_VALUE) from error
    return item.key, any_value(item.value, 1)
