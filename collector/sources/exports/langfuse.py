"""Langfuse's exports: a trace with its `observations` (its API, and what `Download trace as JSON` gives), and lists of observations.

Source: public examples (langfuse#5658, #15337) and Langfuse's API: ISO times, types in capitals, usage under old and new names; metadata may be JSON in a
string. Inputs and outputs are not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from overrun.collector.sources.exports import otlp

_USAGE = (
    ("input", ("input", "promptTokens", "inputUsage", "prompt_tokens")),
    ("output", ("output", "completionTokens", "outputUsage", "completion_tokens")),
)


def documents(value: Any) -> list[dict[str, Any]] | None:
    """The request of one export, None if it is none."""
    found = list(_observations(value))
    if not found:
        return None
    parents = {(_trace_id(o), o.get("parentObservationId")) for o, _ in found}
    whole = [(o, t) for o, t in found if t.get("id") and (_trace_id(o), None) in parents]
    return otlp.request(
        [*_roots(whole), *(_span(o, t, rooted=_several(whole, o)) for o, t in found)]
    )


def _observations(value: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(observation, what is told of its trace) of everything in an export."""
    if isinstance(value, list):
        for item in value:
            yield from _observations(item)
    elif isinstance(value, dict):
        if "traceId" in value and "startTime" in value and "type" in value:
            yield value, {}
        elif isinstance(value.get("observations"), list):
            trace = value["trace"] if isinstance(value.get("trace"), dict) else value
            yield from ((o, trace) for o, _ in _observations(value["observations"]))
        else:
            for key in ("data", "json", "result", "generations"):
                if isinstance(value.get(key), dict | list):
                    yield from _observations(value[key])


def _trace_id(observation: dict[str, Any]) -> str:
    return otlp.hex_id(observation.get("traceId"), 32)


def _several(found: list[tuple[dict[str, Any], dict[str, Any]]], one: dict[str, Any]) -> bool:
    """Whether more than one observation of this one's trace has no parent: the trace itself is around them then."""
    return (
        sum(_trace_id(o) == _trace_id(one) and not o.get("parentObservationId") for o, _ in found)
        > 1
    )


def _roots(
    found: list[tuple[dict[str, Any], dict[str, Any]]],
) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """A span for each trace that has several observations without a parent."""
    for trace_id, trace in {_trace_id(o): t for o, t in found if _several(found, o)}.items():
        mine = [o for o, _ in found if _trace_id(o) == trace_id]
        start = min(otlp.iso_ns(o.get("startTime")) for o in mine)
        end = max(otlp.iso_ns(o.get("endTime") or o.get("startTime")) for o in mine)
        yield (
            _resource(trace, trace),
            "langfuse-sdk",
            {
                "traceId": trace_id,
                "spanId": otlp.hex_id(f"trace {trace_id}", 16),
                "name": str(trace.get("name") or "trace"),
                "kind": 2,
                "startTimeUnixNano": start,
                "endTimeUnixNano": end,
                "attributes": otlp.attributes(_of_trace(trace)),
            },
        )


def _span(
    observation: dict[str, Any], trace: dict[str, Any], *, rooted: bool
) -> tuple[dict[str, Any], str, dict[str, Any]]:
    o, trace_id = observation, _trace_id(observation)
    parent = otlp.hex_id(o.get("parentObservationId"), 16) or (
        otlp.hex_id(f"trace {trace_id}", 16) if rooted else ""
    )
    start = otlp.iso_ns(o.get("startTime"))
    told = {
        "langfuse.observation.type": str(o.get("type", "")).lower(),
        "langfuse.observation.model.name": o.get("model") or o.get("providedModelName"),
        "langfuse.observation.usage_details": json.dumps(usage) if (usage := _usage(o)) else None,
        "langfuse.observation.completion_start_time": o.get("completionStartTime"),
        "langfuse.observation.level": o.get("level"),
        "langfuse.observation.model.parameters": json.dumps(o["modelParameters"])
        if isinstance(o.get("modelParameters"), dict)
        else None,
        **_of_trace(trace),
    }
    return (
        _resource(o, trace),
        "langfuse-sdk",
        {
            "traceId": trace_id,
            "spanId": otlp.hex_id(o.get("id"), 16),
            "parentSpanId": parent,
            "name": str(o.get("name") or ""),
            "kind": 1,
            "startTimeUnixNano": start,
            "endTimeUnixNano": otlp.iso_ns(o.get("endTime")) or start,
            "attributes": otlp.attributes(
                {key: value for key, value in told.items() if value not in (None, "")}
            ),
        },
    )


def _of_trace(trace: dict[str, Any]) -> dict[str, Any]:
    told = {
        "langfuse.trace.name": trace.get("name"),
        "session.id": trace.get("sessionId"),
        "user.id": trace.get("userId"),
    }
    return {key: value for key, value in told.items() if value}


def _usage(observation: dict[str, Any]) -> dict[str, Any]:
    """The counts: of the details, else under their old names."""
    details = observation.get("usageDetails")
    if isinstance(details, dict) and details:
        return details
    places = [observation.get("usage"), observation]
    out = {}
    for side, names in _USAGE:
        found = [
            place[name]
            for place in places
            if isinstance(place, dict)
            for name in names
            if type(place.get(name)) is int
        ]
        if found:
            out[side] = found[0]
    return out


def _resource(observation: dict[str, Any], trace: dict[str, Any]) -> dict[str, Any]:
    """The service, where a sender of OpenTelemetry told it; else Langfuse itself."""
    metadata = observation.get("metadata")
    if isinstance(metadata, str):
        try:
            metadata = json.loads(metadata)
        except ValueError:
            metadata = None
    resource = metadata.get("resourceAttributes") if isinstance(metadata, dict) else None
    named = resource.get("service.name") if isinstance(resource, dict) else None
    out = {
        "service.name": str(named or "langfuse"),
        "service.version": trace.get("version") or trace.get("release"),
        "deployment.environment": trace.get("environment"),
    }
    return {key: value for key, value in out.items() if value}
