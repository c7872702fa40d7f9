"""Protobuf of OTLP before 0.15: field 1000 beside today's 2, of traces and metrics; a sender that wrote both; values that look like the tag."""

from pathlib import Path

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.corpus.otlp import T0_MS

OLD, TODAY = b"\xc2\x3e", b"\x12"


def varint(n: int) -> bytes:
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def message(tag: bytes, content: bytes) -> bytes:
    return tag + varint(len(content)) + content


def trace(n: int) -> tuple[bytes, bytes]:
    """A resource, and a scope with the spans of one request."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "\u00ff\u00c2>old"
    scope = resource.scope_spans.add()
    scope.scope.name = "lib"
    start = (T0_MS + 10_000 * n) * 10**6
    root = scope.spans.add(
        trace_id=bytes([n]) * 16,
        span_id=b"\1" * 8,
        name="POST /chat",
        kind=2,
        start_time_unix_nano=start,
        end_time_unix_nano=start + 2 * 10**9,
    )
    root.attributes.add(key="http.route").value.string_value = "/chat"
    call = scope.spans.add(
        trace_id=bytes([n]) * 16,
        span_id=b"\xc2\x3e" * 4,
        parent_span_id=b"\1" * 8,
        name="chat m",
        kind=3,
        start_time_unix_nano=start + 10**8,
        end_time_unix_nano=start + 19 * 10**8,
    )
    call.attributes.add(key="gen_ai.operation.name").value.string_value = "chat"
    return resource.resource.SerializeToString(), scope.SerializeToString()


def make(folder: Path) -> None:
    old, both = (b"", b"")
    for n in (1, 2, 3):
        resource, scope = trace(n)
        old += message(b"\x0a", message(b"\x0a", resource) + message(OLD, scope))
        both += message(
            b"\x0a", message(b"\x0a", resource) + message(OLD, scope) + message(TODAY, scope)
        )
    (folder / "old.pb").write_bytes(old)
    (folder / "both.pb").write_bytes(both)
    (folder / "framed.proto").write_bytes(len(old).to_bytes(4, "big") + old)
    metrics = ExportMetricsServiceRequest()
    scope = metrics.resource_metrics.add().scope_metrics.add()
    scope.metrics.add(name="vllm:num_requests_running").gauge.data_points.add(
        time_unix_nano=T0_MS * 10**6, as_double=3.0
    )
    (folder / "old.metrics.pb").write_bytes(
        message(b"\x0a", message(OLD, scope.SerializeToString()))
    )
