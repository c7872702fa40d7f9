"""Which traces has Jaeger of a window? Those of every service, or of the one that `match` names, as its own pages ask for them.

Source: the JSON API behind Jaeger's pages, versions 1 and 2 (`/api/services`, `/api/traces`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from overrun.collector.errors import ImportFailed
from overrun.collector.sources.remote.documents import Notes, listed, read, segment
from overrun.collector.sources.remote.fetching import Fetcher, TooMuch

_AT_ONCE: Final = 200  # traces of one search; a trace of an agent has hundreds of spans
_MOST_SERVICES: Final = 200
# Jaeger's own traces of its queries.
_OWN: Final = ("jaeger", "jaeger-query", "jaeger-all-in-one")


class Jaeger:
    """The traces of one server."""

    width_s = 300

    def __init__(self, fetch: Fetcher, match: str = "") -> None:
        self._fetch, self._services = fetch, [match] if match else []
        self._seen: set[str] = set()
        self.notes: list[str] = Notes()

    def begin(self, start_s: float, end_s: float) -> None:
        """Look which services there are.

        Raises:
            ImportFailed: none.
        """
        if self._services:
            return
        answer = self._fetch.get("/api/services")
        names = answer.get("data") if isinstance(answer, dict) else None
        found = [n for n in names or () if isinstance(n, str) and n not in _OWN]
        if not found:
            raise ImportFailed(f"{self._fetch.url} lists no service: is it Jaeger?")
        self._services = sorted(found)[:_MOST_SERVICES]
        if len(found) > _MOST_SERVICES:
            self.notes.append(
                f"{_MOST_SERVICES} of {len(found)} services were asked: name one with --match"
            )

    def pull(self, start_s: float, end_s: float) -> Iterator[tuple[str, bytes]]:
        """Trace requests of the traces of each service; one that several services share is read once.

        Raises:
            TooMuch: a service has more than one search returns.
        """
        for service in self._services:
            asked: dict[str, str | int] = {
                "service": service,
                "start": round(start_s * 1e6),
                "end": round(end_s * 1e6),
                "limit": _AT_ONCE,
            }
            found = listed(self._fetch.get("/api/traces", asked), "data")
            if len(found) >= _AT_ONCE:
                raise TooMuch(f"{service} has more than {_AT_ONCE} traces at once")
            for trace in found:
                trace_id = segment(trace.get("traceID"))
                if trace_id is not None and trace_id not in self._seen:
                    self._seen.add(trace_id)
                    yield from read({"data": [trace]}, self.notes)
