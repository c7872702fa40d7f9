"""Twenty prompts of three requests each in one session, with a tool between, as a Collector writes the log records of Gemini CLI; and those of two others."""

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


def write(path: Path, service: str, scope: str, records: list[dict[str, object]]) -> None:
    own = {"attributes": attributes({"service.name": service})}
    scopes = [{"scope": {"name": scope}, "logRecords": records}]
    path.write_text(json.dumps({"resourceLogs": [{"resource": own, "scopeLogs": scopes}]}) + "\n")


def claude() -> list[dict[str, object]]:
    """Ten prompts of two requests each, every value a text."""
    records = []
    for n in range(20):
        of = {"prompt.id": f"0199-{n // 2 + 1:04}"}
        usage = {"input_tokens": "12", "output_tokens": "200", "cache_read_tokens": "20000"}
        more = {"cache_creation_tokens": "300", "cost_usd": "0.1", "duration_ms": "5000"}
        call = record(
            7_000.0 * (n + 1), "api_request", model="claude-opus-4-7", **usage, **more, **of
        )
        records.append(call)
    return records


def codex() -> list[dict[str, object]]:
    """Twenty answers that began after 400 ms and took 6.4 s, pieces among them, and a refusal."""
    records, done = [], {"event.kind": "response.completed", "input_token_count": "9000"}
    for n in range(20):
        at, status = 10_000.0 * n, {"http.response.status_code": "200"}
        records += [
            record(at + 400, "codex.api_request", model="gpt-5.5", duration_ms="400", **status),
            record(at + 900, "codex.sse_event", model="gpt-5.5", duration_ms="100"),
            record(
                at + 6_400,
                "codex.sse_event",
                model="gpt-5.5",
                output_token_count="150",
                ttft_ms="900",
                **done,
            ),
        ]
    refused = {"http.response.status_code": "429", "error.message": "Too many requests"}
    records.append(record(250_000, "codex.api_request", model="gpt", duration_ms="90", **refused))
    return records


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
    write(folder / "logs.json", "gemini-cli", "gemini-cli", records)
    write(folder / "claude.json", "claude-code", "com.anthropic.claude_code.events", claude())
    write(folder / "codex.json", "codex_cli_rs", "codex_otel", codex())
