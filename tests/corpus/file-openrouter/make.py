"""Forty generations: as answers one a line, and as a script collects them."""

import json
from datetime import UTC, datetime
from pathlib import Path

T0 = 1_790_000_000


def made(n: int) -> dict[str, object]:
    return {
        "id": f"gen-{T0 + n}-abc",
        "upstream_id": f"chatcmpl-{n}",
        "total_cost": 0.0015,
        "cache_discount": None,
        "created_at": datetime.fromtimestamp(T0 + 5 * n, UTC).isoformat(),
        "model": "deepseek/deepseek-r1",
        "app_id": 12345,
        "streamed": True,
        "cancelled": False,
        "provider_name": "Infermatic",
        "latency": 2_300,
        "moderation_latency": 50,
        "generation_time": 2_250,
        "finish_reason": "stop",
        "native_finish_reason": "stop",
        "tokens_prompt": 790,
        "tokens_completion": 96,
        "native_tokens_prompt": 800,
        "native_tokens_completion": 100,
        "native_tokens_reasoning": 40,
        "native_tokens_cached": 0,
        "num_media_prompt": None,
        "num_search_results": None,
        "origin": "https://openrouter.ai/",
        "usage": 0.0015,
        "is_byok": False,
        "provider_responses": None,
    }


def make(folder: Path) -> None:
    rows = [made(n) for n in range(40)]
    (folder / "generations.jsonl").write_text(
        "".join(json.dumps({"data": row}) + "\n" for row in rows)
    )
    (folder / "list.json").write_text(json.dumps(rows, indent=2))
