"""What do the forms of this folder share? The pieces of an OTLP/JSON request, from plain values."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

KINDS = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
ERROR = 2
# A time's seconds with a fraction: `10:04:05.123456789`, which may have more digits than a datetime keeps.
_LONG_FRACTION = re.compile(r"(:\d\d)\.(\d+)(.*)$")
_LATEST_NS = 7_258_118_400 * 10**9  # the year 2200
# .NET counts 100 ns since the year 1: these are 2000 to 2200. As nanoseconds since 1970 they would be of 1990.
_TICKS = range(630_822_816 * 10**9, 694_000_000 * 10**9)
_TICKS_1970 = 621_355_968 * 10**9


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


def any_id(told: object, digits: int) -> str:
    """An id in hex or, where it is of the length that so many digits have there, in base64."""
    text = str(told or "")
    if text.endswith("=") and len(text) == -(-digits // 6) * 4:
        with contextlib.suppress(ValueError):
            return base64.b64decode(text, validate=True).hex().zfill(digits)
    return hex_id(told, digits)


def moment_ns(told: Any) -> int:
    """Nanoseconds since 1970 of an ISO time (UTC by default) or a number of s, ms, us, ns or .NET's ticks, whichever is a day of our time; 0 for none."""
    if isinstance(told, datetime):
        return _since_1970_ns(told)
    if isinstance(told, str) and told.replace(".", "", 1).isdecimal():
        told = float(told) if "." in told else int(told)
    if isinstance(told, str):
        whole, fraction = _LONG_FRACTION.sub(r"\1\3", told), _LONG_FRACTION.search(told)
        return iso_ns(whole) + (int(fraction[2].ljust(9, "0")[:9]) if fraction else 0)
    if isinstance(told, bool) or not isinstance(told, int | float) or not 0 < told < 2**63:
        return 0
    if isinstance(told, int) and told in _TICKS:
        return (told - _TICKS_1970) * 100
    unit = next((unit for unit in (10**9, 10**6, 10**3) if told * unit < _LATEST_NS), 1)
    return told * unit if isinstance(told, int) else round(told * 1e6) * unit // 10**6


def us(told: Any) -> int:
    """Nanoseconds of microseconds, 0 if there are none."""
    return round(float(told) * 1_000) if isinstance(told, float) else int(told or 0) * 1_000


def iso_ns(told: Any) -> int:
    """Nanoseconds since 1970 of an ISO time (UTC by default), 0 for none."""
    if not isinstance(told, str) or not told:
        return 0
    return _since_1970_ns(datetime.fromisoformat(told))


def _since_1970_ns(moment: datetime) -> int:
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
