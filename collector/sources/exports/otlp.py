"""What do the forms of this folder share? The pieces of an OTLP/JSON request, from plain values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

KINDS = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
ERROR = 2


def any_value(value: Any) -> dict[str, Any]:
    """An AnyValue of a plain value."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return {"intValue": str(value)}
    if isinstance(value, int | float):
        return {"doubleValue": float(value)}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(item) for item in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": attributes(value)}}
    return {} if value is None else {"stringValue": str(value)}


def attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """KeyValues of a mapping."""
    return [{"key": str(key), "value": any_value(value)} for key, value in values.items()]


def hex_id(told: object, digits: int) -> str:
    """An id of so many hex digits: as it is, shorter ones with zeros before it, a UUID without its strokes, any other name as a hash. "" for none."""
    text = str(told or "").removeprefix("0x").replace("-", "").lower()
    if not text:
        return ""
    if len(text) <= digits and all(digit in "0123456789abcdef" for digit in text):
        return text.zfill(digits)
    return hashlib.blake2b(str(told).encode(), digest_size=digits // 2).hexdigest()


def us(told: Any) -> int:
    """Nanoseconds of microseconds, 0 if there are none."""
    return round(float(told) * 1_000) if isinstance(told, float) else int(told or 0) * 1_000


def iso_ns(told: Any) -> int:
    """Nanoseconds since 1970 of an ISO time (UTC by default), 0 for none."""
    if not isinstance(told, str) or not told:
        return 0
    moment = datetime.fromisoformat(told)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return ((since.days * 86_400 + since.seconds) * 10**6 + since.microseconds) * 1_000


def request(spans: Iterable[tuple[Mapping[str, Any], str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """One request of spans, each with its resource's attributes and its scope's name."""
    grouped: dict[str, tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]] = {}
    for resource, scope, span in spans:
        _, scopes = grouped.setdefault(
            repr(sorted(resource.items(), key=str)), (attributes(resource), {})
        )
        scopes.setdefault(scope, []).append(span)
    return [
        {
            "resourceSpans": [
                {
                    "resource": {"attributes": told},
                    "scopeSpans": [
                        {"scope": {"name": name}, "spans": found} for name, found in scopes.items()
                    ],
                }
                for told, scopes in grouped.values()
            ]
        }
    ]


def listed(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; none of anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
