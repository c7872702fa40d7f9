"""OTLP over HTTP: what a sender is answered, for good bodies, bad ones, and ones that must wait."""

import contextlib
import functools
import gzip
import json
import logging
import socket
import threading
import types
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
import zstandard
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.common.http import Compression as JsonCompression
from opentelemetry.exporter.otlp.json.http.trace_exporter import (
    OTLPSpanExporter as JsonSpanExporter,
)
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from overrun.collector.receive import http_protocol
from tests.collector.conftest import (
    JSON,
    PROTOBUF,
    T0_NS,
    Collector,
    attributes,
    body,
    held,
    plain_body,
    request,
    span,
    trace_id,
)
from tests.waiting import LIMIT_S, until

MIB = 1 << 20


def stored(collector: Collector, trace: int) -> int:
    """How many rows the base table has for a trace."""
    high, low = divmod(int.from_bytes(trace_id(trace), "big"), 1 << 64)
    return int(
        collector.rows(f"select count(*) from spans where trace_hi = {high} and trace_lo = {low}")[
            0
        ][0]
    )


# --- good bodies ---


def test_a_protobuf_body_is_answered_200_in_protobuf_after_it_is_stored(
    collector: Collector,
) -> None:
    answer = collector.post("traces", body([span(1_001, 1), span(1_001, 2, 1)]))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-protobuf")
    assert ExportTraceServiceResponse.FromString(answer.content) == ExportTraceServiceResponse()
    assert stored(collector, 1_001) == 2


def bare_deflate(data: bytes, level: int = -1) -> bytes:
    stream = zlib.compressobj(level, wbits=-zlib.MAX_WBITS)
    return stream.compress(data) + stream.flush()


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "deflate": zlib.compress,
    "Deflate": bare_deflate,
    "x-deflate": functools.partial(bare_deflate, level=0),
    "identity": bytes,
    "GZIP": lambda data: (
        gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :])
    ),
}


@pytest.mark.parametrize("encoding", COMPRESSED)
def test_a_compressed_body_is_stored_like_a_plain_one(collector: Collector, encoding: str) -> None:
    trace = 1_100 + list(COMPRESSED).index(encoding)
    answer = collector.post(
        "traces", COMPRESSED[encoding](body([span(trace, 1)])), content_encoding=encoding
    )
    assert answer.status_code == 200, answer.text
    assert stored(collector, trace) == 1


def test_a_content_type_may_carry_parameters_and_capitals(collector: Collector) -> None:
    assert (
        collector.post(
            "traces", plain_body(), content_type="Application/X-Protobuf; charset=utf-8"
        ).status_code
        == 200
    )
    assert (
        collector.post("traces", b"{}", content_type="application/json;charset=UTF-8").status_code
        == 200
    )


@pytest.mark.parametrize("signal", ["traces", "metrics", "logs"])
def test_an_empty_body_is_a_success_with_nothing_in_it(collector: Collector, signal: str) -> None:
    answer = collector.post(signal, b"")
    assert (answer.status_code, answer.content) == (200, b"")


def test_unknown_fields_of_a_newer_protocol_are_ignored(collector: Collector) -> None:
    newer = body([span(1_200, 1)]) + b"\xfa\x3f\x03new"  # field 127, length-delimited
    assert collector.post("traces", newer).status_code == 200
    document = {
        "resourceSpans": [
            {
                "scopeSpans": [{"spans": [{**json_span(1_201), "fieldOfTheFuture": {"a": 1}}]}],
                "newThing": [],
            }
        ],
        "other": 1,
    }
    assert collector.post("traces", json.dumps(document).encode(), **JSON_HEADER).status_code == 200
    assert (stored(collector, 1_200), stored(collector, 1_201)) == (1, 1)


# --- JSON ---

JSON_HEADER = {"content_type": JSON["content-type"]}


def json_span(trace: int, **more: Any) -> dict[str, Any]:
    return {
        "traceId": trace_id(trace).hex(),
        "spanId": "00000000000000a1",
        "name": "work",
        "kind": 2,
        "startTimeUnixNano": "1790000000000000000",
        "endTimeUnixNano": "1790000000250000000",
        **more,
    }


def test_json_ids_are_hex_and_times_may_be_texts_or_numbers(collector: Collector) -> None:
    spans = [
        json_span(1_300),
        json_span(
            1_301,
            startTimeUnixNano=1790000000000000000,
            endTimeUnixNano=1790000000250000000,
            parentSpanId="00000000000000b2",
        ),
    ]
    answer = collector.post(
        "traces",
        json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode(),
        **JSON_HEADER,
    )
    assert (answer.status_code, answer.headers["content-type"], answer.json()) == (
        200,
        "application/json",
        {},
    )
    found = collector.rows(
        f"select span_id, parent_span_id, kind, duration_ms from v_spans where trace_id = '{trace_id(1_301).hex()}'"
    )
    assert found == [("00000000000000a1", "00000000000000b2", "server", 250.0)]
    assert stored(collector, 1_300) == 1


def test_json_in_snake_case_is_understood_too(collector: Collector) -> None:
    snake = {
        "trace_id": trace_id(1_310).hex().upper(),
        "span_id": "00000000000000a1",
        "start_time_unix_nano": "1790000000000000000",
        "end_time_unix_nano": "1790000000250000000",
        "name": "work",
        "kind": "SPAN_KIND_CLIENT",
        "attributes": [{"key": "gen_ai.usage.input_tokens", "value": {"int_value": "12"}}],
    }
    answer = collector.post(
        "traces",
        json.dumps({"resource_spans": [{"scope_spans": [{"spans": [snake]}]}]}).encode(),
        **JSON_HEADER,
    )
    assert answer.status_code == 200, answer.text
    assert collector.rows(
        f"select kind, input_tokens from v_spans where trace_id = '{trace_id(1_310).hex()}'"
    ) == [("client", 12)]


def test_an_attribute_named_like_an_id_keeps_its_text(collector: Collector) -> None:
    attribute = {"key": "traceId", "value": {"stringValue": "not hex"}}
    nested = {"key": "nested", "value": {"kvlistValue": {"values": [attribute]}}}
    document = {
        "resourceSpans": [
            {"scopeSpans": [{"spans": [json_span(1_320, attributes=[attribute, nested])]}]}
        ]
    }
    assert collector.post("traces", json.dumps(document).encode(), **JSON_HEADER).status_code == 200
    assert collector.rows(
        f"select attributes['traceId'] from v_spans where trace_id = '{trace_id(1_320).hex()}'"
    ) == [("not hex",)]


def test_a_large_json_body_takes_the_same_road(collector: Collector) -> None:
    spans = [json_span(1_330, spanId=f"{i:016x}") for i in range(1, 401)]
    content = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
    assert len(content) > 16_384
    assert collector.post("traces", content, **JSON_HEADER).status_code == 200
    assert stored(collector, 1_330) == 400


def test_the_same_request_in_json_and_protobuf_is_one_body(collector: Collector) -> None:
    sent = request([span(1_340, 1)])
    assert collector.post("traces", sent.SerializeToString()).status_code == 200
    document = {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]
                },
                "scopeSpans": [
                    {
                        "scope": {"name": "test"},
                        "spans": [
                            {
                                "traceId": trace_id(1_340).hex(),
                                "spanId": "0000000000000001",
                                "name": "work",
                                "kind": 1,
                                "startTimeUnixNano": "1790000000000000000",
                                "endTimeUnixNano": "1790000000010000000",
                            }
                        ],
                    }
                ],
            }
        ]
    }
    assert collector.post("traces", json.dumps(document).encode(), **JSON_HEADER).status_code == 200
    assert stored(collector, 1_340) == 1


# --- partial success ---


def test_spans_with_invalid_ids_are_refused_and_their_neighbours_stored(
    collector: Collector,
) -> None:
    wrong = [span(1_400, 2), span(1_400, 3), span(1_400, 4), span(1_400, 5)]
    wrong[0].trace_id, wrong[1].span_id, wrong[2].trace_id, wrong[3].span_id = (
        b"short",
        b"",
        bytes(16),
        bytes(8),
    )
    answer = collector.post("traces", body([span(1_400, 1), *wrong]))
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (answer.status_code, partial.rejected_spans) == (200, 4)
    assert "trace id or span id" in partial.error_message
    assert stored(collector, 1_400) == 1


def test_a_partial_success_in_json_counts_as_text(collector: Collector) -> None:
    document = {
        "resourceSpans": [
            {"scopeSpans": [{"spans": [json_span(1_410), json_span(1_411, spanId="")]}]}
        ]
    }
    answer = collector.post("traces", json.dumps(document).encode(), **JSON_HEADER)
    assert (
        answer.json()["partialSuccess"]["rejectedSpans"] == "1"
    )  # OTLP/JSON: 64-bit integers are texts


def test_metric_points_without_a_value_are_refused_and_counted(collector: Collector) -> None:
    sent = ExportMetricsServiceRequest()
    metric = (
        sent.resource_metrics.add()
        .scope_metrics.add()
        .metrics.add(name="vllm:num_requests_running")
    )
    metric.gauge.data_points.add(time_unix_nano=T0_NS, as_double=2.0)
    metric.gauge.data_points.add(time_unix_nano=2)
    answer = collector.post(
        "metrics", sent.SerializeToString(), content_type="application/x-protobuf"
    )
    assert b"data points" in answer.content
    assert collector.rows(
        "select count(*) from points where name = 'vllm:num_requests_running'"
    ) == [(1,)]


def test_log_records_that_are_calls_become_spans(collector: Collector) -> None:
    logs = ExportLogsServiceRequest()
    records = logs.resource_logs.add().scope_logs.add().log_records
    records.add().body.string_value = "first"
    call = records.add(time_unix_nano=T0_NS + 5 * 10**9)
    for key, value in (("model", "event-model"), ("duration_ms", "5000"), ("output_tokens", "7")):
        call.attributes.add(key=key).value.string_value = value
    answer = collector.post("logs", logs.SerializeToString())
    partial = ExportLogsServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_log_records == 1
    assert collector.rows(
        "select epoch_ns(start), output_tokens from v_spans where model = 'event-model'"
    ) == [(T0_NS, 7)]


@pytest.mark.parametrize("form", ["protobuf", "json"])
def test_logs_are_answered_counted_and_never_stored(collector: Collector, form: str) -> None:
    if form == "protobuf":
        logs = ExportLogsServiceRequest()
        records = logs.resource_logs.add().scope_logs.add().log_records
        records.add().body.string_value = "first"
        records.add().body.string_value = "second"
        answer = collector.post("logs", logs.SerializeToString())
        partial = ExportLogsServiceResponse.FromString(answer.content).partial_success
        assert (partial.rejected_log_records, "not stored" in partial.error_message) == (2, True)
    else:
        records = [
            {
                "body": {"stringValue": "first"},
                "traceId": trace_id(1).hex(),
                "spanId": "00000000000000a1",
            }
        ]
        answer = collector.post(
            "logs",
            json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}).encode(),
            **JSON_HEADER,
        )
        assert answer.json()["partialSuccess"]["rejectedLogRecords"] == "1"
    assert answer.status_code == 200


# --- refusals for good ---


def status_of(answer: httpx.Response) -> tuple[int, str]:
    """(code, message) of the google.rpc.Status in an answer, in whichever encoding it came."""
    if answer.headers["content-type"] == "application/json":
        return int(answer.json()["code"]), str(answer.json()["message"])
    status = Status.FromString(answer.content)
    return status.code, status.message


BROKEN_PROTOBUF = [b"\xff\xff\xff", b"\x0a\x05abc", b"not protobuf at all", body([span(1, 1)])[:-3]]
BROKEN_JSON = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b"\xff\xfe",
    b'{"resourceSpans": {}}',
    b'{"resourceSpans": [1]}',
    b'{"resourceSpans": "x"}',
    b"[" * 5_000,
    b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"xyz"}]}]}]}',
    b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"startTimeUnixNano":"soon"}]}]}]}',
    b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":7}]}]}]}',
    b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":5}]}]}]}',
    b'{"a":' * 3_000 + b"1" + b"}" * 3_000,
]


@pytest.mark.parametrize("signal", ["traces", "metrics", "logs"])
@pytest.mark.parametrize("content", BROKEN_PROTOBUF)
def test_malformed_protobuf_is_400_with_a_status_in_protobuf(
    collector: Collector, signal: str, content: bytes
) -> None:
    answer = collector.post(signal, content)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/x-protobuf")
    code, message = status_of(answer)
    assert (code, "protobuf" in message, len(message) < 500) == (3, True, True)
    assert "retry-after" not in answer.headers


@pytest.mark.parametrize(
    "content", BROKEN_JSON[1:], ids=lambda content: content[:40].decode(errors="replace")
)
def test_malformed_json_is_400_with_a_status_in_json(collector: Collector, content: bytes) -> None:
    answer = collector.post("traces", content, **JSON_HEADER)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/json"), (
        answer.text
    )
    assert status_of(answer)[0] == 3


def test_deep_nesting_of_what_nobody_knows_ends_neither_thread_nor_answer(
    collector: Collector,
) -> None:
    deep: Any = {"stringValue": "leaf"}
    for _ in range(40):
        deep = {"arrayValue": {"values": [deep]}}
    document = {
        "resourceSpans": [
            {
                "scopeSpans": [
                    {"spans": [json_span(1_500, attributes=[{"key": "deep", "value": deep}])]}
                ]
            }
        ]
    }
    assert collector.post("traces", json.dumps(document).encode(), **JSON_HEADER).status_code in (
        200,
        400,
    )
    assert collector.post("traces", plain_body()).status_code == 200


def test_invalid_utf8_in_a_text_is_400(collector: Collector) -> None:
    content = body([span(1_510, 1, name="placeholder")]).replace(
        b"placeholder", b"\xff\xfe\xff\xfe\xff\xfe\xff\xfe\xff\xfe\xff"
    )
    assert collector.post("traces", content).status_code == 400


CUT = gzip.compress(plain_body(200))


@pytest.mark.parametrize(
    ("encoding", "content"),
    [
        ("gzip", b"no gzip"),
        ("gzip", CUT[: len(CUT) // 2]),
        ("gzip", b""),
        ("gzip", CUT[:-4]),
        ("deflate", b"no deflate"),
        ("deflate", b""),
        ("deflate", zlib.compress(plain_body(200))[:-9]),
        ("deflate", bare_deflate(plain_body(200))[:-9]),
        ("zstd", b"no zstd at all"),
        ("zstd", zstandard.ZstdCompressor().compress(plain_body(200))[:-9]),
        ("gzip", CUT[:-8] + b"\0\0\0\0" + CUT[-4:]),
    ],
)
def test_a_broken_or_truncated_compressed_body_is_400(
    collector: Collector, encoding: str, content: bytes
) -> None:
    before = collector.rows("select count(*) from bodies")
    answer = collector.post("traces", content, content_encoding=encoding)
    assert answer.status_code == 400, answer.content
    assert status_of(answer)[0] == 3
    assert collector.rows("select count(*) from bodies") == before


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "deflate", "Deflate"])
def test_a_decompression_bomb_is_413(collector: Collector, encoding: str) -> None:
    bomb = COMPRESSED[encoding](bytes(64 * MIB))
    assert len(bomb) < MIB // 4
    answer = collector.post("traces", bomb, content_encoding=encoding)
    assert answer.status_code == 413
    assert "decompresses to more than" in status_of(answer)[1]


def test_a_bomb_of_many_gzip_members_is_413(collector: Collector) -> None:
    assert (
        collector.post(
            "traces", gzip.compress(bytes(100_000)) * 100, content_encoding="gzip"
        ).status_code
        == 413
    )


def test_a_body_over_the_limit_is_413_whether_declared_or_chunked(collector: Collector) -> None:
    content = bytes(MIB + 1)
    assert collector.post("traces", content).status_code == 413
    chunked = httpx.post(
        f"{collector.http}/v1/traces",
        content=iter([content]),
        headers={"content-type": "application/x-protobuf"},
        trust_env=False,
        verify=False,
    )
    assert (chunked.status_code, "more than" in status_of(chunked)[1]) == (413, True)


def test_a_declared_length_over_the_limit_is_refused_before_the_body_comes(
    collector: Collector,
) -> None:
    host, port = collector.http.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=LIMIT_S) as connection:
        connection.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: 99999999999\r\n\r\n"
        )
        assert connection.recv(1000).startswith(b"HTTP/1.1 413")


def test_a_sender_that_hangs_up_in_the_middle_of_a_body_stores_nothing(
    collector: Collector,
) -> None:
    host, port = collector.http.removeprefix("http://").split(":")
    content = body([span(1_520, 1)])
    with socket.create_connection((host, int(port)), timeout=LIMIT_S) as connection:
        connection.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: %d\r\n\r\n"
            % (len(content) + 1)
            + content
        )
    assert collector.post("traces", plain_body()).status_code == 200
    assert stored(collector, 1_520) == 0


@pytest.mark.parametrize(
    "media",
    [
        "text/plain",
        "application/xml",
        "",
        "application/x-protobuf-delimited",
        "multipart/form-data; boundary=x",
    ],
)
def test_another_content_type_is_415_and_names_the_known_ones(
    collector: Collector, media: str
) -> None:
    answer = collector.post("traces", plain_body(), content_type=media)
    assert answer.status_code == 415
    assert "application/x-protobuf" in status_of(answer)[1]
    assert "application/json" in status_of(answer)[1]


def test_another_content_encoding_is_415(collector: Collector) -> None:
    answer = collector.post("traces", plain_body(), content_encoding="br")
    assert (answer.status_code, "'br'" in status_of(answer)[1]) == (415, True)


def test_langfuses_sdks_send_below_a_path_of_their_own(collector: Collector) -> None:
    answer = httpx.post(
        f"{collector.http}/api/public/otel/v1/traces",
        content=plain_body(),
        headers=PROTOBUF,
        trust_env=False,
        verify=False,
    )
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("form", [PROTOBUF, JSON])
def test_another_path_is_404_and_another_method_405_in_the_encoding_of_the_request(
    collector: Collector, form: dict[str, str]
) -> None:
    for path in ("profiles", "traces/", "traces/v1/traces", ""):
        answer = collector.post(path, b"", content_type=form["content-type"])
        assert (answer.status_code, answer.headers["content-type"]) == (404, form["content-type"])
        assert "/v1/traces" in status_of(answer)[1]
    for method in ("GET", "PUT", "DELETE", "OPTIONS", "HEAD"):
        answer = httpx.request(
            method, f"{collector.http}/v1/traces", headers=form, trust_env=False, verify=False
        )
        assert (answer.status_code, answer.headers["allow"], answer.headers["content-type"]) == (
            405,
            "POST",
            form["content-type"],
        )
        assert method == "HEAD" or "use POST" in status_of(answer)[1]


@pytest.mark.parametrize("path", ["/", "/traces", "//v1/traces", "/v1development/profiles"])
def test_a_sender_whose_endpoint_lacks_the_path_hears_it_in_its_encoding(
    collector: Collector, path: str
) -> None:
    for form in (PROTOBUF, JSON):
        answer = httpx.post(
            f"{collector.http}{path}", content=b"", headers=form, trust_env=False, verify=False
        )
        assert (answer.status_code, answer.headers["content-type"]) == (404, form["content-type"])
        assert "/v1/traces" in status_of(answer)[1]
    assert httpx.get(f"{collector.http}{path}", trust_env=False, verify=False).text == "Not Found"


@pytest.mark.parametrize("nested", [["aXb"], {"k": "aXb"}, {"aXb": 1}, [[{"k": ["aXb"]}]]], ids=str)
@pytest.mark.parametrize("where", ["span", "event", "link", "resource"])
def test_invalid_utf8_deep_inside_a_value_is_400_too(
    collector: Collector, nested: Any, where: str
) -> None:
    held = request(
        [span(1_511, 1)],
        {"service.name": "shop"} | ({"deep": nested} if where == "resource" else {}),
    )
    made = held.resource_spans[0].scope_spans[0].spans[0]
    if where != "resource":
        holder = {
            "span": made,
            "event": made.events.add() if where == "event" else made,
            "link": made.links.add() if where == "link" else made,
        }[where]
        holder.attributes.extend(attributes({"deep": nested}))
    answer = collector.post("traces", held.SerializeToString().replace(b"aXb", b"a\xffb"))
    assert (answer.status_code, "UTF-8" in status_of(answer)[1]) == (400, True)
    assert stored(collector, 1_511) == 0


def test_every_refusal_is_counted_with_its_reason(collector: Collector) -> None:
    def counted(**labels: str) -> int:
        return collector.writer.tally.value("refused_requests", protocol="http", **labels)

    asked = [
        ("traces", b"\xff", {}, "bad_payload"),
        ("metrics", b"\xff", {}, "bad_payload"),
        ("logs", b"\xff", {}, "bad_payload"),
        ("traces", b"{", JSON_HEADER, "bad_payload"),
        ("traces", b"x", {"content_encoding": "gzip"}, "bad_payload"),
        ("traces", b"", {"content_type": "text/plain"}, "unsupported_media"),
        ("traces", b"x" * (MIB + 1), {}, "too_large"),
    ]
    for signal, content, headers, reason in asked:
        before = counted(signal=signal, reason=reason)
        collector.post(signal, content, **headers)
        assert counted(signal=signal, reason=reason) == before + 1
    before = counted(reason="no_such_path")
    collector.post("profiles", b"")
    assert counted(reason="no_such_path", signal="none") == before + 1


# --- slow senders ---


def open_to(collector: Collector) -> socket.socket:
    host, port = collector.http.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=LIMIT_S)


def everything(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    out = b""
    while piece := connection.recv(4_096):
        out += piece
    return out


def test_a_body_that_does_not_come_is_408_and_the_connection_is_closed(
    start_collector: Callable[..., Collector],
) -> None:
    collector = start_collector(body_timeout_s=0.2)
    with open_to(collector) as connection:
        connection.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: 9\r\n\r\nabc"
        )
        assert everything(connection).startswith(b"HTTP/1.1 408")
    assert collector.writer.tally.value("refused_requests", reason="too_slow") == 1
    # On a busy machine a sender may be too slow, too.
    until(lambda: collector.post("traces", plain_body()).status_code == 200)


def test_a_head_that_does_not_end_is_closed_by_its_time_or_its_size(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_to(collector) as connection:
        connection.sendall(b"POST /v1/traces HTTP/1.1\r\nX-Long: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                connection.sendall(b"a" * 8_192)
            assert everything(connection).startswith(b"HTTP/1.1 431")
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT_S", 0.2)
    for begun in (
        b"",
        b"POST /v1/traces HTTP/1.1\r\nX-Slow: ",
        b"GET /v1/traces HTTP/1.1\r\n\r\nPOST /v1",
    ):
        with open_to(collector) as connection:
            connection.sendall(begun)
            assert b"HTTP/1.1 408" in everything(connection)
    until(lambda: collector.post("traces", plain_body()).status_code == 200)


def test_trailers_of_a_body_are_no_headers(collector: Collector) -> None:
    gzipped = b"content-encoding: gzip\r\nhost: evil.example\r\n\r\n"
    content = plain_body()
    with open_to(collector) as connection:
        connection.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\nConnection: close\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n"
            % (len(content), content)
            + gzipped
        )
        assert everything(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("endless", "piece"),
    [
        (b"0\r\nX-Trailer: ", b"a" * 8_192),
        (b"0\r\nX-Trailer: ", b"a" * 100 + b"\r\nX-More: " + b"b" * 100),
        (b"5;extension=", b"a" * 8_192),
    ],
)
def test_what_comes_without_end_around_a_body_is_refused(
    collector: Collector, endless: bytes, piece: bytes
) -> None:
    with open_to(collector) as connection:
        connection.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n" + endless
        )
        with contextlib.suppress(ConnectionError):
            for _ in range(4_000):
                connection.sendall(piece)
            assert everything(connection).startswith(b"HTTP/1.1 431")
    assert collector.post("traces", plain_body()).status_code == 200


def test_the_body_of_a_refused_request_stays_with_its_sender_until_the_answer(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    connections: set[http_protocol.GuardedProtocol] = set()
    on_body = http_protocol.GuardedProtocol.on_body

    def noted(self: http_protocol.GuardedProtocol, body: bytes) -> None:
        on_body(self, body)
        connections.add(self)
        held.append(len(self.cycle.body))

    def nothing_held() -> bool:
        return all(not c.cycle.body and c.get_buffer(-1).nbytes <= 16_384 for c in connections)

    monkeypatch.setattr(http_protocol.GuardedProtocol, "on_body", noted)
    large = b"x" * 900_000
    with open_to(collector) as connection:
        for _ in range(2):
            connection.sendall(
                b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n"
                % len(large)
                + large
            )
            answer = b""
            while not answer.endswith(b"}"):
                answer += connection.recv(16_384)
            assert answer.startswith(b"HTTP/1.1 415")
            until(nothing_held)  # the answer may be heard before the rest has been thrown away
        assert 0 < max(held) <= 16_384
        assert len(connections) == 1
    assert (
        collector.post("traces", large).status_code == 200
    )  # whoever is not refused from the head on is read whole
    assert max(held) > 16_384


def test_event_loops_of_one_process_do_not_read_into_the_same_place() -> None:
    read = http_protocol.GuardedProtocol.get_buffer
    connection = types.SimpleNamespace(_in_body=True)
    here = read(connection, -1)  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as other:
        there = other.submit(read, connection, -1).result()  # type: ignore[arg-type]
    assert read(connection, -1) is here  # type: ignore[arg-type]
    assert there.obj is not here.obj


def test_bodies_that_arrive_at_once_are_bounded_together(
    start_collector: Callable[..., Collector],
) -> None:
    collector = start_collector(queue_mib=1, max_body_mib=2)
    with open_to(collector) as slow:
        slow.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: 1100000\r\n\r\n"
            + b"x" * 1_000_000
        )
        # Of two that arrive together either may be asked to come again.
        until(lambda: collector.writer.admission.bytes >= 1_000_000)
        answer = collector.post("traces", b"x" * 200_000)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "arriving" in status_of(answer)[1]
    until(lambda: not collector.writer.admission.bytes)
    assert collector.post("traces", b"x" * 200_000).status_code == 200


# --- browsers ---


def test_no_page_may_send_unless_its_origin_is_listed(
    collector: Collector, start_collector: Callable[..., Collector]
) -> None:
    page, other = "https://app.example.com", "https://evil.example"
    asks = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
    }

    def preflight(to: Collector, origin: str) -> httpx.Response:
        return httpx.options(
            f"{to.http}/v1/traces",
            headers={"origin": origin, **asks},
            trust_env=False,
            verify=False,
        )

    closed = [preflight(collector, page), collector.post("traces", plain_body(), origin=page)]
    assert [a.status_code for a in closed] == [405, 200]
    assert not any(name.startswith("access-control") for a in closed for name in a.headers)
    open_ = start_collector(cors_origins=(page,))
    answers = [
        preflight(open_, page),
        open_.post("traces", plain_body(), origin=page),
        open_.post("traces", b"\xff", origin=page),
    ]
    for answer, status in zip(answers, (204, 200, 400), strict=True):
        assert (
            answer.status_code,
            answer.headers["access-control-allow-origin"],
            answer.headers["vary"],
        ) == (status, page, "origin")
    assert "content-type" in preflight(open_, page).headers["access-control-allow-headers"]
    refused = [preflight(open_, other), open_.post("traces", plain_body(), origin=other)]
    assert not any(name.startswith("access-control") for a in refused for name in a.headers)


# --- come again ---


def test_a_full_queue_is_503_with_retry_after_in_header_and_status(
    start_collector: Callable[..., Collector],
) -> None:
    collector = start_collector(queue_mib=1, max_body_mib=2)
    large = body([span(1, i, name="n" * 200) for i in range(1, 5_000)])
    assert len(large) > MIB
    with ThreadPoolExecutor() as pool:
        with held(collector.writer):
            first = pool.submit(
                collector.post, "traces", large
            )  # alone, a body larger than the queue is taken
            until(lambda: collector.writer.waiting_bytes)
            refused = collector.post("traces", plain_body())
            as_json = collector.post(
                "traces",
                json.dumps(
                    {"resourceSpans": [{"scopeSpans": [{"spans": [json_span(9)]}]}]}
                ).encode(),
                **JSON_HEADER,
            )
            assert not first.done()
        assert first.result(LIMIT_S).status_code == 200
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    status = Status.FromString(refused.content)
    info = RetryInfo()
    assert status.details[0].Unpack(info)
    assert (status.code, info.retry_delay.seconds) == (8, 1)
    assert (as_json.status_code, as_json.json()["details"][0]["retryDelay"]) == (503, "1s")
    assert collector.writer.counters.refused_bodies == 2
    assert collector.post("traces", plain_body()).status_code == 200


def test_a_full_queue_refuses_from_the_head_on_and_the_connection_goes_on(
    start_collector: Callable[..., Collector],
) -> None:
    collector = start_collector(queue_mib=1, max_body_mib=2)
    waiting = body([span(1, i, name="n" * 200) for i in range(1, 5_000)])
    content = plain_body()
    head = (
        b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: %d\r\n\r\n"
        % len(content)
    )
    with ThreadPoolExecutor() as pool, open_to(collector) as connection:
        with held(collector.writer):
            first = pool.submit(collector.post, "traces", waiting)
            until(lambda: collector.writer.waiting_bytes)
            connection.sendall(head + content[:1])
            refusal = answered(connection)  # nothing more of the body has been sent
            assert (refusal.status, refusal.headers["retry-after"]) == (503, "1")
        assert first.result(LIMIT_S).status_code == 200
        connection.sendall(content[1:] + head + content)
        assert answered(connection).status == 200


def answered(connection: socket.socket) -> HTTPResponse:
    """The next answer on the connection, read to its end."""
    answer = HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer


def test_a_store_that_refuses_is_503_and_the_body_can_be_sent_again(
    start_collector: Callable[..., Collector],
) -> None:
    collector = start_collector()
    content = body([span(1, 1)])
    collector.writer.call(
        lambda connection: connection.execute("alter table spans rename to away")
    ).result()
    answer = collector.post("traces", content)
    assert (
        answer.status_code,
        answer.headers["retry-after"],
        Status.FromString(answer.content).code,
    ) == (503, "5", 14)
    collector.writer.call(
        lambda connection: connection.execute("alter table away rename to spans")
    ).result()
    assert collector.post("traces", content).status_code == 200
    assert stored(collector, 1) == 1


# --- real senders ---


def export(exporter: SpanExporter, spans: int, service: str) -> None:
    provider = TracerProvider(resource=Resource({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("real.sender")
    for i in range(spans):
        with (
            tracer.start_as_current_span("POST /chat") as outer,
            tracer.start_as_current_span("chat m") as inner,
        ):
            outer.set_attribute("number", i)
            inner.set_attribute("gen_ai.operation.name", "chat")
    assert provider.force_flush()
    provider.shutdown()


@pytest.mark.parametrize(
    "compression", [Compression.NoCompression, Compression.Gzip, Compression.Deflate]
)
def test_the_opentelemetry_sdk_delivers_over_http(
    collector: Collector, compression: Compression
) -> None:
    service = f"sdk-{compression.value}"
    export(
        OTLPSpanExporter(endpoint=f"{collector.http}/v1/traces", compression=compression),
        20,
        service,
    )
    assert collector.rows(
        f"select count(*), count(distinct trace_id) from v_spans where service = '{service}'"
    ) == [(40, 20)]


@pytest.mark.parametrize("compression", [None, JsonCompression.GZIP])
def test_the_opentelemetry_sdk_delivers_as_json(
    collector: Collector, compression: JsonCompression | None
) -> None:
    service = f"json-{compression}"
    export(
        JsonSpanExporter(endpoint=f"{collector.http}/v1/traces", compression=compression),
        20,
        service,
    )
    assert collector.rows(
        f"select count(*), count(distinct trace_id) from v_spans where service = '{service}'"
    ) == [(40, 20)]
    assert collector.rows(
        f"select distinct operation from v_spans where service = '{service}' and operation is not null"
    ) == [("chat",)]


@contextmanager
def flaky(target: str, refusals: int) -> Iterator[tuple[str, list[int]]]:
    """A relay that answers 503 with Retry-After some times before it passes bodies on: the far side of the network on a bad day."""
    answered: list[int] = []

    class Relay(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["content-length"]))
            if len(answered) < refusals:
                answered.append(503)
                self.send_response(503)
                self.send_header("retry-after", "0")
                self.send_header("content-length", "0")
                self.end_headers()
                return
            answer = httpx.post(
                target,
                content=content,
                headers={"content-type": self.headers["content-type"]},
                trust_env=False,
                verify=False,
            )
            answered.append(answer.status_code)
            self.send_response(answer.status_code)
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Relay)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", answered
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_sdk_that_was_told_503_comes_again_and_is_counted_once(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    with flaky(f"{collector.http}/v1/traces", refusals=1) as (url, answered):
        export(OTLPSpanExporter(endpoint=url), 5, "patient")
    assert answered == [503, 200]
    assert collector.rows(
        "select count(*) from stored_spans join sources using (source_id) where service = 'patient'"
    ) == [(10,)]


def test_an_sdk_waits_out_a_full_queue_of_ours(
    start_collector: Callable[..., Collector], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    collector = start_collector(queue_mib=1, max_body_mib=2)
    large = body([span(1, i, name="n" * 200) for i in range(1, 5_000)])
    with ThreadPoolExecutor() as pool:
        with held(collector.writer):
            first = pool.submit(collector.post, "traces", large)
            until(lambda: collector.writer.waiting_bytes)
            sending = pool.submit(
                export, OTLPSpanExporter(endpoint=f"{collector.http}/v1/traces"), 3, "queued"
            )
            until(lambda: collector.writer.counters.refused_bodies)
        sending.result(LIMIT_S)
        first.result(LIMIT_S)
    assert collector.rows("select count(*) from v_spans where service = 'queued'") == [(6,)]
