"""Requests and dependencies of Azure's Application Insights, as its query API and `az monitor app-insights query` print them, or as rows.

Source: learn.microsoft.com, Application Insights telemetry data model and query API (tables, columns, rows); the workspace's tables (AppRequests, AppDependencies)
say the same under other names. Times are ms; what OpenTelemetry sent as attributes is JSON in `customDimensions`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from overrun.collector.sources.exports import otlp

# Columns of the resource's own tables, then of a Log Analytics workspace.
_NAMES = {
    "timestamp": ("timestamp", "TimeGenerated"),
    "id": ("id", "Id"),
    "trace": ("operation_Id", "OperationId"),
    "parent": ("operation_ParentId", "ParentId"),
    "name": ("name", "Name"),
    "duration": ("duration", "DurationMs"),
    "success": ("success", "Success"),
    "code": ("resultCode", "ResultCode"),
    "item": ("itemType", "Type"),
    "type": ("type", "DependencyType"),
    "target": ("target", "Target"),
    "url": ("url", "Url"),
    "service": ("cloud_RoleName", "AppRoleName"),
    "instance": ("cloud_RoleInstance", "AppRoleInstance"),
    "told": ("customDimensions", "Properties"),
}
_NEEDED = ("timestamp", "id", "trace", "name", "duration")


def documents(value: Any) -> list[dict[str, Any]] | None:
    """The request of an answer or of rows, None if it is neither."""
    rows = list(_rows(value))
    if not rows or not all(
        all(_of(row, name) is not None for name in _NEEDED) for row in rows[:20]
    ):
        return None
    return otlp.request(_span(row) for row in rows if _of(row, "duration") is not None)


def _rows(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and isinstance(value.get("tables"), list):
        for table in otlp.listed(value["tables"]):
            names = [str(column.get("name")) for column in otlp.listed(table.get("columns"))]
            for row in table.get("rows") or ():
                yield dict(zip(names, row, strict=False))
    else:
        yield from otlp.listed(value if isinstance(value, list) else [value])


def _of(row: dict[str, Any], name: str) -> Any:
    return next((row[key] for key in _NAMES[name] if row.get(key) is not None), None)


def _span(row: dict[str, Any]) -> tuple[dict[str, Any], str, dict[str, Any]]:
    start, trace = otlp.moment_ns(_of(row, "timestamp")), str(_of(row, "trace"))
    served = "request" in str(_of(row, "item") or "").lower()
    parent = str(_of(row, "parent") or "")
    told = _of(row, "told") or {}
    told = json.loads(told) if isinstance(told, str) else told
    if not isinstance(told, dict):
        raise ValueError("customDimensions are no JSON object")
    code = str(_of(row, "code") or "")
    more = {
        "http.response.status_code": int(code) if code.isdigit() and int(code) >= 100 else None,
        "url.full": _of(row, "url"),
        "server.address": _of(row, "target"),
    }
    resource = {"service.name": _of(row, "service"), "service.instance.id": _of(row, "instance")}
    internal = "inproc" in str(_of(row, "type") or "").lower()
    return (
        {key: one for key, one in resource.items() if one},
        "app-insights",
        {
            "traceId": otlp.hex_id(trace, 32),
            "spanId": otlp.hex_id(_of(row, "id"), 16),
            "parentSpanId": "" if parent in ("", trace) else otlp.hex_id(parent, 16),
            "name": str(_of(row, "name")),
            "kind": otlp.KINDS["server" if served else "internal" if internal else "client"],
            "startTimeUnixNano": start,
            "endTimeUnixNano": start + round(float(_of(row, "duration")) * 1e6),
            "attributes": otlp.attributes({k: v for k, v in more.items() if v} | told),
            "status": {
                "code": 0 if str(_of(row, "success")).lower() in ("true", "none") else otlp.ERROR
            },
        },
    )
