"""What the Python SDK's ConsoleSpanExporter prints: one indented object a span, one after the other, with times in ISO and ids that begin with 0x.

Source: `ReadableSpan.to_json` of opentelemetry-sdk, which people paste into issues.
"""

from __future__ import annotations

from typing import Any

from overrun.collector.sources.exports import otlp

_STATUS = {"ERROR": otlp.ERROR, "OK": 1}


def documents(value: Any) -> list[dict[str, Any]] | None:
    """The request of one span or a list of them, None if it is none."""
    spans = otlp.listed(value if isinstance(value, list) else [value])
    if not spans or not all(
        isinstance(s.get("context"), dict) and "trace_id" in s["context"] and "start_time" in s
        for s in spans
    ):
        return None
    return otlp.request(_span(span) for span in spans)


def _span(span: dict[str, Any]) -> tuple[dict[str, Any], str, dict[str, Any]]:
    resource = span.get("resource") if isinstance(span.get("resource"), dict) else {}
    status = span["status"].get("status_code") if isinstance(span.get("status"), dict) else None
    return (
        _object(resource, "attributes"),
        "",
        {
            **_context(span),
            "parentSpanId": otlp.hex_id(span.get("parent_id"), 16),
            "name": str(span.get("name", "")),
            "kind": otlp.KINDS.get(str(span.get("kind", "")).rpartition(".")[2].lower(), 0),
            "startTimeUnixNano": otlp.iso_ns(span.get("start_time")),
            "endTimeUnixNano": otlp.iso_ns(span.get("end_time"))
            or otlp.iso_ns(span.get("start_time")),
            "attributes": otlp.attributes(_object(span, "attributes")),
            "status": {"code": _STATUS.get(str(status), 0)},
            "events": [
                {
                    "timeUnixNano": otlp.iso_ns(e.get("timestamp")),
                    "name": str(e.get("name", "")),
                    "attributes": otlp.attributes(_object(e, "attributes")),
                }
                for e in otlp.listed(span.get("events"))
            ],
            "links": [_context(link) for link in otlp.listed(span.get("links"))],
        },
    )


def _context(of: dict[str, Any]) -> dict[str, Any]:
    told = _object(of, "context")
    return {
        "traceId": otlp.hex_id(told.get("trace_id"), 32),
        "spanId": otlp.hex_id(told.get("span_id"), 16),
    }


def _object(of: Any, key: str) -> dict[str, Any]:
    found = of.get(key) if isinstance(of, dict) else None
    return found if isinstance(found, dict) else {}
