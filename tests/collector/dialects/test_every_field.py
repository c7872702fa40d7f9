"""Every field of OTLP is stored, or stands on the list of exceptions below with its reason; a field that the protocol gains fails here until it does.

For each field two requests are made that differ in nothing else. If the rows to be stored differ, the field is stored.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.collector.decode.otlp_spans import decode_spans
from overrun.collector.normalise.points import decode_points
from overrun.collector.normalise.spans import Rules, normalize
from overrun.collector.receive.otlp_http import store
from overrun.collector.store.layout import Shapes, shape_rows
from tests.collector.conftest import T0_NS, Collector

# What is left out, and why. A pattern ends with the field; what stands before it narrows it down.
COUNTS = "how much a resource of metrics left out is not kept: no number is made from it"
ENTITIES = "entity references are in development and repeat resource attributes"
EXCEPTIONS: dict[str, str] = {
    "entity_refs.schema_url": ENTITIES,
    "entity_refs.type": ENTITIES,
    "entity_refs.id_keys": ENTITIES,
    "entity_refs.description_keys": ENTITIES,
    "status.message": "text of people and programs: the error's type is kept",
    "links.trace_state": "of the linked trace, not of this span",
    "links.flags": "of the linked span, not of this one",
}
METRIC_EXCEPTIONS: dict[str, str] = {
    "dropped_attributes_count": COUNTS,
    "metrics.description": "text for people that repeats with every request",
    "metrics.metadata": "where the metric came from before; its name says what it is",
    "exemplars": "single measurements with span ids: spans tell more of them",
    "histogram.data_points.min": "percentiles come from the buckets",
    "histogram.data_points.max": "percentiles come from the buckets",
    "exponential_histogram.data_points.min": "percentiles come from the buckets",
    "exponential_histogram.data_points.max": "percentiles come from the buckets",
    "zero_threshold": "the zero bucket is as narrow as the first bucket allows",
    "quantile_values": "quantiles over a window that only their sender knows cannot be joined with others",
}
VERDICT = {True: "stored: take it off the list", False: "not stored: store it or say why not"}
# Indices into the string table of the profiles signal; in the other signals they mean nothing.
PROFILES_ONLY = ("string_value_strindex", "key_strindex")


def leaves(descriptor: Descriptor, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every scalar field; values inside arrays and maps are followed one level down."""
    for field in descriptor.fields:
        here = (*path, field.name)
        if field.name in PROFILES_ONLY:
            continue
        if field.message_type is None:
            yield here
        elif sum(name in ("array_value", "kvlist_value") for name in here) <= 1:
            yield from leaves(field.message_type, here)


TRACE_FIELDS = list(leaves(ExportTraceServiceRequest.DESCRIPTOR))
METRIC_FIELDS = list(leaves(ExportMetricsServiceRequest.DESCRIPTOR))


def scalar(field: FieldDescriptor, which: int) -> Any:
    """One of two values of a field, both of which a sender may send."""
    if field.name == "trace_id":
        return bytes([which + 1]) * 16
    if field.name in ("span_id", "parent_span_id"):
        return bytes([which + 1]) * 8
    if field.name.endswith("time_unix_nano"):
        return T0_NS + which + (10 if field.name == "end_time_unix_nano" else 0)
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return (
            ("one", "two")[which]
            if field.type == FieldDescriptor.TYPE_STRING
            else (b"one", b"two")[which]
        )
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return bool(which)
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return 1 + which
    return (
        1 + which
        if kind not in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)
        else 0.5 + which
    )


def fill(message: Message, path: tuple[str, ...], which: int) -> None:
    """A message with what it needs to be stored, and with the field at `path` set to one of its two values."""
    for field in message.DESCRIPTOR.fields:  # ids, times and names, which nothing is stored without
        if (
            field.name
            in (
                "trace_id",
                "span_id",
                "start_time_unix_nano",
                "end_time_unix_nano",
                "time_unix_nano",
                "name",
                "key",
            )
            and field.name != path[0]
        ):
            setattr(message, field.name, scalar(field, 0))
    if {"explicit_bounds", "bucket_counts"} <= set(message.DESCRIPTOR.fields_by_name):
        message.explicit_bounds[:], message.bucket_counts[:] = [0.25], [3, 4]  # type: ignore[attr-defined]
    if message.DESCRIPTOR.name == "ExponentialHistogramDataPoint":
        message.positive.bucket_counts[:] = [3, 4]  # type: ignore[attr-defined]
    if message.DESCRIPTOR.name == "Buckets":
        message.bucket_counts[:] = [3, 4]  # type: ignore[attr-defined]
    if message.DESCRIPTOR.name == "NumberDataPoint" and path[0] not in ("as_int", "as_double"):
        message.as_double = 1.0  # type: ignore[attr-defined]
    field = message.DESCRIPTOR.fields_by_name[path[0]]
    if field.message_type is None:
        value = scalar(field, which)
        if field.is_repeated:
            held = getattr(message, field.name)
            held[:] = [value, *list(held)[1:]]
        else:
            setattr(message, field.name, value)
        return
    inner = (
        getattr(message, field.name).add() if field.is_repeated else getattr(message, field.name)
    )
    if not field.is_repeated:
        inner.SetInParent()
    fill(inner, path[1:], which)
    if message.DESCRIPTOR.name == "ScopeSpans" and field.name != "spans":
        fill(message.spans.add(), ("name",), 0)  # type: ignore[attr-defined]
    if message.DESCRIPTOR.name == "ResourceSpans" and field.name != "scope_spans":
        fill(message.scope_spans.add(), ("spans", "name"), 0)  # type: ignore[attr-defined]
    if message.DESCRIPTOR.name == "ScopeMetrics" and field.name != "metrics":
        fill(message.metrics.add(), ("gauge", "data_points", "as_double"), 0)  # type: ignore[attr-defined]
    if message.DESCRIPTOR.name == "ResourceMetrics" and field.name != "scope_metrics":
        fill(message.scope_metrics.add(), ("metrics", "gauge", "data_points", "as_double"), 0)  # type: ignore[attr-defined]


def made(kind: type[Message], path: tuple[str, ...], which: int) -> bytes:
    """A request with this field; what stands beside the path down is there as far as it must be."""
    request = kind()
    fill(request, path, which)
    for resource in getattr(request, "resource_spans", []):
        if not resource.scope_spans:
            fill(resource.scope_spans.add(), ("spans", "name"), 0)
        for scope in resource.scope_spans:
            if not scope.spans:
                fill(scope.spans.add(), ("name",), 0)
    for resource in getattr(request, "resource_metrics", []):
        if not resource.scope_metrics:
            fill(resource.scope_metrics.add(), ("metrics", "gauge", "data_points", "as_double"), 0)
        for scope in resource.scope_metrics:
            if not scope.metrics:
                fill(scope.metrics.add(), ("gauge", "data_points", "as_double"), 0)
            for metric in scope.metrics:
                if metric.WhichOneof("data") is None:
                    fill(metric.gauge.data_points.add(), ("as_double",), 0)
                elif not getattr(metric, metric.WhichOneof("data")).data_points:
                    kind_of = metric.WhichOneof("data")
                    fill(
                        getattr(metric, kind_of).data_points.add(),
                        ("as_double",) if kind_of in ("gauge", "sum") else ("count",),
                        0,
                    )
    return request.SerializeToString()


def spans_stored(body: bytes) -> str:
    """Everything of a traces body that goes into the store."""
    found = normalize(decode_spans([body]), Rules(store_text=True))
    rows = Shapes(0).lay_out(found.spans, found.shapes, 0)
    assert rows.spans.num_rows == 1, "the request has one span"
    parts = [rows.spans, rows.span_values, shape_rows(rows.new), found.events, found.links]
    return repr([p.to_pylist() for p in parts]) + repr(found.sources)


def points_stored(body: bytes) -> str:
    """Everything of a metrics body that goes into the store."""
    found = decode_points(body, Rules(store_text=True))
    return repr(found.rows) + repr(found.sources)


def excused(path: tuple[str, ...], exceptions: dict[str, str]) -> bool:
    dotted = f".{'.'.join(path)}."
    return any(f".{pattern}." in dotted for pattern in exceptions)


@pytest.mark.parametrize("path", TRACE_FIELDS, ids=".".join)
def test_a_field_of_a_span_is_stored_or_on_the_list(path: tuple[str, ...]) -> None:
    one, two = (spans_stored(made(ExportTraceServiceRequest, path, which)) for which in (0, 1))
    assert (one != two) != excused(path, EXCEPTIONS), VERDICT[one != two]


@pytest.mark.parametrize("path", METRIC_FIELDS, ids=".".join)
def test_a_field_of_a_data_point_is_stored_or_on_the_list(path: tuple[str, ...]) -> None:
    one, two = (points_stored(made(ExportMetricsServiceRequest, path, which)) for which in (0, 1))
    assert (one != two) != excused(path, EXCEPTIONS | METRIC_EXCEPTIONS), VERDICT[one != two]


def test_every_exception_is_about_a_field_that_there_is() -> None:
    for pattern in EXCEPTIONS:
        assert any(excused(path, {pattern: ""}) for path in TRACE_FIELDS), pattern
    for pattern in METRIC_EXCEPTIONS:
        assert any(excused(path, {pattern: ""}) for path in METRIC_FIELDS), pattern


def test_log_records_are_an_exception_as_a_whole_and_the_sender_hears_so(
    collector: Collector,
) -> None:
    request = ExportLogsServiceRequest()
    request.resource_logs.add().scope_logs.add().log_records.add(severity_text="INFO")
    with collector.writer.admission.body() as place:
        told = asyncio.run(store("logs", request.SerializeToString(), collector.writer, place))
    assert (told.items, told.rejected, "not stored" in told.reason) == (0, 1, True)
