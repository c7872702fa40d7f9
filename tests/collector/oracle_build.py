"""Spans by hand: a request written as a few lines, times in milliseconds, becomes OTLP bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

T0_NS = 1_795_000_000_000_000_000
MS = 1_000_000
INTERNAL, SERVER, CLIENT = 1, 2, 3
ERROR = 2


@dataclass(frozen=True, slots=True)
class Made:
    """One span; `id` and `parent` are small numbers, times are ms after T0."""

    id: int
    name: str
    start: float
    end: float
    parent: int = 0
    kind: int = INTERNAL
    attributes: Mapping[str, Any] = field(default_factory=dict)
    trace: int = 1
    service: str = "app"
    scope: str = "test"
    status: int = 0
    events: Sequence[tuple[float, str]] = ()
    trace_state: str = ""


def chat(
    id: int,
    start: float,
    end: float,
    parent: int = 1,
    *,
    ttft: float | None = None,
    out: int | None = 10,
    **more: Any,
) -> Made:
    """A model call under the current conventions; `ttft` in ms."""
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"} | more.pop(
        "attributes", {}
    )
    if ttft is not None:
        attributes |= {
            "gen_ai.response.time_to_first_chunk": ttft / 1000,
            "gen_ai.request.stream": True,
        }
    if out is not None:
        attributes |= {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": out}
    return Made(id, "chat m", start, end, parent, kind=CLIENT, attributes=attributes, **more)


def value(of: Any) -> AnyValue:
    """A Python value as OTLP's."""
    if isinstance(of, bool):
        return AnyValue(bool_value=of)
    if isinstance(of, int):
        return AnyValue(int_value=of)
    if isinstance(of, float):
        return AnyValue(double_value=of)
    if isinstance(of, list):
        out = AnyValue()
        out.array_value.values.extend(value(item) for item in of)
        return out
    return AnyValue(string_value=of)


def pairs(of: Mapping[str, Any]) -> list[KeyValue]:
    """OTLP attributes."""
    return [KeyValue(key=key, value=value(content)) for key, content in of.items()]


def at(ms: float) -> int:
    """A moment in ms after T0 as OTLP's nanoseconds."""
    return T0_NS + round(ms * MS)


def body(*made: Made) -> bytes:
    """One export request; a resource and scope per span."""
    request = ExportTraceServiceRequest()
    for m in made:
        resource_spans = request.resource_spans.add()
        resource_spans.resource.attributes.extend(
            pairs({"service.name": m.service, "service.instance.id": f"{m.service}-1"})
        )
        scope_spans = resource_spans.scope_spans.add()
        scope_spans.scope.name = m.scope
        span = Span(
            trace_id=m.trace.to_bytes(16, "big"),
            span_id=m.id.to_bytes(8, "big"),
            parent_span_id=m.parent.to_bytes(8, "big") if m.parent else b"",
            name=m.name,
            kind=m.kind,
            start_time_unix_nano=at(m.start),
            end_time_unix_nano=at(m.end),
            attributes=pairs(m.attributes),
            trace_state=m.trace_state,
        )
        span.status.code = m.status
        span.events.extend(Span.Event(time_unix_nano=at(t), name=name) for t, name in m.events)
        scope_spans.spans.append(span)
    return request.SerializeToString()
