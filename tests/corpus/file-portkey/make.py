"""Forty chats through Portkey, one of them refused, and ten embeddings."""

import json
from datetime import UTC, datetime
from pathlib import Path

T0 = 1_790_000_000


def made(n: int, at: float, path: str, model: str) -> dict[str, object]:
    refused = n == 17
    return {
        "id": f"0b9c2f5e-0000-4000-8000-{n:012}",
        "trace_id": f"t-{n}",
        "created_at": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z"),
        "is_success": int(not refused),
        "ai_org": "openai",
        "ai_model": model,
        "req_units": 0 if refused else 800,
        "res_units": 0 if refused or "embed" in path else 100,
        "total_units": 0 if refused else 900,
        "cost": 0.33,
        "cost_currency": "USD",
        "request_url": f"https://api.openai.com/v1/{path}",
        "request_method": "POST",
        "response_status_code": 429 if refused else 200,
        "response_time": 120 if refused else 2_300,
        "cache_status": "DISABLED",
        "cache_type": "",
        "stream_mode": "FALSE",
        "retry_success_count": 0,
        "prompt_slug": "",
        "mode": "single",
        "virtual_key": "openai-prod",
    }


def make(folder: Path) -> None:
    rows = [made(n, T0 + 5 * n, "chat/completions", "gpt-4o") for n in range(40)]
    rows += [made(100 + n, T0 + 20 * n, "embeddings", "text-embedding-3-small") for n in range(10)]
    (folder / "portkey.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
