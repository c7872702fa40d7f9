"""Thirty model calls as Kibana and Dify's database print them, and a panel of Grafana."""

import csv
from datetime import UTC, datetime
from pathlib import Path

T0 = 1_790_000_000


def write(path: Path, rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="", encoding="utf-8-sig") as out:
        table = csv.DictWriter(out, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def make(folder: Path) -> None:
    at = [datetime.fromtimestamp(T0 + 5 * n, UTC) for n in range(30)]
    write(
        folder / "discover.csv",
        [
            {
                "@timestamp": f"{when:%b} {when.day}, {when:%Y @ %H:%M:%S}.000",
                "span.name": "chat gpt-4o",
                "span.id": f"{n + 1:016x}",
                "span.duration.us": "2,300,000",
                "trace.id": f"{n + 1:032x}",
                "labels.gen_ai_request_model": "gpt-4o",
                "numeric_labels.gen_ai_usage_input_tokens": "900",
                "numeric_labels.gen_ai_usage_output_tokens": "1,120",
            }
            for n, when in enumerate(at)
        ][::-1],
    )
    write(
        folder / "messages.csv",
        [
            {
                "id": f"0f1c0000-0000-4000-8000-{n:012}",
                "model_provider": "langgenius/openai/openai",
                "model_id": "gpt-4o",
                "message_tokens": 0 if n % 10 == 9 else 900,
                "answer_tokens": 0 if n % 10 == 9 else 120,
                "provider_response_latency": 0 if n % 10 == 9 else 2.3,
                "status": "error" if n % 10 == 9 else "normal",
                "error": "[openai] Rate Limit Error" if n % 10 == 9 else "",
                "created_at": f"{when:%Y-%m-%d %H:%M:%S}.5+00",
            }
            for n, when in enumerate(at)
        ],
    )
    write(
        folder / "TTFT-data.csv",
        [{"Time": f"{when:%Y-%m-%d %H:%M:%S}", "P95": "0.42 s", "P50": "0.2 s"} for when in at],
    )
