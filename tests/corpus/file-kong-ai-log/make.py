"""Kong's file-log plugin with its AI proxy: a JSON object a request, all times in milliseconds, what the model did below `ai.proxy`."""

import json
from pathlib import Path

T0_MS = 1_790_000_000_000


def make(folder: Path) -> None:
    lines = []
    for number in range(80):
        lines.append(
            json.dumps(
                {
                    "started_at": T0_MS + 3_000 * number,
                    "latencies": {"request": 2_600, "kong": 90, "proxy": 2_500, "receive": 10},
                    "request": {
                        "id": f"{number:032x}",
                        "uri": "/v1/chat/completions",
                        "url": "http://gw.example.net:8000/v1/chat/completions",
                        "method": "POST",
                        "size": 323,
                        "headers": {},
                    },
                    "response": {"status": 200, "size": 1_024, "headers": {}},
                    "route": {"name": "chat", "paths": ["/v1/chat/completions"]},
                    "service": {"name": "llm", "host": "api.openai.com"},
                    "consumer": {"username": "blue"},
                    "upstream_uri": "/v1/chat/completions",
                    "client_ip": "10.0.0.9",
                    "ai": {
                        "proxy": {
                            "meta": {
                                "plugin_id": "x",
                                "provider_name": "openai",
                                "request_model": "gpt-4o",
                                "response_model": "gpt-4o-2024-08-06",
                                "llm_latency": 2_480,
                                "request_mode": "stream",
                            },
                            "usage": {
                                "prompt_tokens": 700,
                                "completion_tokens": 101,
                                "total_tokens": 801,
                                "time_to_first_token": 480,
                                "time_per_token": 24.8,
                                "cost": 0.002,
                            },
                        }
                    },
                }
            )
        )
    (folder / "kong.json").write_text("\n".join(lines))
