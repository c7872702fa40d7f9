"""MLflow's traces as JSON: `Trace.to_json()`, what its API answers, and the `traces.json` that it keeps as an artifact.

Source: mlflow/entities/span.py of 2.x (`context`, `start_time` in ns, ids in hex) and 3.x (`start_time_unix_nano`, ids in base64). Attributes are JSON in
strings, as over OTLP; what was asked and answered lies among them and goes the way of all text.
"""

from __future__ import annotations

from typing import Any

from overrun.collector.sources.exports import otlp


def documents(value: Any) -> list[dict[str, Any]] | None:
    """The request of one trace or a list of them, None if it is none."""
    if isinstance(value, dict) and isinstance(value.get("traces"), list):
        value = value["traces"]
    traces = otlp.listed(value if isinstance(value, list) else [value])
    found = [spans for trace in traces if (spans := _spans_of(trace))]
    if not found or len(found) != len(traces):
        return None
    return otlp.request(_span(span) for spans in found for span in spans)


def _spans_of(trace: dict[str, Any]) -> list[dict[str, Any]]:
    data = trace["data"] if isinstance(trace.get("data"), dict) else trace
    spans = otlp.listed(data.get("spans"))
    return spans if spans and all(map(_is_span, spans)) else []


def _is_span(span: dict[str, Any]) -> bool:
    """Whether times and ids have the names of one of the two versions."""
    return ("start_time_unix_nano" in span and "span_id" in span) or (
        isinstance(span.get("context"), dict) and isinstance(span.get("start_time"), int)
    )


def _span(span: dict[str, Any]) -> tuple[dict[str, Any], str, dict[str, Any]]:
    context = span["context"] if isinstance(span.get("context"), dict) else span
    start = otlp.moment_ns(span.get("start_time_unix_nano") or span.get("start_time"))
    status = span.get("status_code") or (
        span["status"].get("code") if isinstance(span.get("status"), dict) else ""
    )
    attributes = span.get("attributes")
    return (
        {"service.name": "mlflow"},
        "mlflow",
        {
            "traceId": otlp.any_id(context.get("trace_id"), 32),
            "spanId": otlp.any_id(context.get("span_id"), 16),
            "parentSpanId": otlp.any_id(span.get("parent_id") or span.get("parent_span_id"), 16),
            "name": str(span.get("name", "")),
            "kind": 1,
            "startTimeUnixNano": start,
            "endTimeUnixNano": otlp.moment_ns(
                span.get("end_time_unix_nano") or span.get("end_time")
            )
            or start,
            "attributes": otlp.attributes(attributes if isinstance(attributes, dict) else {}),
            "status": {"code": otlp.ERROR if "ERROR" in str(status) else 0},
            "events": [
                {
                    "timeUnixNano": otlp.moment_ns(
                        event.get("time_unix_nano") or event.get("timestamp")
                    ),
                    "name": str(event.get("name", "")),
                }
                for event in otlp.listed(span.get("events"))
            ],
        },
    )
