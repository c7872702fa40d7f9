"""How does a case write telemetry that is too bulky to keep as a file? Spans in, OTLP/JSON (or any writer's own form) out; ids follow from names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

T0_MS = 1_790_000_000_000  # 2026-09-21
INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = 1, 2, 3, 4, 5
_KINDS = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}


def trace_id(name: object) -> str:
    """32 hex digits."""
    return hashlib.blake2b(str(name).encode(), digest_size=16).hexdigest()


def span_id(name: object) -> str:
    """16 hex digits."""
    return hashlib.blake2b(str(name).encode(), digest_size=8).hexdigest()


def value(of: Any) -> dict[str, Any]:
    """An AnyValue."""
    if isinstance(of, bool):
        return {"boolValue": of}
    if isinstance(of, int):
        return {"intValue": str(of)}
    if isinstance(of, float):
        return {"doubleValue": of}
    if isinstance(of, list | tuple):
        return {"arrayValue": {"values": [value(item) for item in of]}}
    return {"stringValue": str(of)}


def attributes(of: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A list of KeyValues."""
    return [{"key": key, "value": value(item)} for key, item in of.items()]


def ns(ms: float) -> str:
    """A time, so long after T0, as OTLP/JSON has it."""
    return str(T0_MS * 10**6 + round(ms * 1e6))


def span(
    trace: object,
    name: str,
    start_ms: float,
    ms: float,
    place: str = "",
    says: Mapping[str, Any] | None = None,
    *,
    key: object = "",
    parent: object = "",
    kind: int = INTERNAL,
    events: Sequence[tuple[float, str]] = (),
    links: Sequence[tuple[object, object]] = (),
    more: Mapping[str, Any] | None = None,
    **given: Any,
) -> dict[str, Any]:
    """A span. `place` is its kind, its key and its parent's, "client call < root"; keys that are no words are given as `key` and `parent`. Both name ids within
    the trace. `more` are fields of the span; `says`, `attributes` and the rest (`__` for a dot) its attributes."""
    own, _, above = place.partition("<")
    words = own.split()
    kind = _KINDS[words.pop(0)] if words and words[0] in _KINDS else kind
    key, parent = " ".join(words) or key or name, above.strip() or parent
    told = {
        name_.replace("__", "."): item for name_, item in given.items() if name_ != "attributes"
    } | dict(given.get("attributes", says or {}))
    out: dict[str, Any] = {
        "traceId": trace_id(trace),
        "spanId": span_id((trace, key)),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": ns(start_ms),
        "endTimeUnixNano": ns(start_ms + ms),
        "attributes": attributes(told),
    }
    if parent:
        out["parentSpanId"] = span_id((trace, parent))
    if events:
        out["events"] = [{"timeUnixNano": ns(at), "name": word} for at, word in events]
    if links:
        out["links"] = [{"traceId": trace_id(of), "spanId": span_id((of, to))} for of, to in links]
    return out | dict(more or {})


def chat(
    trace: object,
    start_ms: float,
    ms: float,
    *,
    parent: object,
    key: object = "chat",
    ttft_s: float | None = None,
    output: int = 50,
    **more: Any,
) -> dict[str, Any]:
    """A model call in the conventions' words."""
    told = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.provider.name": "openai",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": output,
    } | ({} if ttft_s is None else {"gen_ai.response.time_to_first_chunk": ttft_s})
    return span(
        trace,
        "chat m",
        start_ms,
        ms,
        key=key,
        parent=parent,
        kind=CLIENT,
        **({"attributes": told} | more),
    )


def resource(
    service: str, spans: Sequence[Mapping[str, Any]], scope: str = "", **more: Any
) -> dict[str, Any]:
    """Spans of one service and scope; further arguments (`__` for a dot) are attributes of the resource."""
    told = {"service.name": service} | {key.replace("__", "."): item for key, item in more.items()}
    return {
        "resource": {"attributes": attributes(told)},
        "scopeSpans": [{"scope": {"name": scope}, "spans": list(spans)}],
    }


def write(path: Path, *resources: Mapping[str, Any]) -> None:
    """One export request as a file of JSON."""
    path.write_text(json.dumps({"resourceSpans": resources}))
