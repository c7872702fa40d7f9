"""Langfuse's exports: a trace from its API, `Download trace as JSON`, and observations a line."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.corpus.otlp import T0_MS, trace_id


def at(ms: float) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=T0_MS + ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def observation(
    n: int, id: str, type: str, name: str, start: float, ms: float, parent: str | None, **more: Any
) -> dict[str, Any]:
    base = 10_000 * n
    return {
        "id": f"{id}-{n}",
        "traceId": trace_id(n),
        "type": type,
        "name": name,
        "startTime": at(base + start),
        "endTime": at(base + start + ms),
        "parentObservationId": parent and f"{parent}-{n}",
        "level": "DEFAULT",
        "input": None,
        "output": None,
        "metadata": "{}",
    } | more


def observations(n: int, *, old: bool) -> list[dict[str, Any]]:
    usage = (
        {"usage": {"input": 90, "output": 40, "total": 130, "unit": "TOKENS"}}
        if old
        else {
            "usageDetails": {"input": 90, "output": 40, "total": 130},
            "modelParameters": {"max_tokens": 512},
        }
    )
    return [
        observation(n, "root", "SPAN", "answer", 0, 3_000, None),
        observation(n, "docs", "RETRIEVER", "docs", 10, 400, "root"),
        observation(
            n,
            "gen",
            "GENERATION",
            "OpenAI-generation",
            500,
            2_400,
            "root",
            model="gpt-4o",
            completionStartTime=at(10_000 * n + 800),
            **usage,
        ),
    ]


def make(folder: Path) -> None:
    of_api = {
        "id": trace_id(1),
        "timestamp": at(10_000),
        "name": "ask",
        "sessionId": "s1",
        "userId": "u1",
        "observations": observations(1, old=True),
    }
    (folder / "api.json").write_text(json.dumps(of_api))
    trace = {"id": trace_id(2), "name": "ask", "sessionId": "s2", "environment": "prod"}
    both = observations(2, old=False)
    (folder / "trace-2.json").write_text(
        json.dumps({"trace": trace | {"observations": both}, "observations": both}, indent=2)
    )
    (folder / "observations.jsonl").write_text(
        "\n".join(json.dumps(o) for n in (3, 4) for o in observations(n, old=False))
    )
    # Two steps side by side under the trace itself.
    loose = [o | {"parentObservationId": None} for o in observations(5, old=False)[1:]]
    (folder / "loose.json").write_text(
        json.dumps(
            {"id": trace_id(5), "timestamp": at(50_000), "name": "ask", "observations": loose}
        )
    )
    (folder / "traces.json").write_text(
        json.dumps([{"id": trace_id(6), "timestamp": at(0), "name": "ask", "totalCost": 0.1}])
    )
