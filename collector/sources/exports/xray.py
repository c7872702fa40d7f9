"""Traces of AWS X-Ray, as `aws xray batch-get-traces` prints them: segment documents in strings, subsegments inside one another.

Source: docs.aws.amazon.com, X-Ray, segment documents and BatchGetTraces. Times are seconds. The Collector's exporter and the AWS distributions of OpenTelemetry
put attributes into `metadata.default`, or into `annotations` with underscores.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from overrun.collector.sources.exports import otlp

Found = tuple[dict[str, Any], str, dict[str, Any]]
# X-Ray's own fields of a call to an AWS service, and what carries them elsewhere.
_AWS = {"operation": "aws.operation", "region": "cloud.region", "table_name": "aws.table_name"}
_STORES = {"dynamodb": "dynamodb", "opensearch": "opensearch", "elasticache": "redis"}
_MODELS = ("Converse", "ConverseStream", "InvokeModel", "InvokeModelWithResponseStream")
_DEEPEST = 64


def documents(value: Any) -> list[dict[str, Any]] | None:
    """The request of such an answer, of one trace, or of segments alone; None if it is none of them."""
    if isinstance(value, dict) and isinstance(value.get("Traces"), list):
        segments = [s for trace in otlp.listed(value["Traces"]) for s in _segments(trace)]
    elif isinstance(value, dict) and isinstance(value.get("Segments"), list):
        segments = _segments(value)
    else:
        segments = otlp.listed(value if isinstance(value, list) else [value])
        if not segments or not all(
            str(s.get("trace_id", "")).startswith("1-") and "start_time" in s for s in segments
        ):
            return None
    return otlp.request(found for segment in segments for found in _spans(segment))


def _segments(trace: dict[str, Any]) -> list[dict[str, Any]]:
    told = [s.get("Document") for s in otlp.listed(trace.get("Segments"))]
    return [json.loads(text) if isinstance(text, str) else text for text in told if text]


def _spans(segment: dict[str, Any]) -> Iterator[Found]:
    trace = otlp.hex_id(str(segment["trace_id"]).removeprefix("1-"), 32)
    resource = {"service.name": segment.get("name"), "cloud.platform": segment.get("origin")}
    resource = {key: told for key, told in resource.items() if told}
    # A segment that X-Ray made up of a caller's subsegment repeats it.
    if segment.get("inferred"):
        return
    stack = [(segment, str(segment.get("parent_id") or ""), 0)]
    while stack:
        told, parent, depth = stack.pop()
        yield resource, "aws-xray", _span(told, trace, parent, depth)
        if depth < _DEEPEST:
            inner = otlp.listed(told.get("subsegments"))
            stack += [(one, str(told.get("id")), depth + 1) for one in inner]


def _span(told: dict[str, Any], trace: str, parent: str, depth: int) -> dict[str, Any]:
    start, end = otlp.moment_ns(told["start_time"]), otlp.moment_ns(told.get("end_time"))
    remote = told.get("namespace") in ("aws", "remote")
    return {
        "traceId": trace,
        "spanId": otlp.hex_id(told.get("id"), 16),
        "parentSpanId": otlp.hex_id(parent, 16),
        "name": str(told.get("name") or ""),
        "kind": otlp.KINDS["client" if remote else "internal" if depth else "server"],
        "startTimeUnixNano": start,
        "endTimeUnixNano": end or start,
        "attributes": otlp.attributes(_attributes(told)),
        "status": {"code": otlp.ERROR if told.get("fault") or told.get("error") else 0},
    }


def _attributes(told: dict[str, Any]) -> dict[str, Any]:
    http, aws = told.get("http") or {}, told.get("aws") or {}
    request, answer = http.get("request") or {}, http.get("response") or {}
    metadata = (told.get("metadata") or {}).get("default")
    name, operation = str(told.get("name") or ""), str(aws.get("operation") or "")
    out: dict[str, Any] = {
        "http.request.method": request.get("method"),
        "url.full": request.get("url"),
        "http.response.status_code": answer.get("status"),
        "error.type": "throttle" if told.get("throttle") else None,
        "db.system": next((db for word, db in _STORES.items() if word in name.lower()), None),
        "db.operation": operation if "table_name" in aws else None,
        "db.collection.name": aws.get("table_name"),
        "db.query.text": (told.get("sql") or {}).get("sanitized_query"),
    }
    out |= {key: aws[field] for field, key in _AWS.items() if field in aws}
    if "bedrock" in name.lower() and operation in _MODELS:
        out |= {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "aws.bedrock",
            "gen_ai.request.model": aws.get("remote_resource_identifier") or aws.get("model_id"),
        }
    out |= {str(key): one for key, one in (told.get("annotations") or {}).items()}
    out |= metadata if isinstance(metadata, dict) else {}
    return {key: one for key, one in out.items() if one not in (None, "")}
