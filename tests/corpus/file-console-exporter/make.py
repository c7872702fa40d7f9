"""What the Python SDK's ConsoleSpanExporter prints, as pasted into issues: indented objects one after the other."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.corpus.otlp import T0_MS, span_id, trace_id


def at(ms: float) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=T0_MS + ms)).strftime(
        "%Y-%m-%dT%H:%M:%S.%fZ"
    )


def printed(
    name: str,
    kind: str,
    start: float,
    ms: float,
    parent: str,
    attributes: dict[str, Any],
    events: list[dict[str, Any]],
) -> str:
    context = {"trace_id": f"0x{trace_id(1)}", "span_id": f"0x{span_id(name)}", "trace_state": "[]"}
    told = {
        "name": name,
        "context": context,
        "kind": f"SpanKind.{kind}",
        "parent_id": f"0x{span_id(parent)}" if parent else None,
        "start_time": at(start),
        "end_time": at(start + ms),
        "status": {"status_code": "UNSET"},
        "attributes": attributes,
        "events": events,
        "links": [],
        "resource": {
            "attributes": {"service.name": "app", "telemetry.sdk.language": "python"},
            "schema_url": "",
        },
    }
    return json.dumps(told, indent=4)


def make(folder: Path) -> None:
    call = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.usage.output_tokens": 20,
    }
    first = [{"name": "First Token Stream Event", "timestamp": at(500), "attributes": {}}]
    (folder / "console.txt").write_text(
        "\n".join(
            (
                printed("chat m", "CLIENT", 100, 1_800, "POST /chat", call, first),
                printed("POST /chat", "SERVER", 0, 2_000, "", {"http.route": "/chat"}, []),
            )
        )
    )
