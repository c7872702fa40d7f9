"""LiteLLM's spend logs, as its API (`/spend/logs`) and its database have them: one row a call of its proxy.

Source: the table LiteLLM_SpendLogs of BerriAI/litellm (schema.prisma). `completionStartTime` is the end of the call where it was not streamed. Messages and
answers are not looked at.
"""

from __future__ import annotations

from typing import Any

from overrun.collector.sources.exports import otlp

_OPERATIONS = (("embedding", "embeddings"), ("rerank", "rerank"), ("moderation", "moderation"))


def documents(value: Any) -> list[dict[str, Any]] | None:
    """The request of one row or a list of them, None if it is none."""
    rows = otlp.listed(value if isinstance(value, list) else [value])
    if not rows or not all(
        {"request_id", "call_type", "startTime", "endTime"} <= row.keys() for row in rows
    ):
        return None
    return otlp.request(_span(row) for row in rows)


def _span(row: dict[str, Any]) -> tuple[dict[str, Any], str, dict[str, Any]]:
    start, end, first = (
        otlp.moment_ns(row.get(key)) for key in ("startTime", "endTime", "completionStartTime")
    )
    call = str(row["call_type"])
    name = str(row["request_id"])
    told = {
        "gen_ai.operation.name": next(
            (operation for word, operation in _OPERATIONS if word in call), "chat"
        ),
        "gen_ai.request.model": row.get("model_group") or row.get("model"),
        "gen_ai.response.model": row.get("model"),
        "gen_ai.provider.name": row.get("custom_llm_provider"),
        "gen_ai.response.id": name,
        "gen_ai.usage.input_tokens": row.get("prompt_tokens"),
        "gen_ai.usage.output_tokens": row.get("completion_tokens"),
        "gen_ai.response.time_to_first_chunk": (first - start) / 1e9
        if start <= first < end
        else None,
        "litellm.team.id": row.get("team_id"),
        "litellm.end_user.id": row.get("end_user"),
    }
    cached = str(row.get("cache_hit")).lower() == "true"
    return (
        {"service.name": "litellm"},
        "litellm",
        {
            "traceId": otlp.hex_id(f"request {name}", 32),
            "spanId": otlp.hex_id(f"call {name}", 16),
            "name": call,
            "kind": 3,
            "startTimeUnixNano": start,
            "endTimeUnixNano": end or start,
            "attributes": otlp.attributes(
                {"overrun.stage": "gateway"}
                if cached  # no model worked
                else {key: value for key, value in told.items() if value not in (None, "")}
            ),
            "status": {"code": otlp.ERROR if row.get("status") == "failure" else 0},
        },
    )
