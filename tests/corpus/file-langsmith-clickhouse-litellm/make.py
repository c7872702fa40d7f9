"""The same answers as three stores keep them."""

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.corpus.otlp import T0_MS, span_id, trace_id


def iso(ms: float, zone: str = "") -> str:
    moment = datetime.fromtimestamp((T0_MS + ms) / 1_000, UTC)
    return moment.strftime(f"%Y-%m-%dT%H:%M:%S.%f{zone}")


def runs(n: int) -> list[dict[str, Any]]:
    """LangSmith: a chain and its model call."""
    root, call = (str(uuid.uuid5(uuid.NAMESPACE_URL, f"{n} {key}")) for key in "rc")
    at = 10_000 * n
    counts = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
    return [
        {
            "id": root,
            "name": "agent",
            "run_type": "chain",
            "trace_id": root,
            "parent_run_id": None,
            "start_time": iso(at),
            "end_time": iso(at + 3_000),
            "error": None,
            "extra": {"metadata": {"thread_id": "t1"}},
            **counts,
        },
        {
            "id": call,
            "name": "ChatOpenAI",
            "run_type": "llm",
            "trace_id": root,
            "parent_run_id": root,
            "start_time": iso(at + 100),
            "end_time": iso(at + 2_900),
            "first_token_time": iso(at + 400),
            "error": None,
            "extra": {"metadata": {"ls_model_name": "m", "ls_provider": "openai"}},
            **counts,
        },
    ]


def row(n: int, name: str, kind: str, start_ms: float, ms: float, **more: Any) -> dict[str, Any]:
    """The Collector's ClickHouse exporter; durations and counts may be text."""
    at = 10_000 * n
    return {
        "Timestamp": iso(at + start_ms).replace("T", " ") + "000",
        "TraceId": trace_id(n),
        "SpanId": span_id((n, kind)),
        "ParentSpanId": "" if kind == "Server" else span_id((n, "Server")),
        "SpanName": name,
        "SpanKind": kind,
        "ServiceName": "shop",
        "ResourceAttributes": {"service.name": "shop"},
        "ScopeName": "x",
        "Duration": str(round(ms * 1e6)),
        "StatusCode": "Unset",
        "Events.Timestamp": [],
        "Events.Name": [],
        "Links.TraceId": [],
        "Links.SpanId": [],
    } | more


def rows(n: int) -> list[dict[str, Any]]:
    return [
        row(
            n,
            "POST /chat",
            "Server",
            0,
            3_000,
            SpanAttributes={"http.request.method": "POST", "http.route": "/chat"},
        ),
        row(
            n,
            "chat m",
            "Client",
            100,
            2_800,
            SpanAttributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": "m",
                "gen_ai.usage.input_tokens": "100",
                "gen_ai.usage.output_tokens": "50",
            },
            **{
                "Events.Timestamp": [iso(10_000 * n + 400).replace("T", " ") + "000"],
                "Events.Name": ["gen_ai.content.completion.chunk"],
            },
        ),
    ]


def spend(n: int, first_ms: float, status: str) -> dict[str, Any]:
    """LiteLLM: what was not streamed has its first token at its end."""
    at = 10_000 * n
    return {
        "request_id": f"chatcmpl-{n}",
        "call_type": "acompletion",
        "startTime": iso(at, "Z"),
        "endTime": iso(at + 3_000, "Z"),
        "completionStartTime": iso(at + first_ms, "Z"),
        "model": "m",
        "model_group": "m",
        "custom_llm_provider": "openai",
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "cache_hit": "False",
        "status": status,
    }


def make(folder: Path) -> None:
    def lines(name: str, values: list[dict[str, Any]]) -> None:
        (folder / name).write_text("\n".join(map(json.dumps, values)))

    lines("runs.jsonl", [run for n in (1, 2) for run in runs(n)])
    lines("rows.jsonl", [one for n in (3, 4) for one in rows(n)])
    (folder / "answer.json").write_text(
        json.dumps({"meta": [], "data": [one for n in (5, 6) for one in rows(n)], "rows": 4})
    )
    (folder / "spend.json").write_text(
        json.dumps(
            [spend(1, 400, "success"), spend(2, 3_000, "success"), spend(3, 3_000, "failure")]
        )
    )
