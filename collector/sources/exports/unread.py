"""What is this file that nothing here reads, and what makes it readable? The first bytes or a JSON document in, a sentence with the remedy out."""

from __future__ import annotations

import re
from typing import Any

_STARTS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"PK\x03\x04", "a zip archive: unzip it and import the folder"),
    (257, b"ustar", "a tar archive: `tar xf` it and import the folder"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it and import the folder"),
    (
        0,
        b"SQLite format 3",
        "an SQLite database, as Phoenix and MLflow keep theirs: export the traces with the tool that wrote it, or send them here",
    ),
    (8, b"DUCK", "a DuckDB database: if Overrun wrote it, name it with --db"),
    (0, b"PAR1", "a Parquet file: name it .parquet if it has one request per row"),
    (0, b"%PDF", "a PDF document"),
    (0, b"\x89PNG", "a picture"),
    (0, b"\xff\xd8\xff", "a picture"),
    (0, b"<!DOCTYPE", "a web page: was it saved from an address that requires a login?"),
    (0, b"<html", "a web page: was it saved from an address that requires a login?"),
    (0, b"<?xml", "an XML document"),
)
# What programs print for people to read.
_TEXTS: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (
        re.compile(
            rb"(?m)^(?:ResourceSpans|ResourceMetrics|ResourceLog) #\d|\tResource(?:Spans|Metrics|Logs?) #\d|^Span #\d"
        ),
        "output of the Collector's debug exporter, for people to read: add a file exporter, `exporters: {file: {path: traces.json}}`, and import its file",
    ),
    (
        re.compile(rb"(?m)^(?:slot +\w+: id|srv +\w+: |prompt eval time =|llama_perf\w*: )"),
        "the log of llama.cpp, which has durations and no times: start its server with --metrics and read its page, "
        "`overrun serve --scrape http://HOST:8080/metrics`",
    ),
    (
        re.compile(
            rb'(?<![:=])(?<![:=] )"POST [^ "]{1,200}/(?:completions|messages|responses|chat|generate)[^ "]{0,80} HTTP/'
        ),
        "an access log without durations, or without their unit: log both (nginx: rt=$request_time, Apache: %{ms}Tms), or "
        "as JSON with duration_ms",
    ),
    (
        re.compile(rb"^\s*\{\s+(?:resource|traceId): [{']"),
        "output of JavaScript's ConsoleSpanExporter, which is no JSON: use OTLPTraceExporter, OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318",
    ),
)
_APM = "what an agent of Elastic APM sends to its server: set OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318 at an OpenTelemetry SDK instead"
# Keys on top of a JSON document -> what it is.
_DOCUMENTS: tuple[tuple[frozenset[str], str], ...] = (
    (
        frozenset({"traceEvents"}),
        "a Chrome or Perfetto trace (as PyTorch's profiler writes): it has no requests",
    ),
    (
        frozenset({"traces", "metrics"}),
        "an answer of Tempo's search, without spans: fetch each trace, `curl http://HOST:3200/api/traces/ID > ID.json`",
    ),
    (
        frozenset({"projectId", "traceId", "spans"}),
        "a trace of Google Cloud Trace: send through the Collector to `overrun serve` as well, before googlecloudexporter",
    ),
    (frozenset({"transaction"}), _APM),
    (
        frozenset({"SpanContext", "StartTime"}),
        "output of Go's stdouttrace exporter: use its otlptrace exporter, OTEL_EXPORTER_OTLP_ENDPOINT=http://HOST:4318",
    ),
)


def of_bytes(head: bytes) -> str:
    """What a file is that begins so (4,000 bytes are enough); "" if that is not known."""
    text = head.lstrip()
    logged = next((what for known, what in _TEXTS if known.search(head)), "")
    return logged or next(
        (
            what
            for at, start, what in _STARTS
            if head[at : at + len(start)] == start
            or (at == 0 and text[: len(start)].lower() == start.lower())
        ),
        "",
    )


def of_document(value: Any) -> str:
    """What a JSON document is; "" if that is not known."""
    first = value[0] if isinstance(value, list) and value else value
    if not isinstance(first, dict):
        return ""
    if isinstance(first.get("log"), dict):
        return "a HAR file of a browser: it has no spans"
    if first.keys() == {"metadata"} and isinstance(first["metadata"], dict):
        return _APM if "service" in first["metadata"] else ""
    listed = first.get("data")
    if isinstance(listed, list) and listed and isinstance(listed[0], dict):
        inner = listed[0].get("attributes")
        if isinstance(inner, dict) and "resource_name" in inner:
            return "spans of Datadog's API: send through the Collector's datadogreceiver to `overrun serve` instead"
    if first.keys() >= {"traceId", "name", "latency"} or first.keys() >= {
        "id",
        "timestamp",
        "totalCost",
    }:
        return "Langfuse's list of traces without their observations: export the observations, or each trace by `/api/public/traces/ID`"
    return next((what for keys, what in _DOCUMENTS if keys <= first.keys()), "")
