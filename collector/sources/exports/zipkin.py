"""Zipkin's JSON (v2), as its API answers: a list of spans, or of traces, which are lists of spans.

Source: Zipkin's API v2 (public examples, envoyproxy/envoy#31045): times in µs, kinds in capitals, `localEndpoint` names the service, `tags` are text, and a
server's span may share its client's id.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from overrun.collector.sources.exports import otlp


def documents(value: Any) -> list[dict[str, Any]] | None:
    """The request of one answer, None if it is none."""
    told = value if isinstance(value, list) else [value]
    spans = [
        span for item in told for span in otlp.listed(item if isinstance(item, list) else [item])
    ]
    if not spans or not all(
        {"traceId", "id"} <= span.keys()
        and not span.keys().isdisjoint(("localEndpoint", "timestamp", "kind"))
        for span in spans
    ):
        return None
    return (
        None
        if any("observations" in span or "startTime" in span for span in spans)
        else otlp.request(_spans(spans))
    )


def _spans(spans: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    for span in spans:
        tags = dict(span["tags"]) if isinstance(span.get("tags"), dict) else {}
        local, remote = (
            end if isinstance(end := span.get(key), dict) else {}
            for key in ("localEndpoint", "remoteEndpoint")
        )
        resource = {"service.name": str(local.get("serviceName") or "unknown_service")}
        if local.get("ipv4") or local.get("ipv6"):
            resource["host.name"] = str(local.get("ipv4") or local.get("ipv6"))
        if remote.get("serviceName"):
            tags.setdefault("peer.service", remote["serviceName"])
        failed = "error" in tags or str(tags.get("otel.status_code", "")).upper() == "ERROR"
        scope = str(tags.pop("otel.scope.name", None) or tags.pop("otel.library.name", ""))
        start = otlp.us(span.get("timestamp"))
        yield (
            resource,
            scope,
            {
                "traceId": otlp.hex_id(span.get("traceId"), 32),
                "spanId": otlp.hex_id(span.get("id"), 16),
                "parentSpanId": otlp.hex_id(span.get("parentId"), 16),
                "name": str(span.get("name") or ""),
                "kind": otlp.KINDS.get(str(span.get("kind", "")).lower(), 0),
                "startTimeUnixNano": start,
                "endTimeUnixNano": start + otlp.us(span.get("duration")),
                "attributes": otlp.attributes(tags),
                "events": [
                    {
                        "timeUnixNano": otlp.us(note.get("timestamp")),
                        "name": str(note.get("value", "")),
                    }
                    for note in otlp.listed(span.get("annotations"))
                ],
                "status": {"code": otlp.ERROR if failed else 0},
            },
        )
