"""Helicone's export of requests, as its API answers and as its tool writes them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

T0 = datetime(2026, 9, 21, 8, 0, tzinfo=UTC)


def row(number: int) -> dict[str, Any]:
    begin = T0 + timedelta(seconds=4 * number)
    failed = number % 20 == 19
    return {
        "request_id": f"{number:08d}-aaaa-bbbb-cccc-000000000000",
        "response_id": f"{number:08d}-dddd-eeee-ffff-000000000000",
        "request_created_at": begin.isoformat().replace("+00:00", "Z"),
        "response_created_at": (begin + timedelta(milliseconds=1_800))
        .isoformat()
        .replace("+00:00", "Z"),
        "request_path": "https://api.openai.com/v1/chat/completions",
        "request_user_id": f"u{number % 5}",
        "request_properties": {"Environment": "prod", "Helicone-Session-Id": f"s{number // 4}"},
        "request_model": "gpt-4o",
        "model_override": None,
        "response_model": None if failed else "gpt-4o-2024-08-06",
        "response_status": 429 if failed else 200,
        "provider": "OPENAI",
        "delay_ms": 1_800,
        "time_to_first_token": None if failed else 350,
        "total_tokens": None if failed else 700,
        "prompt_tokens": None if failed else 600,
        "completion_tokens": None if failed else 100,
        "prompt_cache_read_tokens": 0,
        "request_body": {"messages": []},
        "response_body": {},
    }


def make(folder: Path) -> None:
    rows = [row(number) for number in range(60)]
    (folder / "export.jsonl").write_text("\n".join(json.dumps(told) for told in rows))
    (folder / "api.json").write_text(json.dumps({"data": rows, "error": None}))
