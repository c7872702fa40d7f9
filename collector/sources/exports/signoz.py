"""Rows of `signoz_traces.signoz_index_v3`, SigNoz's table of spans, as `FORMAT JSONEachRow` or `FORMAT JSON` writes them.

Source: the table's definition in SigNoz's ClickHouse migrations: one map of attributes a type, durations in ns, each event a JSON text with its attributes as
texts, and the links of a span one JSON text of a list.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from overrun.collector.sources.exports import otlp

COLUMNS: Final = ("trace_id", "span_id", "duration_nano", "resources_string")
_MAPS: Final = ("attributes_string", "attributes_number", "attributes_bool")
_STATUS: Final = {"ok": 1, "error": otlp.ERROR}


def documents(value: Any) -> list[dict[str, Any]] | None:
    """The request of one row, a list of rows or a whole answer, None if it is none."""
    told = value.get("data") if isinstance(value, dict) and "meta" in value else value
    rows = otlp.listed(told if isinstance(told, list) else [told])
    if not rows or not all(row.keys() >= set(COLUMNS) for row in rows):
        return None
    return otlp.request(map(span, rows))


def span(row: dict[str, Any]) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """The resource, the scope and the span of a row; `start_ns`, where a query made it, stands for `timestamp`."""
    start = int(row["start_ns"]) if "start_ns" in row else otlp.moment_ns(row.get("timestamp"))
    attributes = {key: value for name in _MAPS for key, value in _map(row.get(name)).items()}
    return (
        {"service.name": "unknown_service", **_map(row.get("resources_string"))},
        str(row.get("scope_name") or ""),
        {
            "traceId": otlp.hex_id(row.get("trace_id"), 32),
            "spanId": otlp.hex_id(row.get("span_id"), 16),
            "parentSpanId": otlp.hex_id(row.get("parent_span_id"), 16),
            "traceState": str(row.get("trace_state") or ""),
            "name": str(row.get("name") or ""),
            "kind": otlp.KINDS.get(str(row.get("kind_string") or "").lower(), 0),
            "startTimeUnixNano": start,
            "endTimeUnixNano": start + int(row.get("duration_nano") or 0),
            "attributes": otlp.attributes(
                {name: _whole(told) for name, told in attributes.items()}
            ),
            "events": [event for text in _list(row.get("events")) for event in _event(text)],
            "links": [link for one in _list(_decoded(row.get("links"))) for link in _link(one)],
            "status": {
                "code": _STATUS.get(str(row.get("status_code_string") or "").lower(), 0),
                "message": str(row.get("status_message") or ""),
            },
        },
    )


def _event(text: Any) -> list[dict[str, Any]]:
    told = _decoded(text)
    if not isinstance(told, dict):
        return []
    return [
        {
            "timeUnixNano": int(told.get("timeUnixNano") or 0),
            "name": str(told.get("name") or ""),
            "attributes": otlp.attributes(_map(told.get("attributeMap"))),
        }
    ]


def _link(told: Any) -> list[dict[str, Any]]:
    """A link; the reference to the parent, which stands among them, is none."""
    if not isinstance(told, dict) or told.get("refType") == "CHILD_OF":
        return []
    ids = {"traceId": (told.get("traceId"), 32), "spanId": (told.get("spanId"), 16)}
    return [{name: otlp.hex_id(value, digits) for name, (value, digits) in ids.items()}]


def _whole(value: Any) -> Any:
    """A number of the table, all of which are floating, as the whole number that it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _decoded(text: Any) -> Any:
    if not isinstance(text, str) or not text:
        return text
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
