"""Stored spans as OTLP again: what they had as attributes, and what was made columns of them, under the names of the GenAI conventions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

# A canonical column of a stored span, and the attribute that carries it.
_COLUMNS: Final = {
    "operation": "gen_ai.operation.name",
    "model": "gen_ai.response.model",
    "provider": "gen_ai.provider.name",
    "response_id": "gen_ai.response.id",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
    "max_tokens": "gen_ai.request.max_tokens",
    "streaming": "gen_ai.request.stream",
    "error_type": "error.type",
    "http_status": "http.response.status_code",
    "route": "http.route",
    "tenant": "tenant.id",
    "session": "session.id",
    "workload": "overrun.workload",
}
_TIMES_MS: Final = {
    "ttft_ms": "gen_ai.response.time_to_first_chunk",
    "queue_ms": "gen_ai.latency.time_in_queue",
    "prefill_ms": "gen_ai.latency.time_in_model_prefill",
    "decode_ms": "gen_ai.latency.time_in_model_decode",
    "engine_e2e_ms": "gen_ai.latency.e2e",
}
_KINDS: Final = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}


def as_otlp(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, bytes]]:
    """A traces body per service and instance, from rows of `v_spans`."""
    by_sender: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        key = (str(row.get("service") or ""), str(row.get("instance") or ""))
        by_sender.setdefault(key, []).append(row)
    for (service, instance), held in by_sender.items():
        request = ExportTraceServiceRequest()
        resource = request.resource_spans.add()
        _put(resource.resource, {"service.name": service, "service.instance.id": instance or None})
        spans = resource.scope_spans.add().spans
        for row in held:
            spans.append(_span(row))
        yield "traces", request.SerializeToString()


def _span(row: Mapping[str, Any]) -> Span:
    start = datetime.fromisoformat(str(row["start"]).replace("Z", "+00:00"))
    start_ns = round(start.timestamp() * 1e6) * 1_000
    span = Span(
        trace_id=bytes.fromhex(row["trace_id"]),
        span_id=bytes.fromhex(row["span_id"]),
        parent_span_id=bytes.fromhex(row.get("parent_span_id") or ""),
        name=row["name"],
        kind=_KINDS.get(str(row.get("kind")), 0),  # type: ignore[arg-type]
        start_time_unix_nano=start_ns,
        end_time_unix_nano=start_ns + round(float(row["duration_ms"]) * 1e6),
        trace_state=row.get("trace_state") or "",
    )
    if row.get("status") == "error":
        span.status.code = 2  # type: ignore[assignment]
    kept = row.get("attributes") or {}
    held = dict(json.loads(kept) if isinstance(kept, str) else kept)
    for column, key in _COLUMNS.items():
        if row.get(column) is not None:
            held.setdefault(key, row[column])
    for column, key in _TIMES_MS.items():
        if row.get(column) is not None:
            held.setdefault(key, float(row[column]) / 1e3)
    if row.get("finish_reason"):
        held.setdefault("gen_ai.response.finish_reasons", json.dumps([row["finish_reason"]]))
    _put(span, held)
    return span


def _put(holder: Any, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        if value is None:
            continue
        made = AnyValue()
        if isinstance(value, bool):
            made.bool_value = value
        elif isinstance(value, int):
            made.int_value = value
        elif isinstance(value, float):
            made.double_value = value
        else:
            made.string_value = str(value)
        holder.attributes.append(KeyValue(key=key, value=made))
