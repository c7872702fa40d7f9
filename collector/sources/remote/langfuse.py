"""Which observations has Langfuse of a window? Without inputs and outputs, which are not asked for where the API lets a client choose.

Langfuse 4 and its cloud answer `/api/public/v2/observations` with a cursor and groups of fields; older servers `/api/public/observations` page by page,
with inputs and outputs, which are not looked at. Source: Langfuse's public API reference. LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY sign the requests.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from overrun.collector.sources.remote.documents import Cursors, Notes, iso, listed, read
from overrun.collector.sources.remote.fetching import Fetcher, Refused, TooMuch, basic

_FIELDS: Final = "core,basic,time,model,usage,metadata"
_PAGE: Final = 500
_OLD_PAGE: Final = 100  # the most that the older API returns
_MOST_PAGES: Final = 10_000


def headers(environment: Mapping[str, str]) -> dict[str, str]:
    """The authorization of Langfuse's own variables."""
    public, secret = environment.get("LANGFUSE_PUBLIC_KEY"), environment.get("LANGFUSE_SECRET_KEY")
    return {"authorization": basic(public, secret)} if public and secret else {}


class Langfuse:
    """The observations of one project."""

    width_s = 600

    def __init__(self, fetch: Fetcher, match: str = "") -> None:
        self._fetch, self._environment, self._old = fetch, match, False
        self.notes: list[str] = Notes()

    def begin(self, start_s: float, end_s: float) -> None:
        """Find out which of the two APIs answers."""
        asked = {**self._window(start_s, end_s), "limit": 1, "fields": "core"}
        try:
            self._fetch.get("/api/public/v2/observations", asked)
        except Refused as error:
            if error.status not in (400, 404, 405, 501):
                raise
            self._old = True

    def pull(self, start_s: float, end_s: float) -> Iterator[tuple[str, bytes]]:
        """Trace requests of the observations that began in the time."""
        asked = self._window(start_s, end_s)
        pages = self._old_pages(asked) if self._old else self._pages(asked)
        for page in pages:
            yield from read({"data": page}, self.notes)

    def _window(self, start_s: float, end_s: float) -> dict[str, str | int]:
        asked: dict[str, str | int] = {"fromStartTime": iso(start_s), "toStartTime": iso(end_s)}
        return {**asked, "environment": self._environment} if self._environment else asked

    def _pages(self, asked: dict[str, str | int]) -> Iterator[list[dict[str, Any]]]:
        cursors, cursor = Cursors(), None
        while True:
            more: dict[str, str] = {"cursor": cursor} if cursor else {}
            answer = self._fetch.get(
                "/api/public/v2/observations", {**asked, "limit": _PAGE, "fields": _FIELDS, **more}
            )
            yield listed(answer, "data")
            meta = answer.get("meta")
            cursor = cursors.next(meta.get("cursor") if isinstance(meta, dict) else None)
            if cursor is None:
                return

    def _old_pages(self, asked: dict[str, str | int]) -> Iterator[list[dict[str, Any]]]:
        for page in itertools.count(1):
            if page > _MOST_PAGES:
                raise TooMuch(f"a list has more than {_MOST_PAGES:,} pages")
            answer = self._fetch.get(
                "/api/public/observations", {**asked, "limit": _OLD_PAGE, "page": page}
            )
            found = listed(answer, "data")
            yield found
            meta = answer.get("meta")
            pages = meta.get("totalPages") if isinstance(meta, dict) else None
            if not found or (isinstance(pages, int) and page >= pages):
                return
