"""What did senders before OTLP 0.15 call scopes? Bodies with `instrumentation_library_spans` (metrics, logs) in, the same with today's `scope_spans` out.

That field had number 1000 beside today's 2, and what is in it is alike (a name, the items, a schema's address), so its tag is all that has to change. Where a
sender wrote both, the old one repeats the new one and is left out, as the protocol asked of receivers then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_OLD_TAG = b"\xc2\x3e"  # field 1000, length-delimited
_TODAY = b"\x92\x00"  # field 2, length-delimited, in as many bytes: a number may be written longer than needed
_LENGTH_DELIMITED = 2
_ITEMS = ("Spans", "Metrics", "Logs")


def is_old(body: bytes) -> bool:
    """Whether a body may have old words: their tag is somewhere in it."""
    return _OLD_TAG in body


def modern(body: bytes) -> bytes:
    """A protobuf body in today's words; the same object where it has no old ones, or is broken."""
    if _OLD_TAG not in body:
        return body
    found: list[int] = []
    try:
        for number, _, first, end in _fields(body, 0, len(body)):
            if number == 1:
                inner = list(_fields(body, first, end))
                if all(number != 2 for number, *_ in inner):
                    found += [tag for number, tag, *_ in inner if number == 1000]
    except (IndexError, ValueError):
        return body  # its decoder says what is wrong
    out = bytearray(body)
    for tag in found:
        if body[tag : tag + 2] == _OLD_TAG:
            out[tag : tag + 2] = _TODAY
    return bytes(out) if found else body


def _fields(body: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(number, where its tag stands, where its content begins, where that ends) of the length-delimited fields of a message."""
    while at < end:
        begin = at
        tag, at = _varint(body, at)
        wire = tag & 7
        if wire == _LENGTH_DELIMITED:
            size, at = _varint(body, at)
            if at + size > end:
                raise ValueError("a length that exceeds its message")
            yield tag >> 3, begin, at, at + size
            at += size
        elif wire == 0:
            at = _varint(body, at)[1]
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError("a group")


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def modernize(document: dict[str, Any]) -> None:
    """The same for a request of OTLP/JSON, in place."""
    for item in _ITEMS:
        for resources, old, today, library in (
            (
                f"resource{item}",
                f"instrumentationLibrary{item}",
                f"scope{item}",
                "instrumentationLibrary",
            ),
            (
                f"resource_{item.lower()}",
                f"instrumentation_library_{item.lower()}",
                f"scope_{item.lower()}",
                "instrumentation_library",
            ),
        ):
            listed = document.get(resources)
            for resource in listed if isinstance(listed, list) else ():
                if not isinstance(resource, dict) or old not in resource:
                    continue
                scopes = resource.pop(old)
                if resource.get(today) or not isinstance(scopes, list):
                    continue
                resource[today] = [
                    {"scope" if key == library else key: value for key, value in scope.items()}
                    if isinstance(scope, dict)
                    else scope
                    for scope in scopes
                ]
