"""How do OTLP trace bytes become columns, slowly and obviously? `decode_spans`: request bodies in, the same flat columns as decode.py out.

Protobuf's own decoder and plain loops over spans: nothing here is shared with the fast decoder but the result types, so that the tests can hold
one against the other. Several times slower; it is not used for live traffic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from collector.decode import Attributes, Events, Links, RawSpans, Source, any_value
from collector.errors import BadPayload

# An AnyValue as ptars lays it out: one member of these is set. What is nested in an array or a map stays protobuf bytes.
_NESTED = pa.struct([("values", pa.list_(pa.binary()))])
_VALUE = pa.struct([
    ("string_value", pa.string()), ("bool_value", pa.bool_()), ("int_value", pa.int64()), ("double_value", pa.float64()),
    ("array_value", _NESTED), ("kvlist_value", _NESTED), ("bytes_value", pa.binary()), ("string_value_strindex", pa.int32())])
_SPAN = pa.struct([
    ("trace_id", pa.binary()), ("span_id", pa.binary()), ("trace_state", pa.string()), ("parent_span_id", pa.binary()), ("name", pa.string()),
    ("kind", pa.int32()), ("start_time_unix_nano", pa.uint64()), ("end_time_unix_nano", pa.uint64()), ("dropped_attributes_count", pa.uint32()),
    ("dropped_events_count", pa.uint32()), ("dropped_links_count", pa.uint32()),
    ("status", pa.struct([("message", pa.string()), ("code", pa.int32())])), ("flags", pa.uint32())])
_MAX_NS = 2**63 - 1


class _Flat:
    """Attributes of many owners, gathered one by one."""

    def __init__(self) -> None:
        self.owner: list[int] = []
        self.key: list[str] = []
        self.value: list[dict[str, Any] | None] = []

    def add(self, owner: int, attributes: Iterable[KeyValue]) -> None:
        for attribute in attributes:
            self.owner.append(owner)
            self.key.append(attribute.key)
            self.value.append(_value(attribute.value) if attribute.HasField("value") else None)

    def columns(self) -> Attributes:
        return Attributes(np.array(self.owner, np.int64), pa.array(self.key, pa.string()), pa.array(self.value, _VALUE))


def decode_spans(bodies: Sequence[bytes]) -> RawSpans:
    """Flatten ExportTraceServiceRequest bodies.

    Raises:
        BadPayload: one of the bodies is not such a message.
    """
    sources: list[Source] = []
    body_of, source_of = [], []
    spans: list[Span] = []
    for body, data in enumerate(bodies):
        for resource_spans in _request(data).resource_spans:
            for scope_spans in resource_spans.scope_spans:
                sources.append(_source(resource_spans.resource, resource_spans.schema_url, scope_spans.scope, scope_spans.schema_url))
                for span in scope_spans.spans:
                    body_of.append(body)
                    source_of.append(len(sources) - 1)
                    spans.append(span)
    attributes = _Flat()
    for row, span in enumerate(spans):
        attributes.add(row, span.attributes)
    return RawSpans(
        body=np.array(body_of, np.int64), source=np.array(source_of, np.int64), sources=sources,
        span=pa.array([_fields(span) for span in spans], _SPAN), attributes=attributes.columns(), events=_events(spans), links=_links(spans))


def _request(data: bytes) -> ExportTraceServiceRequest:
    try:
        request = ExportTraceServiceRequest()
        request.ParseFromString(data)
    except DecodeError as error:
        raise BadPayload(f"the body is not an OTLP trace export request in protobuf: {error}") from error
    return request


def _source(resource: Resource, resource_url: str, scope: InstrumentationScope, scope_url: str) -> Source:
    return Source(_plain(resource.attributes), scope.name, scope.version, _plain(scope.attributes), resource_url, scope_url)


def _plain(attributes: Iterable[KeyValue]) -> tuple[tuple[str, Any], ...]:
    return tuple((a.key, any_value(a.value)) for a in attributes)


def _fields(span: Span) -> dict[str, Any]:
    found = {field.name: getattr(span, field.name) for field in _SPAN if field.name != "status"}
    found["status"] = {"message": span.status.message, "code": span.status.code} if span.HasField("status") else None
    return found


def _value(value: AnyValue) -> dict[str, Any]:
    kind = value.WhichOneof("value")
    if kind is None:
        return {}
    content = getattr(value, kind)
    if kind in ("array_value", "kvlist_value"):
        return {kind: {"values": [item.SerializeToString() for item in content.values]}}
    return {kind: content}


def _events(spans: Sequence[Span]) -> Events:
    owner: list[int] = []
    time_ns, name, attributes = [], [], _Flat()
    for row, span in enumerate(spans):
        for event in span.events:
            attributes.add(len(owner), event.attributes)
            owner.append(row)
            time_ns.append(min(event.time_unix_nano, _MAX_NS))
            name.append(event.name)
    return Events(np.array(owner, np.int64), np.array(time_ns, np.int64), pa.array(name, pa.string()), attributes.columns())


def _links(spans: Sequence[Span]) -> Links:
    owner: list[int] = []
    trace_id, span_id, attributes = [], [], _Flat()
    for row, span in enumerate(spans):
        for link in span.links:
            attributes.add(len(owner), link.attributes)
            owner.append(row)
            trace_id.append(link.trace_id)
            span_id.append(link.span_id)
    return Links(np.array(owner, np.int64), pa.array(trace_id, pa.binary()), pa.array(span_id, pa.binary()), attributes.columns())
