"""OTLP/JSON becomes the protobuf that the same document means; whatever else comes in is refused, never a crash."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.collector.decode import otlp_json
from overrun.collector.errors import BadPayload
from overrun.sample_traces.replay import load, manifest
from tests.collector.conftest import request, span
from tests.collector.oracle_otlp import as_otlp_json


@pytest.mark.parametrize("name", list(manifest()))
@pytest.mark.parametrize(("snake", "numbers"), [(False, False), (True, True)])
def test_every_recording_written_as_json_reads_back_as_the_same_message(
    name: str, snake: bool, numbers: bool
) -> None:
    for payload in load(name).payloads[:4]:
        if payload.request.ByteSize() > 100_000:
            continue  # the same shape again, for seconds
        content = as_otlp_json(payload.request, snake=snake, numbers=numbers)
        assert (
            type(payload.request).FromString(otlp_json.to_protobuf(payload.signal, content))
            == payload.request
        )


def test_ids_of_links_logs_and_exemplars_are_hex_too() -> None:
    trace, other = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    ids = {"traceId": trace, "spanId": other}
    spans = (
        ExportTraceServiceRequest.FromString(
            otlp_json.to_protobuf(
                "traces",
                json.dumps(
                    {"resourceSpans": [{"scopeSpans": [{"spans": [{**ids, "links": [ids]}]}]}]}
                ).encode(),
            )
        )
        .resource_spans[0]
        .scope_spans[0]
        .spans
    )
    assert (spans[0].links[0].trace_id.hex(), spans[0].links[0].span_id.hex()) == (trace, other)
    record = (
        ExportLogsServiceRequest.FromString(
            otlp_json.to_protobuf(
                "logs",
                json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [ids]}]}]}).encode(),
            )
        )
        .resource_logs[0]
        .scope_logs[0]
        .log_records[0]
    )
    assert record.trace_id.hex() == trace
    point = (
        ExportMetricsServiceRequest.FromString(
            otlp_json.to_protobuf(
                "metrics",
                json.dumps(
                    {
                        "resourceMetrics": [
                            {
                                "scopeMetrics": [
                                    {
                                        "metrics": [
                                            {
                                                "gauge": {
                                                    "dataPoints": [
                                                        {"asInt": "5", "exemplars": [ids]}
                                                    ]
                                                }
                                            }
                                        ]
                                    }
                                ]
                            }
                        ]
                    }
                ).encode(),
            )
        )
        .resource_metrics[0]
        .scope_metrics[0]
        .metrics[0]
        .gauge.data_points[0]
    )
    assert (point.as_int, point.exemplars[0].trace_id.hex()) == (5, trace)


def test_bytes_in_an_attribute_are_base64_as_in_protobuf() -> None:
    document = {
        "resourceSpans": [
            {
                "scopeSpans": [
                    {
                        "spans": [
                            {
                                "attributes": [
                                    {
                                        "key": "raw",
                                        "value": {
                                            "bytesValue": base64.b64encode(b"\0\xff").decode()
                                        },
                                    }
                                ]
                            }
                        ]
                    }
                ]
            }
        ]
    }
    made = ExportTraceServiceRequest.FromString(
        otlp_json.to_protobuf("traces", json.dumps(document).encode())
    )
    assert (
        made.resource_spans[0].scope_spans[0].spans[0].attributes[0].value.bytes_value == b"\0\xff"
    )


@pytest.mark.parametrize("depth", [1, 40, 45])
def test_json_may_be_nested_as_deeply_as_protobuf(depth: int) -> None:
    value: dict[str, Any] = {"stringValue": "x"}
    for _ in range(depth):
        value = {"arrayValue": {"values": [value]}}
    document = {
        "resourceSpans": [
            {"scopeSpans": [{"spans": [{"attributes": [{"key": "a", "value": value}]}]}]}
        ]
    }
    found = ExportTraceServiceRequest.FromString(
        otlp_json.to_protobuf("traces", json.dumps(document).encode())
    )
    inner = found.resource_spans[0].scope_spans[0].spans[0].attributes[0].value
    for _ in range(depth):
        inner = inner.array_value.values[0]
    assert inner.string_value == "x"


@pytest.mark.parametrize(
    "trace", ["xyz", "0af7651916cd43dd8448eb211c80319", "0x0af7651916cd43dd8448eb211c80319c"]
)
def test_an_id_that_is_not_hex_is_refused(trace: str) -> None:
    with pytest.raises(BadPayload, match="OTLP/JSON"):
        otlp_json.to_protobuf(
            "traces",
            json.dumps(
                {"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": trace}]}]}]}
            ).encode(),
        )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["resourceSpans", "scopeSpans", "spans", "traceId", "key", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(json_values, st.sampled_from(["traces", "metrics", "logs"]))
def test_any_json_is_read_or_refused(value: Any, signal: str) -> None:
    try:
        otlp_json.to_protobuf(signal, json.dumps(value).encode())
    except BadPayload as error:
        assert len(str(error)) < 500


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=64), st.sampled_from(["traces", "metrics", "logs"]))
def test_any_bytes_are_read_or_refused(content: bytes, signal: str) -> None:
    try:
        otlp_json.to_protobuf(signal, content)
    except BadPayload as error:
        assert len(str(error)) < 500


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30), st.integers(0, 2**64 - 1), st.binary(min_size=16, max_size=16))
def test_texts_times_and_ids_survive(name: str, time_ns: int, trace: bytes) -> None:
    one = span(1, 1, name=name)
    one.start_time_unix_nano, one.trace_id = time_ns, trace
    sent = request([one])
    assert (
        ExportTraceServiceRequest.FromString(
            otlp_json.to_protobuf("traces", as_otlp_json(sent, snake=False, numbers=False))
        )
        == sent
    )
