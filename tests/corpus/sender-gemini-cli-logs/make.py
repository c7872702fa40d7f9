"""Twenty prompts of three requests each in one session, with a tool between, as a Collector writes the log records of Gemini CLI."""

import json
from pathlib import Path

from tests.corpus.otlp import attributes, ns


def record(at_ms: float, name: str, **told: object) -> dict[str, object]:
    common = {
        "session.id": "7c0f3c1e-0000-4000-8000-000000000001",
        "installation.id": "i-1",
        "event.name": name,
        "event.timestamp": "2026-09-21T14:13:20.000Z",
    }
    return {
        "timeUnixNano": ns(at_ms),
        "observedTimeUnixNano": ns(at_ms + 1),
        "body": {"stringValue": f"{name}."},
        "attributes": attributes(common | told),
    }


def make(folder: Path) -> None:
    records, at = [], 0.0
    for prompt in range(20):
        at += 30_000
        of = {"prompt_id": f"7c0f3c1e########{prompt}"}
        records.append(record(at, "gemini_cli.user_prompt", prompt_length=120, **of))
        for step in range(3):
            records.append(record(at, "gemini_cli.api_request", model="gemini-2.5-pro", **of))
            if (prompt, step) == (7, 1):
                at += 900
                records.append(
                    record(
                        at,
                        "gemini_cli.api_error",
                        model="gemini-2.5-pro",
                        error="Resource exhausted",
                        error_type="ApiError",
                        status_code=429,
                        duration_ms=900,
                        auth_type="oauth-personal",
                        **of,
                    )
                )
                continue
            at += 4_200
            records.append(
                record(
                    at,
                    "gemini_cli.api_response",
                    model="gemini-2.5-pro",
                    status_code=200,
                    duration_ms=4_200,
                    input_token_count=10_000,
                    output_token_count=150,
                    cached_content_token_count=5_000,
                    thoughts_token_count=80,
                    tool_token_count=0,
                    total_token_count=10_230,
                    auth_type="oauth-personal",
                    **of,
                )
            )
            if step < 2:
                at += 700
                records.append(
                    record(
                        at,
                        "gemini_cli.tool_call",
                        function_name="read_file",
                        function_args="{}",
                        duration_ms=700,
                        success=True,
                        decision="auto_accept",
                        tool_type="native",
                        **of,
                    )
                )
    (folder / "logs.json").write_text(
        json.dumps(
            {
                "resourceLogs": [
                    {
                        "resource": {"attributes": attributes({"service.name": "gemini-cli"})},
                        "scopeLogs": [{"scope": {"name": "gemini-cli"}, "logRecords": records}],
                    }
                ]
            }
        )
        + "\n"
    )
