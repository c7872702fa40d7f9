"""Spans of Comet's Opik, as its API lists them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

T0 = datetime(2026, 9, 21, 8, 0, tzinfo=UTC)


def span(
    number: int, name: str, kind: str, at: int, ms: int, parent: str | None, **more: Any
) -> dict[str, Any]:
    begin = T0 + timedelta(seconds=6 * number, milliseconds=at)
    return {
        "id": f"01992f00-0000-7000-8{len(name):03d}-{number:012d}",
        "trace_id": f"01992f00-0000-7000-9000-{number:012d}",
        "project_name": "shop",
        "parent_span_id": parent,
        "name": name,
        "type": kind,
        "start_time": begin.isoformat().replace("+00:00", "Z"),
        "end_time": (begin + timedelta(milliseconds=ms)).isoformat().replace("+00:00", "Z"),
        "duration": float(ms),
    } | more


def make(folder: Path) -> None:
    spans = []
    for number in range(30):
        root = span(number, "answer", "general", 0, 3_000, None)
        spans += [
            root,
            span(number, "search", "tool", 100, 400, root["id"]),
            span(
                number,
                "chat_completion",
                "llm",
                600,
                2_300,
                root["id"],
                model="gpt-4o",
                provider="openai",
                ttft=450.0,
                usage={"prompt_tokens": 800, "completion_tokens": 100, "total_tokens": 900},
            ),
        ]
    (folder / "spans.json").write_text(
        json.dumps({"page": 1, "size": 90, "total": 90, "content": spans})
    )
