"""Rows of `otel_traces`, the table of the Collector's ClickHouse exporter, as `FORMAT JSONEachRow` or `FORMAT JSON` writes them.

Source: opentelemetry-collector-contrib exporter/clickhouseexporter: columns in capitals, durations in ns as numbers or text, lists of events and links as one
array a field.
"""

from __future__ import annotations

from typing import Any

from overrun.collector.sources.exports import otlp


def documents(value: Any) -> list[dict[str, Any]] | None:
    """The request of one row, a list of rows or a whole answer, None if it is none."""
    told = value.get("data") if isinstance(value, dict) and "meta" in value else value
    rows = otlp.listed(told if isinstance(told, list) else [told])
    if not rows or not all(
        {"TraceId", "SpanId", "SpanName", "Duration"} <= row.keys() for row in rows
    ):
        return None
    return otlp.request(_span(row) for row in rows)


def _span(row: dict[str, Any]) -> tuple[dict[str, Any], str, dict[str, Any]]:
    start = otlp.moment_ns(row.get("Timestamp"))
    kind = str(row.get("SpanKind", "")).lower().removeprefix("span_kind_")
    return (
        {"service.name": str(row.get("ServiceName") or ""), **_map(row, "ResourceAttributes")},
        str(row.get("ScopeName") or ""),
        {
            "traceId": otlp.hex_id(row["TraceId"], 32),
            "spanId": otlp.hex_id(row["SpanId"], 16),
            "parentSpanId": otlp.hex_id(row.get("ParentSpanId"), 16),
            "traceState": str(row.get("TraceState") or ""),
            "name": str(row["SpanName"]),
            "kind": otlp.KINDS.get(kind, 0),
            "startTimeUnixNano": start,
            "endTimeUnixNano": start + int(row["Duration"]),
            "attributes": otlp.attributes(_map(row, "SpanAttributes")),
            "status": {"code": otlp.ERROR if "error" in str(row.get("StatusCode")).lower() else 0},
            "events": [
                {"timeUnixNano": otlp.moment_ns(at), "name": str(name)}
                for at, name in zip(
                    _list(row, "Events.Timestamp"), _list(row, "Events.Name"), strict=True
                )
            ],
            "links": [
                {"traceId": otlp.hex_id(trace, 32), "spanId": otlp.hex_id(span, 16)}
                for trace, span in zip(
                    _list(row, "Links.TraceId"), _list(row, "Links.SpanId"), strict=True
                )
            ],
        },
    )


def _map(row: dict[str, Any], key: str) -> dict[str, Any]:
    found = row.get(key)
    return found if isinstance(found, dict) else {}


def _list(row: dict[str, Any], key: str) -> list[Any]:
    found = row.get(key)
    return found if isinstance(found, list) else []
