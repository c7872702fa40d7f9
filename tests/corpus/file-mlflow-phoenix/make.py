"""A chain with one model call, in six forms."""

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.corpus.otlp import T0_MS, span_id, trace_id

CALL = {
    "mlflow.spanType": '"CHAT_MODEL"',
    "mlflow.chat.tokenUsage": '{"input_tokens": 100, "output_tokens": 50}',
    "model": '"m"',
}


def two(n: int) -> list[dict[str, Any]]:
    """MLflow 2: ids in hex below `context`, times in ns."""
    start = (T0_MS + 10_000 * n) * 10**6
    ids = [{"trace_id": f"0x{trace_id(n)}", "span_id": f"0x{span_id((n, key))}"} for key in "rc"]
    return [
        {
            "name": "answer",
            "context": ids[0],
            "parent_id": None,
            "start_time": start,
            "end_time": start + 3 * 10**9,
            "status_code": "OK",
            "attributes": {"mlflow.spanType": '"CHAIN"'},
            "events": [],
        },
        {
            "name": "Completions",
            "context": ids[1],
            "parent_id": ids[0]["span_id"],
            "start_time": start + 10**8,
            "end_time": start + 29 * 10**8,
            "status_code": "OK",
            "attributes": CALL,
            "events": [],
        },
    ]


def three(n: int) -> list[dict[str, Any]]:
    """MLflow 3: ids in base64."""

    def base(told: str) -> str:
        return base64.b64encode(bytes.fromhex(told[2:])).decode()

    return [
        {
            "trace_id": base(span["context"]["trace_id"]),
            "span_id": base(span["context"]["span_id"]),
            "parent_span_id": base(span["parent_id"]) if span["parent_id"] else "",
            "name": span["name"],
            "start_time_unix_nano": span["start_time"],
            "end_time_unix_nano": span["end_time"],
            "status": {"code": "STATUS_CODE_OK", "message": ""},
            "attributes": span["attributes"],
            "events": [],
        }
        for span in two(n)
    ]


def iso(ms: float) -> str:
    return datetime.fromtimestamp((T0_MS + ms) / 1_000, UTC).isoformat()


def rows(n: int, moment: Callable[[float], object]) -> list[dict[str, Any]]:
    """Phoenix: a row a span, with a column for every attribute of any."""
    at = 10_000 * n
    ids = {"context.trace_id": trace_id(n)}
    return [
        {
            "name": "query",
            "span_kind": "CHAIN",
            "parent_id": None,
            "start_time": moment(at),
            "end_time": moment(at + 3_000),
            "status_code": "OK",
            "events": [],
            "context.span_id": span_id((n, "r")),
            **ids,
            "attributes.llm.model_name": None,
            "attributes.llm.token_count.prompt": None,
        },
        {
            "name": "ChatCompletion",
            "span_kind": "LLM",
            "parent_id": span_id((n, "r")),
            "start_time": moment(at + 100),
            "end_time": moment(at + 2_900),
            "status_code": "OK",
            "events": [{"name": "First Token Stream Event", "timestamp": iso(at + 400)}],
            "context.span_id": span_id((n, "c")),
            **ids,
            "attributes.llm.model_name": "m",
            "attributes.llm.token_count.prompt": 100.0,
            "attributes.llm.token_count.completion": 50.0,
        },
    ]


def answer(row: dict[str, Any]) -> dict[str, Any]:
    """The same as Phoenix's REST API has it."""
    told = {key: value for key, value in row.items() if "." not in key}
    return told | {
        "context": {name: row[f"context.{name}"] for name in ("trace_id", "span_id")},
        "attributes": {
            key.removeprefix("attributes."): value
            for key, value in row.items()
            if key.startswith("attributes.") and value is not None
        },
    }


def make(folder: Path) -> None:
    def write(name: str, value: object) -> None:
        (folder / name).write_text(json.dumps(value))

    write("mlflow-2.json", {"info": {"request_id": "tr-1"}, "data": {"spans": two(1)}})
    write("mlflow-3.json", [{"info": {}, "data": {"spans": three(n)}} for n in (2, 3)])
    write("traces.json", {"spans": two(4), "request": "{}", "response": "{}"})
    (folder / "phoenix-rows.jsonl").write_text(
        "\n".join(json.dumps(row) for n in (5, 6) for row in rows(n, lambda ms: T0_MS + ms))
    )
    write("phoenix-dates.json", [row for n in (7, 8) for row in rows(n, iso)])
    write(
        "phoenix-api.json",
        {"data": [answer(row) for n in (9, 10) for row in rows(n, iso)], "next_cursor": None},
    )
