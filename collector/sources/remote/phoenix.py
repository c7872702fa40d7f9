"""Which spans has Phoenix of a window? Those of the project that `match` names, or of every project, as its REST API returns them in the form of OTLP.

Source: Phoenix's OpenAPI (`spanSearch`, `getProjects`). PHOENIX_API_KEY signs the requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from overrun.collector.errors import ImportFailed
from overrun.collector.sources.remote.documents import Cursors, Notes, iso, listed, read
from overrun.collector.sources.remote.fetching import Fetcher

_PAGE: Final = 1_000
_MOST_PROJECTS: Final = 200


def headers(environment: Mapping[str, str]) -> dict[str, str]:
    """The authorization of Phoenix's own variable."""
    key = environment.get("PHOENIX_API_KEY")
    return {"authorization": f"Bearer {key}"} if key else {}


class Phoenix:
    """The spans of one server."""

    width_s = 600

    def __init__(self, fetch: Fetcher, match: str = "") -> None:
        self._fetch, self._projects = fetch, [match] if match else []
        self.notes: list[str] = Notes()

    def begin(self, start_s: float, end_s: float) -> None:
        """Look which projects there are.

        Raises:
            ImportFailed: none.
        """
        if not self._projects:
            answer = self._fetch.get("/v1/projects", {"limit": _MOST_PROJECTS})
            found = [str(p["name"]) for p in listed(answer, "data") if p.get("name")]
            self._projects = found[:_MOST_PROJECTS]
        if not self._projects:
            raise ImportFailed(f"{self._fetch.url} lists no project: is it Phoenix?")

    def pull(self, start_s: float, end_s: float) -> Iterator[tuple[str, bytes]]:
        """Trace requests of the spans that began in the time; the project's name is that of the service, which Phoenix does not return."""
        for project in self._projects:
            for spans in self._pages(project, start_s, end_s):
                if spans:
                    yield from read(_request(project, spans), self.notes)

    def _pages(self, project: str, start_s: float, end_s: float) -> Iterator[list[dict[str, Any]]]:
        cursors, cursor = Cursors(), None
        while True:
            asked: dict[str, str | int] = {
                "start_time": iso(start_s),
                "end_time": iso(end_s),
                "limit": _PAGE,
            }
            answer = self._fetch.get(
                f"/v1/projects/{quote(project, safe='')}/spans/otlpv1",
                {**asked, "cursor": cursor} if cursor else asked,
            )
            yield listed(answer, "data")
            cursor = cursors.next(answer.get("next_cursor"))
            if cursor is None:
                return


def _request(project: str, spans: list[dict[str, Any]]) -> dict[str, Any]:
    """An OTLP/JSON request of one project's spans. Phoenix leaves values out as null, which OTLP does not know."""
    named = {"key": "service.name", "value": {"stringValue": project}}
    scope = {"spans": [_without_nulls(_modern(span)) for span in spans]}
    return {"resourceSpans": [{"resource": {"attributes": [named]}, "scopeSpans": [scope]}]}


_KEYS: Final = {
    "trace_id": "traceId",
    "span_id": "spanId",
    "parent_span_id": "parentSpanId",
    "start_time_unix_nano": "startTimeUnixNano",
    "end_time_unix_nano": "endTimeUnixNano",
    "time_unix_nano": "timeUnixNano",
    "trace_state": "traceState",
}


def _modern(span: dict[str, Any]) -> dict[str, Any]:
    events = span.get("events")
    made = {_KEYS.get(key, key): value for key, value in span.items()}
    if isinstance(events, list):
        made["events"] = [
            {_KEYS.get(key, key): value for key, value in event.items()}
            for event in events
            if isinstance(event, dict)
        ]
    return made


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
