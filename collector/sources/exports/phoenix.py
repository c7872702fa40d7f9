"""Phoenix's spans: rows of `get_spans_dataframe()` as pandas writes them to JSON, and what its REST API answers under `data`.

Source: Arize-ai/phoenix#11224, #10753 (columns `context.trace_id`, `attributes.llm.token_count.prompt`, times as dates or, by pandas' default, in ms) and the
API's `/v1/projects/ID/spans`. A table has a column for every attribute of any span: empty cells are none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from overrun.collector.sources.exports import otlp

_KIND = "openinference.span.kind"


def documents(value: Any) -> list[dict[str, Any]] | None:
    """The request of one row, a list of rows or an answer of the API, None if it is none."""
    told = value.get("data") if isinstance(value, dict) and "next_cursor" in value else value
    spans = otlp.listed(told if isinstance(told, list) else [told])
    if not spans or not all("span_kind" in span and _ids(span) for span in spans):
        return None
    return otlp.request(_span(span) for span in spans)


def _ids(span: dict[str, Any]) -> dict[str, Any]:
    context = span.get("context")
    return (
        context
        if isinstance(context, dict)
        else {name: span.get(f"context.{name}") for name in ("trace_id", "span_id")}
        if "context.trace_id" in span
        else {}
    )


def _span(span: dict[str, Any]) -> tuple[dict[str, Any], str, dict[str, Any]]:
    ids, start = _ids(span), otlp.moment_ns(span.get("start_time"))
    attributes = {_KIND: span.get("span_kind"), **dict(_attributes(span))}
    return (
        {"service.name": "phoenix"},
        "openinference.instrumentation",
        {
            "traceId": otlp.hex_id(ids.get("trace_id"), 32),
            "spanId": otlp.hex_id(ids.get("span_id"), 16),
            "parentSpanId": otlp.hex_id(span.get("parent_id"), 16),
            "name": str(span.get("name") or ""),
            "kind": 1,
            "startTimeUnixNano": start,
            "endTimeUnixNano": otlp.moment_ns(span.get("end_time")) or start,
            "attributes": otlp.attributes(attributes),
            "status": {"code": otlp.ERROR if span.get("status_code") == "ERROR" else 0},
            "events": [
                {
                    "timeUnixNano": otlp.moment_ns(event.get("timestamp")),
                    "name": str(event.get("name", "")),
                }
                for event in otlp.listed(span.get("events"))
            ],
        },
    )


def _attributes(span: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    nested = span.get("attributes")
    if isinstance(nested, dict):
        yield from _flat("", nested)
    for key, value in span.items():
        if key.startswith("attributes."):
            yield from _flat("", {key.removeprefix("attributes."): value})


def _flat(before: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Attributes under their whole names, without empty cells; counts that a table made fractions of are counts."""
    for key, value in values.items():
        name = f"{before}{key}"
        if isinstance(value, dict):
            yield from _flat(f"{name}.", value)
        elif isinstance(value, float):
            if math.isfinite(value):
                yield name, int(value) if value.is_integer() else value
        elif value is not None:
            yield name, value
