"""Rows of calls as Braintrust, Honeycomb, Sentry and Datadog's LLM events have them, two home-made tables, and one whose durations have no unit."""

import json
from datetime import UTC, datetime
from pathlib import Path

T0 = 1_790_000_000
COUNTS = {"input_tokens": 800, "output_tokens": 100}


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def made(n: int) -> dict[str, object]:
    at = T0 + 5 * n
    trace, span = f"{n + 1:032x}", f"{n + 1:016x}"
    gen = {f"gen_ai.usage.{name}": count for name, count in COUNTS.items()}
    return {
        "braintrust": {
            "id": f"r{n}",
            "span_id": f"s{n}",
            "root_span_id": f"s{n}",
            "span_parents": [],
            "created": iso(at),
            "span_attributes": {"name": "chat", "type": "llm"},
            "metrics": {
                "start": at + 0.1,
                "end": at + 2.4,
                "prompt_tokens": 800,
                "completion_tokens": 100,
                "time_to_first_token": 0.45,
            },
            "metadata": {"model": "gpt-4o"},
        },
        "honeycomb": {
            "Timestamp": iso(at),
            "trace.trace_id": trace,
            "trace.span_id": span,
            "name": "chat gpt-4o",
            "duration_ms": 2_300.0,
            "gen_ai.request.model": "gpt-4o",
        }
        | gen,
        "sentry": {
            "trace_id": trace,
            "span_id": span,
            "op": "gen_ai.chat",
            "start_timestamp": at + 0.1,
            "timestamp": at + 2.4,
            "data": {"gen_ai.request.model": "gpt-4o"} | gen,
        },
        "datadog": {
            "id": f"e{n}",
            "type": "span",
            "attributes": {
                "trace_id": str(n + 1),
                "span_id": str(n + 1),
                "span_kind": "llm",
                "start_ns": at * 10**9,
                "duration": 2_300_000_000,
                "model_name": "gpt-4o",
                "metrics": COUNTS,
            },
        },
        **{
            name: {"id": f"r{n}", "created_at": iso(at), "model": "gpt-4o", "duration": took}
            | COUNTS
            for name, took in (("unit-by-rate", 2_300), ("no-unit", 100))
        },
    }


def make(folder: Path) -> None:
    rows = [made(n) for n in range(20)]
    for name in rows[0]:
        told = [row[name] for row in rows]
        (folder / f"{name}.json").write_text(
            json.dumps({"data": told} if name in ("datadog", "no-unit", "unit-by-rate") else told)
        )
    table = "\n".join(
        f"r{n},{iso(T0 + 5 * n)},{iso(T0 + 5 * n + 2.3)},llama,800,100,ok" for n in range(20)
    )
    (folder / "own.csv").write_text(
        f"request_id,started_at,finished_at,model_name,prompt_tokens,completion_tokens,status\n{table}\n"
    )
