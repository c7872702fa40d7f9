"""Reads single values of result files: numbers, times, counts and failures, whatever a generator wrote in their place."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, TypeVar

from overrun.collector.errors import BadPayload

NS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "sec": 1_000_000_000}


S, MS = NS["s"], NS["ms"]


# Seconds since 1970 beyond this are the year 5138: milliseconds, rather.
_LATEST_S: Final = 1e11


_EXCEPTION: Final = re.compile(
    r"([A-Za-z_][\w.]{0,60}(?:Error|Exception|Timeout|Disconnected|Refused))\b"
)


Document = Mapping[str, Any]


_T = TypeVar("_T")


def list_of(run: Document, name: str, length: int | None) -> list[Any]:
    """The list called `name`, or none; one of another length than the first is refused: it could not be told whose value is whose."""
    values = run.get(name)
    if not isinstance(values, list):
        return []
    if length is not None and values and len(values) != length:
        raise BadPayload(
            f"{name} has {len(values):,} entries and ttfts {length:,}: they cannot be matched to requests"
        )
    return values


def dict_of(holder: Document, name: str) -> dict[str, Any]:
    found = holder.get(name)
    return found if isinstance(found, dict) else {}


def number(value: Any) -> float | None:
    return (
        float(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        else None
    )


def ns(value: Any, unit: int) -> int | None:
    read = number(value)
    return None if read is None or read < 0.0 else round(read * unit)


def count(value: Any) -> int | None:
    read = number(value)
    return int(value) if read is not None and 0 <= read < 2**63 else None


def text_of(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) and value else None


def percentile_of(digits: str) -> float:
    """Read the digits of a percentile's name: `99`, `99.9`, and `999` or `001` for 99.9 and 0.1."""
    if "." in digits or len(digits) <= 2:
        return float(digits)
    return float(digits) if digits == "100" else float(f"{digits[:2]}.{digits[2:]}")


def failure(value: Any) -> tuple[str | None, int | None]:
    """The failure that a value of an error column means, as a short name, and its HTTP status; None, None: none.

    Long texts may quote the prompt and are not kept. Generators write a status, its phrase with the answer behind it, an exception's `repr`, or a
    traceback, whose last line names the exception.
    """
    if (
        value is None
        or value is False
        or value == ""
        or str(value).lower() in ("false", "0", "nan", "none")
    ):
        return None, None
    text = str(value)
    last = text.strip().rsplit("\n", 1)[-1]
    named = _EXCEPTION.match(last)
    phrase = next(
        (
            status
            for status in HTTPStatus
            if status >= 400
            and (text.startswith(status.phrase) or f"{status.value} {status.phrase}" in last)
        ),
        None,
    )
    code = phrase.value if phrase else status_of(text)
    if text.isidentifier() and text != "True" and len(text) <= 60:
        return text, code
    return named[1].rpartition(".")[2] if named else str(code or "failed"), code


def status_of(value: Any) -> int | None:
    """An HTTP status of a failure, from a number or its digits."""
    text = str(value)
    return int(text) if re.fullmatch(r"[45]\d\d", text) else None


def first(values: Sequence[_T | None]) -> _T | None:
    return next((value for value in values if value is not None), None)


def moment(value: Any, name: str) -> int | None:
    """A column's moment in ns since 1970: a date (UTC unless it says otherwise) or seconds."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as error:
            raise BadPayload(
                f"{name} holds {value[:40]!r}, expected RFC 3339 or seconds since 1970"
            ) from error
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1e6) * 1_000
    seconds = number(value)
    if seconds is None or seconds > _LATEST_S:
        raise BadPayload(
            f"{name} holds {str(value)[:40]}, expected RFC 3339 or seconds since 1970 (divide milliseconds by 1,000)"
        )
    return round(seconds * S)
