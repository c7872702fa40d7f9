"""Which runs has LangSmith of a window? Those of the projects that `match` names (ids or names), or of every project, without inputs and outputs.

Source: LangSmith's API (`POST /api/v1/runs/query`, `GET /api/v1/sessions`). LANGSMITH_API_KEY signs the requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from overrun.collector.errors import ImportFailed
from overrun.collector.sources.remote.documents import Cursors, Notes, iso, listed, read
from overrun.collector.sources.remote.fetching import Fetcher

_PAGE: Final = 100  # the most that the API returns
_MOST_PROJECTS: Final = 100
_SELECT: Final = (
    *("id", "trace_id", "parent_run_id", "name", "run_type", "start_time", "end_time"),
    *("status", "first_token_time", "prompt_tokens", "completion_tokens", "extra", "session_id"),
)


def headers(environment: Mapping[str, str]) -> dict[str, str]:
    """The key of LangSmith's own variables."""
    key = environment.get("LANGSMITH_API_KEY") or environment.get("LANGCHAIN_API_KEY")
    return {"x-api-key": key} if key else {}


class LangSmith:
    """The runs of one workspace."""

    width_s = 600

    def __init__(self, fetch: Fetcher, match: str = "") -> None:
        self._fetch, self._wanted = fetch, {p.strip() for p in match.split(",") if p.strip()}
        self._projects: dict[str, str] = {}
        self.notes: list[str] = Notes()

    def begin(self, start_s: float, end_s: float) -> None:
        """Look which projects there are.

        Raises:
            ImportFailed: none that is meant.
        """
        answer = self._fetch.get("/api/v1/sessions", {"limit": _MOST_PROJECTS})
        found = listed({"sessions": answer}, "sessions")
        self._projects = {
            str(p["id"]): str(p.get("name") or "langsmith")
            for p in found[:_MOST_PROJECTS]
            if p.get("id") and (not self._wanted or self._wanted & {str(p["id"]), p.get("name")})
        }
        if not self._projects:
            raise ImportFailed(f"{self._fetch.url} lists no project that is meant: look at --match")

    def pull(self, start_s: float, end_s: float) -> Iterator[tuple[str, bytes]]:
        """Trace requests of the runs that began in the time."""
        asked: dict[str, Any] = {
            "session": list(self._projects),
            "start_time": iso(start_s),
            "filter": f'lt(start_time, "{iso(end_s)}")',
            "select": list(_SELECT),
            "limit": _PAGE,
        }
        pages = Cursors()
        while True:
            answer = self._fetch.post("/api/v1/runs/query", asked)
            runs = listed(answer, "runs")
            if runs:
                named = [run | {"session_name": self._project(run)} for run in runs]
                yield from read(named, self.notes)
            cursors = answer.get("cursors")
            after = pages.next(cursors.get("next") if isinstance(cursors, dict) else None)
            if after is None:
                return
            asked["cursor"] = after

    def _project(self, run: dict[str, Any]) -> str:
        return self._projects.get(str(run.get("session_id")), "langsmith")
