"""Bodies of OTLP before 0.15 read as today's; every other body stays as it is, byte by byte."""

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from overrun.collector.decode import otlp_spans, otlp_spans_upb
from overrun.collector.decode.old_otlp import modern, modernize
from tests.collector import oracle_otlp as otlp


def _message(tag: bytes, content: bytes) -> bytes:
    size, out = len(content), b""
    while size > 127:
        out, size = out + bytes([size & 127 | 128]), size >> 7
    return tag + out + bytes([size]) + content


@given(otlp.requests())
def test_old_names_of_scopes_decode_as_today(request: ExportTraceServiceRequest) -> None:
    old = b""
    for resource in request.resource_spans:
        scopes = b"".join(
            _message(b"\xc2\x3e", scope.SerializeToString()) for scope in resource.scope_spans
        )
        whole = (
            _message(b"\x0a", resource.resource.SerializeToString())
            if resource.HasField("resource")
            else b""
        )
        old += _message(
            b"\x0a",
            whole
            + scopes
            + (_message(b"\x1a", resource.schema_url.encode()) if resource.schema_url else b""),
        )
    today = request.SerializeToString()
    for decoder in (otlp_spans, otlp_spans_upb):
        assert otlp.plain_columns(decoder.decode_spans([modern(old)])) == otlp.plain_columns(
            decoder.decode_spans([today])
        )
    assert ExportTraceServiceRequest.FromString(modern(today)) == request


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_come_out_with_the_same_length(before: bytes, after: bytes) -> None:
    body = before + b"\xc2\x3e" + after
    assert len(modern(body)) == len(body)
    assert modern(before.replace(b"\xc2", b"")) == before.replace(b"\xc2", b"")


def test_what_is_written_twice_in_json_is_read_once() -> None:
    old, today = (
        {"instrumentationLibrary": {"name": "lib"}, "spans": [{"name": "a"}]},
        {"spans": [{"name": "b"}]},
    )
    document = {
        "resourceSpans": [
            {"instrumentationLibrarySpans": [old], "scopeSpans": [today]},
            {"instrumentationLibrarySpans": [old]},
        ]
    }
    modernize(document)
    assert document["resourceSpans"] == [
        {"scopeSpans": [today]},
        {"scopeSpans": [{"scope": {"name": "lib"}, "spans": [{"name": "a"}]}]},
    ]
    for strange in (
        {"resourceSpans": 5},
        {
            "resourceSpans": [
                5,
                {"instrumentationLibrarySpans": 5},
                {"instrumentationLibrarySpans": [5]},
            ]
        },
    ):
        modernize(strange)
