"""What spans is a call that a gateway reports? The call itself, the gateway's request around it, what the gateway did and how long it let the call wait."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from overrun.collector.sources.exports import otlp

Found = tuple[dict[str, Any], str, dict[str, Any]]  # resource, scope and span


@dataclass(frozen=True, slots=True)
class Waits:
    """Milliseconds that a gateway took for its own part, let the call wait after that, and took in all."""

    before_ms: float = 0.0
    queue_ms: float = 0.0
    whole_ms: float = 0.0


def with_gateway(
    inner: Found, around: Mapping[str, Any], start_ns: int, waits: Waits
) -> list[Found]:
    """A call with the gateway's request around it, whose attributes are `around` and which began at `start_ns` (ns since 1970)."""
    resource, scope, call = inner
    key = f"{call['traceId']} {call['spanId']}"
    outer = otlp.hex_id(f"request {key}", 16)
    whole = call | {
        "spanId": outer,
        "parentSpanId": "",
        "name": str(around.get("http.route") or "request"),
        "kind": otlp.KINDS["server"],
        "startTimeUnixNano": start_ns,
        "endTimeUnixNano": start_ns + round(waits.whole_ms * 1e6),
        "attributes": otlp.attributes(around),
    }
    found = [(resource, scope, call | {"parentSpanId": outer}), (resource, scope, whole)]
    at = start_ns
    for stage, ms in (("gateway", waits.before_ms), ("queue", waits.queue_ms)):
        if ms > 0.0:
            end = at + round(ms * 1e6)
            own = call | {
                "spanId": otlp.hex_id(f"{stage} {key}", 16),
                "parentSpanId": outer,
                "name": stage,
                "kind": otlp.KINDS["internal"],
                "startTimeUnixNano": at,
                "endTimeUnixNano": end,
                "attributes": otlp.attributes({"overrun.stage": stage}),
                "status": {"code": 0},
            }
            found.append((resource, scope, own))
            at = end
    return found
