"""Which traces has Tempo of a window? Those that a TraceQL search finds, read one by one.

`match` is the TraceQL query (default: every trace). Source: Tempo HTTP API, "Search" and "Query"; the answer is OTLP/JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from overrun.collector.sources.remote.documents import Notes, listed, read, segment
from overrun.collector.sources.remote.fetching import Fetcher, Refused, TooMuch

_AT_ONCE: Final = 500  # ids of one search


class Tempo:
    """The traces of one server."""

    width_s = 300

    def __init__(self, fetch: Fetcher, match: str = "") -> None:
        self._fetch, self._match = fetch, match or "{}"
        self.notes: list[str] = Notes()

    def begin(self, start_s: float, end_s: float) -> None:
        """Nothing has to be known before the first search."""

    def pull(self, start_s: float, end_s: float) -> Iterator[tuple[str, bytes]]:
        """Trace requests of what a search over the time finds; a search takes whole seconds.

        Raises:
            TooMuch: it finds more than one search returns.
        """
        asked: dict[str, str | int] = {
            "q": self._match,
            "start": math.floor(start_s),
            "end": math.ceil(end_s),
            "limit": _AT_ONCE,
            "spss": 1,
        }
        answer = self._fetch.get("/api/search", asked)
        found = listed(answer, "traces") if answer else []
        if len(found) >= _AT_ONCE:
            raise TooMuch(f"{self._fetch.url} finds more than {_AT_ONCE} traces at once")
        for trace in found:
            trace_id = segment(trace.get("traceID"))
            if trace_id is None:
                continue
            try:
                document = self._fetch.get(f"/api/traces/{trace_id}")
            except Refused as error:
                if error.status != 404:  # it has expired since the search
                    raise
                continue
            yield from read(document, self.notes)
