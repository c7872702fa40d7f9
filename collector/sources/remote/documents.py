"""How do answers of an API become bodies? By the road of imported files (importer.py), each document by itself, so that a broken one costs no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from overrun.collector.errors import BadPayload, ImportFailed
from overrun.collector.sources import importer
from overrun.collector.sources.remote.fetching import TooMuch

# What the path of an address may hold of a name that a server gave.
_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,128}")
_MOST_PAGES: Final = 10_000
_LONGEST_CURSOR: Final = 4_096
_MOST_NOTES: Final = 20
_LONGEST_NOTE: Final = 400


class Notes(list[str]):
    """What was left out of a pull: each kind once, few, and without what a terminal would obey. Some of it is the server's words."""

    def append(self, note: str) -> None:
        shown = "".join(c if c.isprintable() else " " for c in note[:_LONGEST_NOTE])
        if len(self) < _MOST_NOTES and shown not in self:
            super().append(shown)


class Cursors:
    """Where the next page begins, for as long as a server names a page that it has not named before. A list without an end leads in circles, or for ever."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def next(self, named: Any) -> str | None:
        """The page that is to be read next; None after the last one.

        Raises:
            TooMuch: there are too many: ask for less time.
        """
        if not isinstance(named, str) or named in ("", *self._seen):
            return None
        if len(self._seen) >= _MOST_PAGES or len(named) > _LONGEST_CURSOR:
            raise TooMuch(f"a list has more than {_MOST_PAGES:,} pages")
        self._seen.add(named)
        return named


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
