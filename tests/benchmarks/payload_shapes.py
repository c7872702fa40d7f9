"""Payloads of another make than the reference: what other senders send, each stressing something else.

Each shape is a number of bodies of 512 spans. Ids are unique and values seeded; a tenth of the values is of few, the others are numbers and ids of their own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.benchmarks.payload import NS_PER_MS, SPANS_PER_BODY, Body, Payload

MODELS: Final = ("m-large", "m-small", "m-code")
Values = dict[str, str | int | float | bool]


@dataclass(frozen=True)
class Shape:
    """Spans a trace, attributes a span, resources of a body, and how likely each attribute is left out."""

    spans_per_trace: int = 8
    attributes: int = 10
    services: int = 1
    absent: float = 0.0
    calls: int = 4  # every so manieth span is a model call


SHAPES: Final = {
    "10 attributes": Shape(),
    "1 span a trace": Shape(spans_per_trace=1, calls=1),
    "40 spans a trace": Shape(spans_per_trace=40),
    "30 attributes": Shape(attributes=30),
    "8 services a body": Shape(services=8),
    "attributes that come and go": Shape(attributes=12, absent=0.3),
}


def make(name: str, spans: int, *, end_ns: int, seed: int = 1) -> Payload:
    """At least `spans` spans of a shape, the last of which ends near `end_ns`."""
    shape = SHAPES[name]
    dice = random.Random(f"{name}.{seed}")
    waiting: list[tuple[int, Span]] = []
    bodies: list[Body] = []
    traces = made = 0
    while made < spans:
        service = traces % shape.services
        waiting += (
            (service, span) for span in _trace(dice, shape, end_ns - dice.randrange(60 * 10**9))
        )
        traces += 1
        made += shape.spans_per_trace
        while len(waiting) >= SPANS_PER_BODY:
            bodies.append(_body(waiting[:SPANS_PER_BODY], shape))
            del waiting[:SPANS_PER_BODY]
    if waiting:
        bodies.append(_body(waiting, shape))
    return Payload(bodies, traces)


def _trace(dice: random.Random, shape: Shape, start_ns: int) -> list[Span]:
    trace_id = dice.randbytes(16)
    ids = [dice.randbytes(8) for _ in range(shape.spans_per_trace)]
    out = []
    for i, span_id in enumerate(ids):
        call = i % shape.calls == shape.calls - 1
        at = start_ns + i * NS_PER_MS
        span = Span(
            trace_id=trace_id,
            span_id=span_id,
            parent_span_id=ids[(i - 1) // 3] if i else b"",
            name="chat" if call else "POST /ask" if not i else f"step {i % 7}",
            kind=Span.SPAN_KIND_CLIENT
            if call
            else Span.SPAN_KIND_SERVER
            if not i
            else Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=at,
            end_time_unix_nano=at + dice.randrange(5, 400) * NS_PER_MS,
        )
        values = (_call(dice) if call else {}) | _values(dice, shape.attributes)
        kept = [key for key in values if not shape.absent or dice.random() >= shape.absent]
        span.attributes.extend(_attribute(key, values[key]) for key in kept[: shape.attributes])
        out.append(span)
    return out


def _call(dice: random.Random) -> Values:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": dice.choice(MODELS),
        "gen_ai.usage.input_tokens": dice.randrange(10, 4_000),
        "gen_ai.usage.output_tokens": dice.randrange(10, 900),
        "gen_ai.response.id": f"resp-{dice.getrandbits(60):x}",
    }


_KINDS: Final[tuple[tuple[str, Callable[[random.Random], str | int | float | bool]], ...]] = (
    ("app.request.number", lambda dice: dice.getrandbits(40)),
    ("app.customer.id", lambda dice: f"c-{dice.randrange(100_000)}"),
    ("app.region", lambda dice: dice.choice(("eu-1", "eu-2", "us-1"))),
    ("app.score", lambda dice: dice.random()),
    ("app.cached", lambda dice: dice.random() < 0.5),
    ("app.path", lambda dice: f"/srv/{dice.randrange(40)}/{dice.getrandbits(32):08x}"),
)


def _values(dice: random.Random, count: int) -> Values:
    return {
        f"{key}.{i // len(_KINDS)}": value(dice)
        for i, (key, value) in ((i, _KINDS[i % len(_KINDS)]) for i in range(count))
    }


def _attribute(key: str, value: str | int | float | bool) -> KeyValue:
    out = KeyValue(key=key)
    if isinstance(value, bool):
        out.value.bool_value = value
    elif isinstance(value, int):
        out.value.int_value = value
    elif isinstance(value, float):
        out.value.double_value = value
    else:
        out.value.string_value = value
    return out


def _body(spans: list[tuple[int, Span]], shape: Shape) -> Body:
    request = ExportTraceServiceRequest()
    for service in range(shape.services):
        held = [span for of, span in spans if of == service]
        if held:
            resource = request.resource_spans.add()
            resource.resource.attributes.append(_attribute("service.name", f"service-{service}"))
            resource.resource.attributes.append(_attribute("host.name", f"host-{service}"))
            scope = resource.scope_spans.add()
            scope.scope.name = f"instrumentation-{service}"
            scope.spans.extend(held)
    return Body(request.SerializeToString(), len(spans))
