"""Sixty answers each of Ollama, Groq and llama.cpp's server, one after the other."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

T0 = 1_790_000_000


def ollama() -> list[dict[str, Any]]:
    rows, at, before = [], float(T0) + 0.5, "a:8b"
    for n in range(60):
        model = "b:14b" if n > 24 and n % 4 == 0 else "a:8b"
        load = 11.0 if model != before else 0.02
        whole, before = load + 0.3 + 2.0 + 0.004, model
        at += whole
        rows.append(
            {
                "model": model,
                "created_at": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f789Z"),
                "message": {"role": "assistant", "content": "..."},
                "done_reason": "stop",
                "done": True,
                "total_duration": round(whole * 1e9),
                "load_duration": round(load * 1e9),
                "prompt_eval_count": 600,
                "prompt_eval_duration": 300_000_000,
                "eval_count": 90,
                "eval_duration": 2_000_000_000,
            }
        )
        at += 3.0
    return rows


def groq() -> list[dict[str, Any]]:
    return [
        {
            "id": f"chatcmpl-{n}",
            "object": "chat.completion",
            "created": T0 + 5 * n,
            "model": "llama-3.3-70b-versatile",
            "choices": [{"index": 0, "finish_reason": "stop"}],
            "usage": {
                "queue_time": 0.05 if n < 40 else 3.0,
                "prompt_tokens": 900,
                "prompt_time": 0.045,
                "completion_tokens": 250,
                "completion_time": 0.905,
                "total_tokens": 1150,
                "total_time": 0.95,
                "prompt_tokens_details": None,
            },
            "x_groq": {"id": f"req_{n}"},
        }
        for n in range(60)
    ]


def llama() -> list[dict[str, Any]]:
    return [
        {
            "choices": [{"finish_reason": "stop", "index": 0}],
            "created": T0 + 5 * n,
            "model": "qwen3-8b",
            "object": "chat.completion",
            "id": f"chatcmpl-{n}",
            "timings": {
                "cache_n": 1_200,
                "prompt_n": 400,
                "prompt_ms": 300.0,
                "prompt_per_token_ms": 0.75,
                "prompt_per_second": 1_333.3,
                "predicted_n": 90,
                "predicted_ms": 2_250.0,
                "predicted_per_token_ms": 25.0,
                "predicted_per_second": 40.0,
            },
        }
        for n in range(60)
    ]


def make(folder: Path) -> None:
    for name, rows in (("ollama", ollama()), ("groq", groq()), ("llama", llama())):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
