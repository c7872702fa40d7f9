"""LangSmith's runs: what `client.list_runs()`, its API and its exports give, a run a line or a list of them.

Source: LangSmith's run format (`run_type`, `parent_run_id`, `first_token_time`, token counts beside the run). Inputs and outputs are not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from overrun.collector.sources.exports import otlp


def documents(value: Any) -> list[dict[str, Any]] | None:
    """The request of one run or a list of them, None if it is none."""
    told = value.get("runs") if isinstance(value, dict) and "runs" in value else value
    runs = otlp.listed(told if isinstance(told, list) else [told])
    if not runs or not all({"id", "run_type", "start_time"} <= run.keys() for run in runs):
        return None
    return otlp.request(span(run, str(run.get("session_name") or "langsmith")) for run in runs)


def span(run: dict[str, Any], service: str) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """One run as a span of a service, however it came: by file or by the API."""
    start = otlp.moment_ns(run.get("start_time"))
    return (
        {"service.name": service},
        "langsmith",
        {
            "traceId": otlp.hex_id(run.get("trace_id") or run.get("id"), 32),
            "spanId": otlp.hex_id(run.get("id"), 16),
            "parentSpanId": otlp.hex_id(run.get("parent_run_id"), 16),
            "name": str(run.get("name") or ""),
            "kind": 1,
            "startTimeUnixNano": start,
            "endTimeUnixNano": otlp.moment_ns(run.get("end_time")) or start,
            "attributes": otlp.attributes(
                {
                    key: value
                    for key, value in _told(run, start).items()
                    if value not in (None, "", 0)
                }
            ),
            "status": {
                "code": otlp.ERROR if run.get("error") or run.get("status") == "error" else 0
            },
        },
    )


def _told(run: dict[str, Any], start: int) -> dict[str, Any]:
    extra = _object(run, "extra")
    metadata, parameters = _object(extra, "metadata"), _object(extra, "invocation_params")
    first = otlp.moment_ns(run.get("first_token_time"))
    kind = str(run.get("run_type") or "")
    is_call = kind == "llm"
    return {
        "langsmith.span.kind": kind,
        "gen_ai.request.model": metadata.get("ls_model_name")
        or parameters.get("model")
        or parameters.get("model_name"),
        "langsmith.metadata.ls_provider": metadata.get("ls_provider"),
        "langsmith.metadata.ls_max_tokens": metadata.get("ls_max_tokens"),
        "langsmith.metadata.ls_temperature": metadata.get("ls_temperature"),
        "gen_ai.usage.input_tokens": run.get("prompt_tokens") if is_call else None,
        "gen_ai.usage.output_tokens": run.get("completion_tokens") if is_call else None,
        "gen_ai.usage.input_token_details": _details(run, "prompt_token_details"),
        "gen_ai.usage.output_token_details": _details(run, "completion_token_details"),
        "gen_ai.response.time_to_first_chunk": (first - start) / 1e9 if first >= start else None,
        "session.id": next(
            (
                metadata[key]
                for key in ("session_id", "thread_id", "conversation_id")
                if metadata.get(key)
            ),
            None,
        ),
    }


def _details(run: Mapping[str, Any], key: str) -> str | None:
    found = _object(run, key)
    return json.dumps(found) if found else None


def _object(of: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = of.get(key)
    return found if isinstance(found, dict) else {}
