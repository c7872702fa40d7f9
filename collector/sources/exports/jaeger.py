"""Jaeger's JSON, as its interface downloads it and `/api/traces` answers: traces with `spans` and the `processes` that they name.

Source: Jaeger's UI model (public examples, opiproject/otel#154) and how the Collector's translator reads its tags: `span.kind`, `error`, `otel.status_code`,
`otel.scope.name`, `w3c.tracestate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from overrun.collector.sources.exports import otlp

_STATUS = {"ERROR": otlp.ERROR, "OK": 1}


def documents(value: Any) -> list[dict[str, Any]] | None:
    """The request of one download or answer, None if it is none."""
    told = value.get("data") if isinstance(value, dict) and "data" in value else value
    traces = [
        trace
        for trace in otlp.listed(told if isinstance(told, list) else [told])
        if "spans" in trace
    ]
    if not traces or not any(
        "operationName" in span for trace in traces for span in otlp.listed(trace["spans"])
    ):
        return None
    return otlp.request(spans for trace in traces for spans in _spans(trace))


def _spans(trace: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    processes = trace.get("processes")
    for span in otlp.listed(trace["spans"]):
        named = processes.get(span.get("processID")) if isinstance(processes, dict) else None
        process = named or span.get("process") or {}
        resource = {"service.name": process.get("serviceName", "unknown_service")} | _tags(
            process.get("tags")
        )
        tags = _tags(span.get("tags"))
        kind, status = (
            str(tags.pop("span.kind", "")).lower(),
            str(tags.pop("otel.status_code", "")).upper(),
        )
        failed = str(tags.get("error", "")).lower() == "true"
        scope = str(tags.pop("otel.scope.name", None) or tags.pop("otel.library.name", ""))
        trace_id = otlp.hex_id(span.get("traceID"), 32)
        parent, links = _references(span, trace_id)
        start = otlp.us(span.get("startTime"))
        yield (
            resource,
            scope,
            {
                "traceId": trace_id,
                "spanId": otlp.hex_id(span.get("spanID"), 16),
                "parentSpanId": parent,
                "name": str(span.get("operationName", "")),
                "kind": otlp.KINDS.get(kind, 0),
                "startTimeUnixNano": start,
                "endTimeUnixNano": start + otlp.us(span.get("duration")),
                "traceState": str(tags.pop("w3c.tracestate", "")),
                "attributes": otlp.attributes(tags),
                "links": links,
                "events": [_event(log) for log in otlp.listed(span.get("logs"))],
                "status": {"code": _STATUS.get(status, otlp.ERROR if failed else 0)},
            },
        )


def _references(span: dict[str, Any], trace_id: str) -> tuple[str, list[dict[str, Any]]]:
    """The parent (what a span is a child of comes before what it follows from), and the other spans that it refers to."""
    told = [
        (
            str(reference.get("refType")),
            otlp.hex_id(reference.get("traceID"), 32) or trace_id,
            otlp.hex_id(reference.get("spanID"), 16),
        )
        for reference in otlp.listed(span.get("references"))
    ]
    inside = sorted(
        (reference for reference in told if reference[1] == trace_id),
        key=lambda reference: reference[0] != "CHILD_OF",
    )
    parent = inside[0] if inside else None
    links = [
        {"traceId": reference[1], "spanId": reference[2]}
        for reference in told
        if reference != parent
    ]
    return parent[2] if parent else otlp.hex_id(span.get("parentSpanID"), 16), links


def _event(log: dict[str, Any]) -> dict[str, Any]:
    fields = _tags(log.get("fields"))
    name = next((str(fields.pop(key)) for key in ("event", "name", "message") if key in fields), "")
    return {
        "timeUnixNano": otlp.us(log.get("timestamp")),
        "name": name,
        "attributes": otlp.attributes(fields),
    }


def _tags(told: Any) -> dict[str, Any]:
    return {str(tag.get("key")): tag.get("value") for tag in otlp.listed(told)}
