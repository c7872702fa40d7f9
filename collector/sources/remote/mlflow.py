"""Which traces has MLflow of a window? Those of the experiments that `match` names, or of every experiment, with their spans in the form of OTLP.

Source: MLflow's REST API 3.0 (`traces/search`, `traces/get`). MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD, sign the requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from overrun.collector.errors import ImportFailed
from overrun.collector.sources.remote.documents import Cursors, Notes, listed, read
from overrun.collector.sources.remote.fetching import Fetcher, basic

_PAGE: Final = 100
_MOST_EXPERIMENTS: Final = 100
_API: Final = "/api/3.0/mlflow/traces"


def headers(environment: Mapping[str, str]) -> dict[str, str]:
    """The authorization of MLflow's own variables."""
    if token := environment.get("MLFLOW_TRACKING_TOKEN"):
        return {"authorization": f"Bearer {token}"}
    user = environment.get("MLFLOW_TRACKING_USERNAME")
    password = environment.get("MLFLOW_TRACKING_PASSWORD", "")
    return {"authorization": basic(user, password)} if user else {}


class MLflow:
    """The traces of one tracking server."""

    width_s = 600

    def __init__(self, fetch: Fetcher, match: str = "") -> None:
        self._fetch = fetch
        self._experiments = {e.strip(): e.strip() for e in match.split(",") if e.strip()}
        self.notes: list[str] = Notes()

    def begin(self, start_s: float, end_s: float) -> None:
        """Look which experiments there are.

        Raises:
            ImportFailed: none.
        """
        if self._experiments:
            return
        answer = self._fetch.post(
            "/api/2.0/mlflow/experiments/search", {"max_results": _MOST_EXPERIMENTS}
        )
        self._experiments = {
            str(e["experiment_id"]): str(e.get("name") or "mlflow")
            for e in listed(answer, "experiments")[:_MOST_EXPERIMENTS]
            if e.get("experiment_id") is not None
        }
        if not self._experiments:
            raise ImportFailed(f"{self._fetch.url} lists no experiment: is it MLflow?")

    def pull(self, start_s: float, end_s: float) -> Iterator[tuple[str, bytes]]:
        """Trace requests of the traces that began in the time."""
        places = [
            {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": e}}
            for e in self._experiments
        ]
        asked: dict[str, Any] = {
            "locations": places,
            "filter": f"attributes.timestamp_ms >= {round(start_s * 1e3)} AND attributes.timestamp_ms < {round(end_s * 1e3)}",
            "max_results": _PAGE,
        }
        pages = Cursors()
        while True:
            answer = self._fetch.post(f"{_API}/search", asked)
            for info in listed(
                {"traces": [], **answer} if isinstance(answer, dict) else answer, "traces"
            ):
                yield from self._trace(info)
            after = pages.next(answer.get("next_page_token"))
            if after is None:
                return
            asked["page_token"] = after

    def _trace(self, info: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
        trace_id = info.get("trace_id")
        if not isinstance(trace_id, str):
            return
        answer = self._fetch.get(f"{_API}/get", {"trace_id": trace_id, "allow_partial": "true"})
        trace = answer.get("trace") if isinstance(answer, dict) else None
        spans = listed(trace, "spans") if isinstance(trace, dict) and "spans" in trace else []
        if spans:
            place = info.get("trace_location")
            held = place.get("mlflow_experiment") if isinstance(place, dict) else None
            experiment = str(held.get("experiment_id")) if isinstance(held, dict) else ""
            yield from read(
                _request(self._experiments.get(experiment, "mlflow"), spans), self.notes
            )


def _request(service: str, spans: list[dict[str, Any]]) -> dict[str, Any]:
    named = {"key": "service.name", "value": {"stringValue": service}}
    return {
        "resourceSpans": [{"resource": {"attributes": [named]}, "scopeSpans": [{"spans": spans}]}]
    }
