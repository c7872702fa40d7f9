"""What was deployed when? Deployments that a pipeline, a tool or an application reported by OTLP, in spans or log records.

Versions that requests carry (`service.version`) need no report: `traffic_changes` finds their first requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import duckdb
import msgspec

from overrun.analysis.numbers.comparison.traffic_changes import Changed
from overrun.analysis.numbers.window import Window, query
from overrun.analysis.words.errors import AnalysisError, nearest
from overrun.analysis.words.finding import printable
from overrun.analysis.words.times import rfc3339
from overrun.collector.dialects.cicd import NAMES, TASK, is_deployment
from overrun.collector.store.answers import fetch_frame

# A fault builds up behind the deployment that brought it, and an onset is a date to within some requests: as in `traffic_changes`.
LEAD: Final = timedelta(minutes=10)
LATE: Final = timedelta(minutes=1)
_VERSIONS: Final = ("service.version", "vcs.ref.head.revision", "vcs.ref.head.name")
_TITLES: Final = (*NAMES[:1], "cicd.pipeline.name", "cicd.pipeline.task.name", *NAMES[1:])
_FAILED: Final = ("failed", "failure", "error", "cancellation", "timeout", "skip")
_RESULTS: Final = ("deployment.status", "cicd.pipeline.task.run.result", "cicd.pipeline.result")
_REVISION: Final = 12  # characters of a commit's id that are shown
_MOST: Final = 1_000
_MOST_NAMED: Final = 2
_MOST_KNOWN: Final = 8  # names in an error


class Deployment(msgspec.Struct, kw_only=True, frozen=True):
    """One deployment: when it ended, its name, the version that it brought and the service that reported it (empty where none was said)."""

    at: datetime
    name: str
    version: str = ""
    service: str = ""
    failed: bool = False

    @property
    def said(self) -> str:
        """Name and version as text."""
        text = f"{self.name} {self.version}".strip()
        return f"{text} (failed)" if self.failed else text


class Deployments(msgspec.Struct, kw_only=True):
    """The deployments that were reported in a window, oldest first, at most the last 1,000."""

    deployments: list[Deployment]


def deployments(con: duckdb.DuckDBPyConnection, window: Window) -> Deployments:
    """Return what was reported in a window; of its filters only the service counts. An open side is open."""
    if not con.execute(query("any_deployment")).fetchall():
        return Deployments(deployments=[])
    params = {"start": window.start, "end": window.end}
    rows = fetch_frame(con, query("deployments"), params).to_dicts()
    found = [made for trace in _traces(rows) for made in _of_trace(trace)]
    kept = sorted({one for one in found if window.service in (None, one.service)}, key=_order)
    return Deployments(deployments=kept[-_MOST:])


def beside(con: duckdb.DuckDBPyConnection, onset: datetime | None) -> list[Changed]:
    """Return the last deployments before an onset, or just after it, as changes."""
    if onset is None:
        return []
    found = deployments(con, Window(start=onset - LEAD, end=onset + LATE)).deployments
    return [
        Changed(what="deployment", before=[], after=printable(one.said), at=one.at)
        for one in found[-_MOST_NAMED:]
    ]


def named(found: list[Deployment], name: str) -> Deployment:
    """Return the last deployment with a name or version, as it was sent or as it is printed; a commit may be named by its whole id.

    Raises:
        AnalysisError: none has it.
    """
    meant = {name, _short(name)} - {""}
    mine = [one for one in found if not meant.isdisjoint(_called(one))]
    if not mine:
        known = list(dict.fromkeys(printable(one.name) for one in reversed(found)))[:_MOST_KNOWN]
        hint = nearest(name, known) if known else "none was reported: send one, or give --at TIME"
        raise AnalysisError(f"no deployment is called {printable(name, 64)!r}: {hint}")
    return mine[-1]


def render(found: Deployments) -> str:
    """The list as text."""
    if not found.deployments:
        return "No deployment was reported. docs/TELEMETRY.md has the line that a pipeline sends."
    return "\n".join(
        f"{rfc3339(one.at)}  {printable(one.said)}"
        + (f"  {printable(one.service)}" if one.service else "")
        for one in found.deployments
    )


def _called(one: Deployment) -> set[str]:
    texts = one.name, one.version, one.said
    return {*texts, *(printable(text) for text in texts if text)}


def _short(version: str) -> str:
    """A commit's id as it is shown; any other text as it is."""
    return version[:_REVISION] if len(version) >= 40 and version.isalnum() else version


def _order(one: Deployment) -> tuple[datetime, str, str]:
    return one.at, one.service, one.name


def _traces(rows: list[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    """The rows that report a deployment, by their trace."""
    traces: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        values = _pairs(row["attributes"])
        row["attributes"] = {str(key): value for key, value in values if value is not None}
        if is_deployment(row["name"], row["attributes"]):
            traces.setdefault(row["trace_key"], []).append(row)
    return traces.values()


def _of_trace(rows: list[dict[str, Any]]) -> list[Deployment]:
    """The deployments of a trace: its tasks of that type where it has any, whose pipeline is no further one; it may know the version for them."""
    tasks = [row for row in rows if TASK in row["attributes"]] or rows
    version = next((found for row in rows if (found := _version(row))), "")
    return [_of(row, version) for row in tasks]


def _version(row: Mapping[str, Any]) -> str:
    return _first(row["attributes"], _VERSIONS) or row["version"] or ""


def _of(row: Mapping[str, Any], of_trace: str) -> Deployment:
    attributes = row["attributes"]
    return Deployment(
        at=row["ended"],
        name=_first(attributes, _TITLES) or row["name"],
        version=_short(_version(row) or of_trace),
        service=row["service"] or "",
        failed=_first(attributes, _RESULTS).lower() in _FAILED,
    )


def _first(attributes: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    return next((str(attributes[key]) for key in keys if attributes.get(key)), "")


def _pairs(attributes: Any) -> list[tuple[Any, Any]]:
    """The entries of a map as DuckDB hands it over: a dictionary, or pairs."""
    if isinstance(attributes, Mapping):
        return list(attributes.items())
    return [(one["key"], one["value"]) for one in attributes or ()]
