"""Spans as the assembly gets them, and what it makes of them, for tests."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from overrun.analysis.assembly.assemble import assemble
from overrun.collector.decode.otlp_spans import decode_spans
from overrun.collector.normalise.spans import Rules, normalize
from overrun.collector.normalise.stages import STAGES
from tests.collector.oracle_build import ERROR, MS, SERVER, Made, body, chat
from tests.collector.oracle_store import Row


def spans_of(*bodies: bytes) -> pa.Table:
    """Bodies as the assembly gets their spans: with their sources, sorted by trace and span id."""
    made = normalize(decode_spans(bodies), Rules())
    spans = made.spans
    by_id = dict(made.sources)
    for column in ("service", "instance", "version", "scope_name"):
        spans = spans.append_column(
            column,
            pa.array(
                [by_id[i][column] for i in spans.column("source_id").to_pylist()], pa.string()
            ),
        )
    return spans.sort_by(
        [("trace_hi", "ascending"), ("trace_lo", "ascending"), ("span_id", "ascending")]
    )


def assembled(*made: Made) -> tuple[list[Row], list[Row]]:
    """Request rows and call rows, by start."""
    out = assemble(spans_of(body(*made)))
    return (
        sorted(out.requests.to_pylist(), key=lambda r: r["start_ns"]),
        sorted(out.llm_calls.to_pylist(), key=lambda r: r["start_ns"]),
    )


def request_of(*made: Made) -> Row:
    """The one request of these spans."""
    requests, _ = assembled(*made)
    assert len(requests) == 1
    return requests[0]


def stages_ms(request: Row, prefix: str = "") -> dict[str, float]:
    """Stages that hold time, in ms."""
    return {s: request[f"{prefix}{s}_ns"] / MS for s in STAGES if request[f"{prefix}{s}_ns"]}


def root(end: float, name: str = "POST /chat", **more: Any) -> Made:
    return Made(
        1,
        name,
        0,
        end,
        kind=SERVER,
        attributes={"http.route": "/chat", **more.pop("attributes", {})},
        **more,
    )


def proxy(
    id: int, start: float, end: float, parent: int, scope: str = "fastapi", **more: Any
) -> Made:
    return Made(
        id,
        "POST /chat/completions",
        start,
        end,
        parent,
        SERVER,
        service="proxy",
        scope=scope,
        **more,
    )


ENGINE = {
    "gen_ai.latency.e2e": 0.6,
    "gen_ai.latency.time_to_first_token": 0.25,
    "gen_ai.latency.time_in_queue": 0.1,
    "gen_ai.latency.time_in_model_prefill": 0.1,
    "gen_ai.latency.time_in_model_decode": 0.35,
    "gen_ai.request.id": "r1",
}


CLIENT_ID = {"gen_ai.response.id": "r1"}


def tool(id: int, start: float, end: float, parent: int, **more: Any) -> Made:
    return Made(
        id, "t", start, end, parent, **{"attributes": {"openinference.span.kind": "TOOL"}, **more}
    )


NOTHING = (None, None, None, None, None)


def told(*made: Made) -> list[tuple[Any, ...]]:
    """(attempts, who says so, wasted ms, wasted tokens, cause) of each call."""
    _, calls = assembled(*made)
    return [fact(c) for c in calls]


def fact(call: Row) -> tuple[Any, ...]:
    wasted = call["wasted_ns"]
    return (
        call["attempts"],
        call["attempts_source"],
        None if wasted is None else wasted / MS,
        call["wasted_tokens"],
        call["retry_cause"],
    )


def of_litellm(
    id: int,
    start: float,
    end: float,
    parent: int = 0,
    *,
    error: str | None = None,
    asked: str = "one",
    **more: Any,
) -> Made:
    attributes = (
        {"litellm.call_id": asked}
        | ({"error.type": error} if error else {})
        | more.pop("attributes", {})
    )
    return chat(
        id,
        start,
        end,
        parent,
        out=None if error else 5,
        status=ERROR if error else 0,
        scope="litellm",
        attributes=attributes,
        **more,
    )


def counted(*made: Made) -> tuple[int, int]:
    """Requests and calls."""
    requests, calls = assembled(*made)
    return len(requests), len(calls)
