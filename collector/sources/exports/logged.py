"""OTLP as programs log it: a line is a ResourceSpans without the request around it, or stands in a container's log.

Source: opentelemetry-java's OtlpJsonLogging exporters (opentelemetry-java#6749 and #6836: no request around it, no line breaks) and the json-file driver of
Docker, whose lines are `{"log": "...", "stream": ..., "time": ...}`.
"""

from __future__ import annotations

import json
from typing import Any

_REQUESTS = (
    ("resourceSpans", ("scopeSpans", "instrumentationLibrarySpans", "scope_spans")),
    ("resourceMetrics", ("scopeMetrics", "instrumentationLibraryMetrics", "scope_metrics")),
    ("resourceLogs", ("scopeLogs", "instrumentationLibraryLogs", "scope_logs")),
)


def documents(value: Any) -> list[dict[str, Any]] | None:
    """The request of one line, none of a container's line about something else, None if it is neither."""
    if not isinstance(value, dict):
        return None
    if isinstance(line := value.get("log"), str) and "stream" in value:
        return _inside(line)
    return next(
        (
            [{root: [value]}]
            for root, scopes in _REQUESTS
            if any(isinstance(value.get(scope), list) for scope in scopes)
        ),
        None,
    )


def _inside(line: str) -> list[dict[str, Any]]:
    """The request in a line of a container's log."""
    try:
        inner = json.loads(line[line.find("{") :]) if "{" in line else None
    except (ValueError, RecursionError):
        return []
    if not isinstance(inner, dict):
        return []
    return (
        [inner]
        if any(root in inner for root, _ in _REQUESTS)
        else ([] if "log" in inner else documents(inner) or [])
    )
