"""Forty model calls and ten other requests in a gateway's access log."""

import json
from datetime import UTC, datetime
from pathlib import Path

T0 = 1_790_000_000


def access(n: int, path: str, took: int) -> dict[str, object]:
    return {
        "authority": "dashscope.example.com",
        "bytes_received": "336",
        "bytes_sent": "1675",
        "duration": str(took),
        "istio_policy_status": "-",
        "method": "POST",
        "path": path,
        "protocol": "HTTP/1.1",
        "request_id": f"5895f5a9-0000-4000-8000-{n:012}",
        "response_code": "200",
        "response_flags": "-",
        "route_name": "openai",
        "start_time": datetime.fromtimestamp(T0 + 5 * n, UTC).strftime("%Y-%m-%dT%H:%M:%S.078Z"),
        "trace_id": "-",
        "upstream_cluster": "outbound|443||llm-qwen.internal.dns",
        "upstream_service_time": "496",
        "user_agent": "client/1",
        "x_forwarded_for": "-",
    }


def make(folder: Path) -> None:
    calls = [access(n, "/v1/chat/completions", 2_300) for n in range(40)]
    others = [access(100 + n, "/", 3) | {"ai_log": "-"} for n in range(10)]
    said = {
        "chat_id": "chatcmpl-1",
        "input_token": "800",
        "llm_first_token_duration": "450",
        "llm_service_duration": "2295",
        "model": "qwen-max",
        "output_token": "100",
        "response_type": "stream",
    }
    (folder / "access.log").write_text(
        "".join(
            json.dumps(row) + "\n"
            for row in [call | {"ai_log": json.dumps(said)} for call in calls] + others
        )
    )
    (folder / "old.log").write_text(
        "".join(
            json.dumps({"model": "qwen-max", "input_token": "800", "output_token": "100"} | call)
            + "\n"
            for call in calls
        )
    )
