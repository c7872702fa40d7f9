"""How do the spans and metrics reach a collector? As OTLP export requests, in the shape that the SDKs and the OpenTelemetry Collector send them.

Spans of all services pass one OpenTelemetry Collector with a batch processor, ordered by their end; so children come before parents.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable, Iterator
from typing import Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import ResourceMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Status
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Wire

from overrun.sample_traces.simulator import spans as sp
from overrun.sample_traces.simulator.settings import Telemetry
from overrun.sample_traces.simulator.spans import Span, Value

BATCH: Final = 4096
_SCRAPES: Final = 4
_GENAI_SCHEMA: Final = "https://opentelemetry.io/schemas/1.37.0"
# Head sampling keeps a trace when the last 56 bits of its id reach the threshold that `th` of the tracestate writes (OpenTelemetry's consistent probability).
_RANDOM_BITS: Final = 56


def value_of(value: Value) -> AnyValue:
    """An attribute's value."""
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    return AnyValue(array_value=ArrayValue(values=[AnyValue(string_value=v) for v in value]))


def attributes_of(values: dict[str, Value]) -> list[KeyValue]:
    """Attributes in their order."""
    return [
        _text(key, value) if isinstance(value, str) else KeyValue(key=key, value=value_of(value))
        for key, value in values.items()
    ]


@functools.lru_cache(maxsize=4096)
def _text(key: str, value: str) -> KeyValue:
    """A text attribute; most spans carry the same ones, and a message copies faster than it is made."""
    return KeyValue(key=key, value=AnyValue(string_value=value))


def seen(spans: Iterable[Span], telemetry: Telemetry, seed: int) -> list[Span]:
    """The spans that arrive: sampled by the head, some lost, engine spans only where engines are traced."""
    dice = random.Random(f"lost/{seed}")
    floor = int((1.0 - telemetry.sampling) * 2**_RANDOM_BITS)
    kept = []
    for span in sorted(spans, key=lambda s: (s.end, s.id)):
        engine = span.resource.startswith("engine/")
        if (
            not telemetry.traces
            or (engine and not telemetry.engine_spans)
            or span.trace % 2**_RANDOM_BITS < floor
        ):
            continue
        if dice.random() < telemetry.lost_spans and span.parent:
            continue
        kept.append(span)
    return kept


def trace_bodies(
    spans: list[Span], telemetry: Telemetry, start_ns: int
) -> Iterator[ExportTraceServiceRequest]:
    """Export requests of up to `BATCH` spans, oldest end first."""
    state = "" if telemetry.sampling >= 1.0 else f"ot=th:{_threshold(telemetry.sampling)}"
    for at in range(0, len(spans), BATCH):
        yield _body(spans[at : at + BATCH], telemetry, start_ns, state)


def _threshold(share: float) -> str:
    return f"{int((1.0 - share) * 2**_RANDOM_BITS):014x}".rstrip("0") or "0"


def _body(
    spans: list[Span], telemetry: Telemetry, start_ns: int, state: str
) -> ExportTraceServiceRequest:
    body = ExportTraceServiceRequest()
    scopes: dict[tuple[str, tuple[str, str]], ScopeSpans] = {}
    resources: dict[str, ResourceSpans] = {}
    for span in spans:
        key = (span.resource, span.scope)
        scope = scopes.get(key)
        if scope is None:
            if span.resource not in resources:
                resources[span.resource] = body.resource_spans.add(
                    resource=_resource(span.resource)
                )
            scope = resources[span.resource].scope_spans.add()
            scope.scope.name, scope.scope.version = span.scope
            if span.scope == sp.OPENAI:
                scope.schema_url = _GENAI_SCHEMA
            scopes[key] = scope
        shift_ns = round(telemetry.skew_ms * 1e6) if span.resource.startswith("engine/") else 0
        scope.spans.append(_wire(span, start_ns, shift_ns, state))
    return body


def _wire(span: Span, start_ns: int, shift_ns: int, state: str) -> Wire:
    begin = start_ns + shift_ns + round(span.start * 1e9)
    attributes = attributes_of(span.attributes)
    status = None
    if span.error:
        if not span.error.isdigit():
            attributes.append(KeyValue(key="error.type", value=AnyValue(string_value=span.error)))
        status = Status(
            code=Status.STATUS_CODE_ERROR
            if not span.error.startswith("4")
            else Status.STATUS_CODE_UNSET
        )
    wire = Wire(
        trace_id=span.trace.to_bytes(16, "big"),
        span_id=span.id.to_bytes(8, "big"),
        parent_span_id=span.parent.to_bytes(8, "big") if span.parent else b"",
        name=span.name,
        kind=span.kind,  # type: ignore[arg-type,unused-ignore]
        start_time_unix_nano=begin,
        end_time_unix_nano=start_ns + shift_ns + round(span.end * 1e9),  # type: ignore[arg-type,unused-ignore]
        attributes=attributes,
        trace_state=state,
        flags=0x100 if span.kind != sp.SERVER or not span.parent else 0x300,
        status=status,
    )
    for at, name in span.events:
        wire.events.add(time_unix_nano=start_ns + shift_ns + round(at * 1e9), name=name)
    return wire


def _resource(name: str) -> Resource:
    if name.startswith("engine/"):
        index = name.split("/")[1]
        values: dict[str, Value] = {
            "telemetry.sdk.language": "python",
            "telemetry.sdk.name": "opentelemetry",
            "telemetry.sdk.version": "1.45.1",
            "service.instance.id": engine_instance(int(index)),
            "service.name": "vllm",
            "vllm.instrumenting_module_name": "vllm.llm_engine",
            "vllm.process_id": str(40 + int(index)),
        }
        return Resource(attributes=attributes_of(values))
    service, version, pod = name.split("/")
    return Resource(
        attributes=attributes_of(
            {
                "telemetry.sdk.language": "python",
                "telemetry.sdk.name": "opentelemetry",
                "telemetry.sdk.version": "1.45.2",
                "service.instance.id": f"{service}-{pod}",
                "service.name": service,
                "service.version": version,
                "deployment.environment.name": "production",
            }
        )
    )


def engine_instance(index: int) -> str:
    """How a replica calls itself; its metrics and its spans agree, as they do where one resource detector names both."""
    return f"vllm-{index}.inference.svc:8000"


def metric_bodies(scrapes: list[list[ResourceMetrics]]) -> Iterator[ExportMetricsServiceRequest]:
    """Export requests of a few scrapes each."""
    for at in range(0, len(scrapes), _SCRAPES):
        yield ExportMetricsServiceRequest(
            resource_metrics=[m for scrape in scrapes[at : at + _SCRAPES] for m in scrape]
        )
