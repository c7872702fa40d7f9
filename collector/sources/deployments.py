"""Which spans and log records report a deployment? Pipelines and applications say so in OpenTelemetry's attributes `deployment.*` and `cicd.*`.

A log record becomes a span without a duration, so that both are stored alike: no request, found again by its dialect (dialects/cicd.toml). Its text is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from overrun.collector.dialects.cicd import is_deployment

NAME: Final = "deployment"
SCOPE: Final = "overrun.deployments"
# What is kept of a record, and of the resource that sent it.
_KEPT: Final = ("deployment.", "cicd.pipeline.", "vcs.ref.head.", "vcs.repository.name")
_OF_RESOURCE: Final = ("service.name", "service.version", "service.instance.id")
_LONGEST: Final = 256
_MOST_ATTRIBUTES: Final = 200  # of a record
_INTERNAL: Final = 1


def spans(
    request: ExportLogsServiceRequest,
) -> Iterator[tuple[dict[str, Any], str, dict[str, Any]]]:
    """The deployments among the records of a logs request as spans, each with its resource's attributes and its scope's name."""
    for resource in request.resource_logs:
        about: dict[str, Any] | None = None
        for scope in resource.scope_logs:
            for record in scope.log_records:
                if (attributes := _of(record)) is None:
                    continue
                if about is None:
                    found = {one.key: _text(one.value) for one in resource.resource.attributes}
                    about = {key: found[key] for key in _OF_RESOURCE if found.get(key)}
                yield about, SCOPE, _span(record, about, attributes)


def _of(record: LogRecord) -> dict[str, str] | None:
    """What is kept of a record's attributes; None where it is no deployment."""
    if not 0 < len(record.attributes) <= _MOST_ATTRIBUTES:
        return None
    if not any(one.key.startswith(("deployment.", "cicd.")) for one in record.attributes):
        return None
    values = {one.key: _text(one.value) for one in record.attributes}
    if not is_deployment(record.event_name or values.get("event.name", ""), values):
        return None
    kept = {
        key: text for key, text in values.items() if key.startswith((*_KEPT, "service.version"))
    }
    return kept if 0 < _time(record) < 2**63 else None


def _span(record: LogRecord, about: dict[str, Any], attributes: dict[str, str]) -> dict[str, Any]:
    at = _time(record)
    told = repr((at, sorted(about.items()), sorted(attributes.items()))).encode()
    number = hashlib.sha256(
        told
    ).hexdigest()  # the same record is the same span when it comes again
    return {
        "traceId": number[:32],
        "spanId": number[32:48],
        "name": NAME,
        "kind": _INTERNAL,
        "startTimeUnixNano": at,
        "endTimeUnixNano": at,
        "attributes": [
            {"key": key, "value": {"stringValue": text}} for key, text in attributes.items()
        ],
    }


def _time(record: LogRecord) -> int:
    return record.time_unix_nano or record.observed_time_unix_nano


def _text(value: AnyValue) -> str:
    which = value.WhichOneof("value")
    if which in ("string_value", "int_value", "double_value", "bool_value"):
        return str(getattr(value, which))[:_LONGEST]
    return ""
