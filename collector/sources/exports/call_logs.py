"""Logs with a line a model call: Kong's AI proxy, Bedrock's invocations, Helicone's and Portkey's requests, PostHog's events. Rows in, calls with the gateway around them out.

A sender is one entry of `_SENDERS`: what a row of its holds, and how the row is read. Bodies are not looked at. Source: developer.konghq.com (AI Gateway audit
log reference, file-log), docs.aws.amazon.com (Bedrock, model invocation logging; Converse's `metrics`; `amazon-bedrock-invocationMetrics` at the end of a
stream), Helicone's API (HeliconeRequest), PostHog's documentation of `$ai_generation`, portkey.ai/docs (logs export).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from overrun.collector.sources.exports import otlp

Found = tuple[dict[str, Any], str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Call:
    """A model call in a log: nanoseconds since 1970, milliseconds, attributes of the call and of the request around it (none: the call is the request)."""

    key: str
    start_ns: int
    ms: float
    told: dict[str, Any]
    first_ms: float | None = None
    failed: bool = False
    service: str = ""
    around: dict[str, Any] = field(default_factory=dict)
    before_ms: float = 0.0  # what the gateway did before the call
    queue_ms: float = 0.0  # and how long it let the call wait after that
    whole_ms: float = 0.0
    trace: str = ""  # what several calls are of
    asked: str = ""  # the address, where it says what was asked


def documents(value: Any) -> list[dict[str, Any]] | None:
    """The request of one row, a list of them or an API's answer; None if no sender is known. A row that does not say how long its call took is left out."""
    if isinstance(value, dict):
        value = next(
            (value[key] for key in ("data", "results") if isinstance(value.get(key), list)), value
        )
    rows = otlp.listed(value if isinstance(value, list) else [value])
    for name, (needed, read) in _SENDERS.items():
        if rows and all(needed <= row.keys() for row in rows):
            calls = [call for row in rows for call in [read(row)] if call is not None]
            found = [span for call in calls for span in spans(name, call)]
            return otlp.request(found) if found else []
    return None


def spans(sender: str, call: Call) -> list[Found]:
    """The call, and the request around it where there is one, with what its gateway did and let it wait before the call."""
    resource = {"service.name": call.service or sender}
    trace, outer = (
        otlp.hex_id(call.trace or f"{sender} {call.key}", 32),
        otlp.hex_id(f"request {call.key}", 16),
    )
    told = {"gen_ai.operation.name": _operation(call)} | call.told
    if call.first_ms is not None:
        told["gen_ai.response.time_to_first_chunk"] = call.first_ms / 1e3
    begin = call.start_ns + round((call.before_ms + call.queue_ms) * 1e6)
    inner = {
        "traceId": trace,
        "spanId": otlp.hex_id(f"call {call.key}", 16),
        "parentSpanId": outer if call.around else "",
        "name": f"{told['gen_ai.operation.name']} {told.get('gen_ai.request.model') or ''}".strip(),
        "kind": otlp.KINDS["client"],
        "startTimeUnixNano": begin,
        "endTimeUnixNano": begin + round(call.ms * 1e6),
        "attributes": otlp.attributes({k: v for k, v in told.items() if v not in (None, "")}),
        "status": {"code": otlp.ERROR if call.failed else 0},
    }
    found: list[Found] = [(resource, sender, inner)]
    if not call.around:
        return found
    around = {
        "spanId": outer,
        "parentSpanId": "",
        "name": str(call.around.get("http.route") or "request"),
        "kind": otlp.KINDS["server"],
        "startTimeUnixNano": call.start_ns,
        "endTimeUnixNano": call.start_ns + round(call.whole_ms * 1e6),
        "attributes": otlp.attributes(
            {k: v for k, v in call.around.items() if v not in (None, "")}
        ),
    }
    found.append((resource, sender, inner | around))
    at = call.start_ns
    for stage, ms in (("gateway", call.before_ms), ("queue", call.queue_ms)):
        if ms > 0.0:
            end = at + round(ms * 1e6)
            own = {
                "spanId": otlp.hex_id(f"{stage} {call.key}", 16),
                "name": stage,
                "kind": otlp.KINDS["internal"],
                "startTimeUnixNano": at,
                "endTimeUnixNano": end,
                "attributes": otlp.attributes({"overrun.stage": stage}),
                "status": {"code": 0},
            }
            found.append((resource, sender, inner | own))
            at = end
    return found


def _operation(call: Call) -> str:
    """What was asked of the model, by its name and the address."""
    asked = f"{call.told.get('gen_ai.request.model')} {call.asked or call.around.get('http.route')}"
    return "embeddings" if "embed" in asked.lower() else "chat"


def _kong(row: dict[str, Any]) -> Call | None:
    """`latencies.request` is the whole, `kong` the gateway's own part; a plugin's figures stand below `ai.proxy` (before 3.x below the plugin's own name)."""
    ai = row.get("ai") or {}
    proxy = next(
        (one for one in (ai.get("proxy"), *ai.values()) if isinstance(one, dict) and "meta" in one),
        {},
    )
    meta, usage = proxy.get("meta") or {}, proxy.get("usage") or {}
    latencies, request, answer = (
        row["latencies"],
        row.get("request") or {},
        row.get("response") or {},
    )
    took = meta.get("llm_latency", latencies.get("proxy"))
    if took is None or not meta:
        return None
    status = answer.get("status")
    key = request.get("id") or f"{row['started_at']} {row.get('client_ip')} {answer.get('size')}"
    whole = float(latencies.get("request", took))
    return Call(
        key=str(key),
        start_ns=otlp.moment_ns(row["started_at"]),
        ms=float(took),
        first_ms=_number(usage.get("time_to_first_token")),
        before_ms=min(float(latencies.get("kong") or 0.0), max(whole - float(took), 0.0)),
        whole_ms=whole,
        failed=isinstance(status, int) and status >= 400,
        told={
            "gen_ai.provider.name": meta.get("provider_name"),
            "gen_ai.request.model": meta.get("request_model"),
            "gen_ai.response.model": meta.get("response_model"),
            "gen_ai.usage.input_tokens": usage.get("prompt_tokens"),
            "gen_ai.usage.output_tokens": usage.get("completion_tokens"),
            "gen_ai.request.stream": meta["request_mode"] == "stream"
            if "request_mode" in meta
            else None,
            "http.response.status_code": status,
        },
        around={
            "http.request.method": request.get("method"),
            "http.route": ((row.get("route") or {}).get("paths") or [request.get("uri")])[0],
            "http.response.status_code": status,
            "tenant.id": (row.get("consumer") or {}).get("username"),
        },
    )


def _bedrock(row: dict[str, Any]) -> Call | None:
    """How long a call took stands in its answer, if anywhere: in Converse's metrics, in the last event of a stream."""
    given, output = row.get("input") or {}, row.get("output") or {}
    body = output.get("outputBodyJson")
    events = otlp.listed(body if isinstance(body, list) else [body])
    metrics: dict[str, Any] = {}
    for event in events:
        told = event.get("metadata")
        inner = told if isinstance(told, dict) else {}
        for found in (
            event.get("metrics"),
            inner.get("metrics"),
            event.get("amazon-bedrock-invocationMetrics"),
        ):
            metrics |= found if isinstance(found, dict) else {}
    took = _number(metrics.get("invocationLatency", metrics.get("latencyMs")))
    if took is None:
        return None
    return Call(
        key=str(row.get("requestId") or row["timestamp"]),
        start_ns=otlp.moment_ns(row["timestamp"]),
        ms=took,
        first_ms=_number(metrics.get("firstByteLatency")),
        failed="errorCode" in row,
        service="bedrock",
        told={
            "gen_ai.provider.name": "aws.bedrock",
            "gen_ai.request.model": row.get("modelId"),
            "gen_ai.response.id": row.get("requestId"),
            "gen_ai.usage.input_tokens": given.get("inputTokenCount"),
            "gen_ai.usage.output_tokens": output.get("outputTokenCount"),
            "gen_ai.usage.cache_read.input_tokens": given.get("cacheReadInputTokenCount"),
            "error.type": row.get("errorCode"),
        },
    )


def _helicone(row: dict[str, Any]) -> Call | None:
    start, end = (otlp.moment_ns(row.get(f"{part}_created_at")) for part in ("request", "response"))
    took = _number(row.get("delay_ms"))
    took = max(end - start, 0) / 1e6 if took is None and end else took
    if took is None or not start:
        return None
    status, more = row.get("response_status"), row.get("request_properties") or {}
    failed = isinstance(status, int | float) and (status >= 400 or status < 0)
    return Call(
        key=str(row["request_id"]),
        start_ns=start,
        ms=took,
        first_ms=_number(row.get("time_to_first_token")),
        failed=failed,
        service="helicone",
        told={
            "gen_ai.provider.name": str(row.get("provider") or "").lower(),
            "gen_ai.request.model": row.get("request_model") or row.get("model_override"),
            "gen_ai.response.model": row.get("response_model"),
            "gen_ai.usage.input_tokens": row.get("prompt_tokens"),
            "gen_ai.usage.output_tokens": row.get("completion_tokens"),
            "gen_ai.usage.cache_read.input_tokens": row.get("prompt_cache_read_tokens"),
            "http.response.status_code": status if isinstance(status, int) and status > 0 else None,
            "user.id": row.get("request_user_id"),
            "session.id": more.get("Helicone-Session-Id"),
        },
    )


def _portkey(row: dict[str, Any]) -> Call | None:
    """Times are milliseconds; what is read and written is counted in units, which are tokens."""
    took, start = _number(row["response_time"]), otlp.moment_ns(row["created_at"])
    if took is None or not start:
        return None
    status = row.get("response_status_code")
    failed = isinstance(status, int) and status >= 400
    return Call(
        key=str(row.get("id") or f"{row['created_at']} {row.get('trace_id')}"),
        start_ns=start,
        ms=took,
        failed=failed or row.get("is_success") in (0, False),
        service="portkey",
        trace=str(row.get("trace_id") or ""),
        asked=str(row.get("request_url") or ""),
        told={
            "gen_ai.provider.name": row.get("ai_org"),
            "gen_ai.request.model": row["ai_model"],
            "gen_ai.usage.input_tokens": row.get("req_units"),
            "gen_ai.usage.output_tokens": row.get("res_units"),
            "http.response.status_code": status,
        },
    )


def _posthog(row: dict[str, Any]) -> Call | None:
    """An event comes at the end of its call; latencies are seconds."""
    told = row["properties"]
    took = _number(told.get("$ai_latency")) if isinstance(told, dict) else None
    if took is None or row["event"] != "$ai_generation":
        return None
    first, status = _number(told.get("$ai_time_to_first_token")), told.get("$ai_http_status")
    return Call(
        key=str(
            told.get("$ai_span_id")
            or told.get("$ai_generation_id")
            or row.get("uuid")
            or row.get("id")
        ),
        start_ns=otlp.moment_ns(row["timestamp"]) - round(took * 1e9),
        ms=took * 1e3,
        first_ms=None if first is None else first * 1e3,
        failed=bool(told.get("$ai_is_error")),
        service="posthog",
        trace=str(told.get("$ai_trace_id") or ""),
        told={
            "gen_ai.provider.name": told.get("$ai_provider"),
            "gen_ai.request.model": told.get("$ai_model"),
            "gen_ai.usage.input_tokens": told.get("$ai_input_tokens"),
            "gen_ai.usage.output_tokens": told.get("$ai_output_tokens"),
            "gen_ai.usage.cache_read.input_tokens": told.get("$ai_cache_read_input_tokens"),
            "gen_ai.usage.reasoning.output_tokens": told.get("$ai_reasoning_tokens"),
            "http.response.status_code": status if isinstance(status, int) else None,
            "session.id": told.get("$ai_session_id"),
            "user.id": row.get("distinct_id"),
        },
    )


def _number(told: Any) -> float | None:
    return float(told) if isinstance(told, int | float) and not isinstance(told, bool) else None


_SENDERS: dict[str, tuple[set[str], Callable[[dict[str, Any]], Call | None]]] = {
    "kong": ({"started_at", "latencies", "ai"}, _kong),
    "bedrock": ({"timestamp", "modelId", "operation", "output"}, _bedrock),
    "posthog": ({"event", "properties", "timestamp"}, _posthog),
    "portkey": ({"created_at", "ai_model", "response_time"}, _portkey),
    "helicone": ({"request_id", "request_created_at", "response_status"}, _helicone),
}
