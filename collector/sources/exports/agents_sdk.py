"""Traces of the OpenAI Agents SDK, as its processors and exporters get them: `trace` and `trace.span` objects, one by one, listed, or posted as `data`.

Source: openai/openai-agents-python, src/agents/tracing (span_data.py, traces.py, processors.py) and the JavaScript SDK's exporter, which posts the same.
A `response` span has its model and usage only in newer versions. Inputs and outputs are not looked at.
"""

from __future__ import annotations

from typing import Any

from overrun.collector.sources.exports import otlp

_OBJECTS = ("trace", "trace.span")
_KINDS = {
    "generation": "LLM",
    "response": "LLM",
    "function": "TOOL",
    "mcp_tools": "TOOL",
    "guardrail": "GUARDRAIL",
    "agent": "AGENT",
    "handoff": "AGENT",
}
_SDK = "openai-agents"


def documents(value: Any) -> list[dict[str, Any]] | None:
    """The request of one object, a list of them, or what the SDK posts; None if it is none."""
    if isinstance(value, dict) and set(value) == {"data"}:
        value = value["data"]
    items = otlp.listed(value if isinstance(value, list) else [value])
    if not items or any(item.get("object") not in _OBJECTS for item in items):
        return None
    groups = {item.get("id"): item for item in items if item["object"] == "trace"}
    return otlp.request(
        _span(item, groups.get(item.get("trace_id"), {}))
        for item in items
        if item["object"] == "trace.span"
    )


def is_item(value: Any) -> bool:
    """Whether it is one object of several: a trace's session stands in another object than its spans."""
    return isinstance(value, dict) and value.get("object") in _OBJECTS


def _span(
    item: dict[str, Any], trace: dict[str, Any]
) -> tuple[dict[str, Any], str, dict[str, Any]]:
    data = item.get("span_data") or {}
    kind = str(data.get("type") or "custom")
    usage = data.get("usage") or {}
    details = (usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {})
    told = {
        "openinference.span.kind": _KINDS.get(kind, "CHAIN"),
        "gen_ai.request.model": data.get("model"),
        "gen_ai.response.id": data.get("response_id"),
        "gen_ai.usage.input_tokens": usage.get("input_tokens", usage.get("prompt_tokens")),
        "gen_ai.usage.output_tokens": usage.get("output_tokens", usage.get("completion_tokens")),
        "gen_ai.usage.cache_read.input_tokens": details[0].get("cached_tokens"),
        "gen_ai.usage.reasoning.output_tokens": details[1].get("reasoning_tokens"),
        "session.id": trace.get("group_id"),
        "gen_ai.tool.name": data.get("name") if kind == "function" else None,
        "mcp.method.name": "tools/list" if kind == "mcp_tools" else None,
        "gen_ai.agent.name": data.get("name") if kind == "agent" else None,
    }
    trace_id, name = str(item.get("trace_id")), str(data.get("name") or data.get("server") or "")
    start, end = otlp.iso_ns(item.get("started_at")), otlp.iso_ns(item.get("ended_at"))
    return (
        {"service.name": trace.get("workflow_name") or _SDK},
        _SDK,
        {
            "traceId": otlp.hex_id(trace_id.removeprefix("trace_"), 32),
            "spanId": otlp.hex_id(f"{trace_id} {item.get('id')}", 16),
            "parentSpanId": otlp.hex_id(f"{trace_id} {item['parent_id']}", 16)
            if item.get("parent_id")
            else "",
            "name": f"{kind} {name}".strip(),
            "kind": otlp.KINDS["internal"],
            "startTimeUnixNano": start,
            "endTimeUnixNano": end or start,
            "attributes": otlp.attributes({k: v for k, v in told.items() if v not in (None, "")}),
            "status": {"code": otlp.ERROR if item.get("error") else 0},
        },
    )
