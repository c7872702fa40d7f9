"""Does the collector tell of its own work? Spans of commits, assembly and retention, sent to OTEL_EXPORTER_OTLP_ENDPOINT if that is another one.

Sent to itself they would tell of storing what told of storing, for ever; so its own address is left out. Without an endpoint a span costs
about a microsecond and goes nowhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlsplit

from opentelemetry import trace

from overrun.collector.access.auth import is_loopback

tracer = trace.get_tracer("overrun")
_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def endpoint(environment: Mapping[str, str], own: Iterable[str]) -> str | None:
    """Where spans of our own go: the endpoint of the environment, unless it is one of `own` (HOST:PORT) or the SDK is switched off."""
    named = next((environment[name] for name in _VARIABLES if environment.get(name)), None)
    if (
        named is None
        or environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
        or environment.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp"
    ):
        return None
    there = urlsplit(named if "://" in named else f"//{named}")
    for address in own:
        here = urlsplit(f"//{address}")
        same_host = there.hostname == here.hostname or (
            is_loopback(there.hostname or "")
            and here.hostname in ("127.0.0.1", "::1", "0.0.0.0", "::")  # noqa: S104
        )
        if same_host and there.port == here.port:
            return None
    return named


def start(own: Iterable[str], environment: Mapping[str, str] = os.environ) -> Callable[[], None]:
    """Send our spans on, if they have somewhere to go; returns what ends that. The exporter reads OTEL_* itself (headers, certificates, timeouts)."""
    if endpoint(environment, own) is None:
        return lambda: None
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

    protocol = (
        environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    exporter: SpanExporter
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as Grpc

        exporter = Grpc()
    else:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Http

        exporter = Http()
    provider = TracerProvider(
        resource=Resource.create(
            {"service.name": environment.get("OTEL_SERVICE_NAME") or "overrun"}
        )
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider.shutdown
