"""Requests of a load test as OTLP, as an instrumented client would send them; what an engine tells, as the span that vLLM itself would send."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from overrun.collector.sources.load_tests.result import LoadTest, Request
from overrun.collector.sources.load_tests.values import S

_SPANS_A_BODY: Final = 2_000


def bodies(test: LoadTest, digest: bytes) -> Iterator[bytes]:
    """The requests as OTLP trace requests; ids follow from `digest`, that of the file, so that a file read twice counts once."""
    for at in range(0, len(test.requests), _SPANS_A_BODY):
        made = ExportTraceServiceRequest()
        resource = made.resource_spans.add()
        resource.resource.attributes.append(
            KeyValue(key="service.name", value=AnyValue(string_value=test.tool))
        )
        spans = resource.scope_spans.add().spans
        for number, request in enumerate(test.requests[at : at + _SPANS_A_BODY], start=at):
            spans.append(
                _span(request, hashlib.sha256(digest + number.to_bytes(8, "big")).digest())
            )
        yield made.SerializeToString()


def _span(request: Request, seed: bytes) -> Span:
    """A call of a chat model by its client, in the words of the GenAI conventions; what an engine tells, in those of vLLM."""
    if request.queue_ns is not None and request.ttft_ns is not None:
        return _engine_span(request, request.queue_ns, request.ttft_ns, seed)
    span = Span(
        trace_id=seed[:16],
        span_id=seed[16:24],
        name=f"chat {request.model or ''}".strip(),
        kind=Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=request.start_ns,
        end_time_unix_nano=request.start_ns + request.e2e_ns,
    )
    values: dict[str, str | int | float | None] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": request.model,
        "gen_ai.usage.input_tokens": request.input_tokens,
        "gen_ai.usage.output_tokens": request.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": request.cached_tokens,
        "gen_ai.response.time_to_first_chunk": None
        if request.ttft_ns is None
        else request.ttft_ns / S,
        "error.type": request.error,
        "http.response.status_code": request.status_code,
        "overrun.route": request.route,
        "tenant.id": request.tenant,
    }
    _put(span, values)
    if request.error is not None:
        span.status.code = Status.STATUS_CODE_ERROR
    return span


def _engine_span(request: Request, queue_ns: int, ttft_ns: int, seed: bytes) -> Span:
    span = Span(
        trace_id=seed[:16],
        span_id=seed[16:24],
        name="llm_request",
        kind=Span.SPAN_KIND_SERVER,
        start_time_unix_nano=request.start_ns,
        end_time_unix_nano=request.start_ns + request.e2e_ns,
    )
    _put(
        span,
        {
            "gen_ai.response.model": request.model,
            "gen_ai.usage.prompt_tokens": request.input_tokens,
            "gen_ai.usage.completion_tokens": request.output_tokens,
            "gen_ai.latency.time_in_queue": queue_ns / S,
            "gen_ai.latency.time_to_first_token": ttft_ns / S,
            "gen_ai.latency.e2e": request.e2e_ns / S,
            "gen_ai.latency.time_in_model_prefill": (ttft_ns - queue_ns) / S,
            "gen_ai.latency.time_in_model_decode": (request.e2e_ns - ttft_ns) / S,
        },
    )
    return span


def _put(span: Span, values: Mapping[str, str | int | float | None]) -> None:
    for key, value in values.items():
        if isinstance(value, str):
            span.attributes.append(KeyValue(key=key, value=AnyValue(string_value=value)))
        elif isinstance(value, float):
            span.attributes.append(KeyValue(key=key, value=AnyValue(double_value=value)))
        elif value is not None:
            span.attributes.append(KeyValue(key=key, value=AnyValue(int_value=value)))
