"""How do answers of an API become bodies? By the road of imported files (importer.py), each document by itself, so that a broken one costs no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from overrun.collector.errors import BadPayload, ImportFailed
from overrun.collector.sources import importer

# What the path of an address may hold of a name that a server gave.
_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,128}")


def read(document: Any, notes: list[str]) -> Iterator[tuple[str, bytes]]:
    """The bodies of a document; one that cannot be read is left out, with a note."""
    try:
        yield from importer.bodies_of(document)
    except (BadPayload, RecursionError) as error:
        notes.append(f"left out: {str(error)[:200]}")


def listed(answer: Any, key: str) -> list[dict[str, Any]]:
    """The objects in the list under `key` of an answer.

    Raises:
        ImportFailed: there is no such list.
    """
    found = answer.get(key) if isinstance(answer, dict) else None
    if not isinstance(found, list):
        raise ImportFailed(f"an answer has no list {key!r}: is it the right kind of source?")
    return [item for item in found if isinstance(item, dict)]


def segment(value: Any) -> str | None:
    """An id as a segment of a path; None where it is none."""
    text = str(value or "")
    return text if _ID.fullmatch(text) else None


def iso(time_s: float) -> str:
    """A time as APIs take it."""
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds")
