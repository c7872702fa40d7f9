"""Which requests are there? A list of them for a table, and what the store holds to choose from.

Reads `v_requests` through a cursor that is passed in; every function takes the same window as the report.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import duckdb
import msgspec

from overrun.analysis.numbers.requests.stored_names import refuse_unstored
from overrun.analysis.numbers.stages.budget import STAGES
from overrun.analysis.numbers.window import Window, filter_of, query
from overrun.analysis.words.errors import AnalysisError, nearest
from overrun.analysis.words.slo import METRICS
from overrun.collector.store.answers import fetch_frame

SORTS: Final = ("e2e", "ttft", "start", "output_tokens", "errors", *STAGES)
STATUSES: Final = ("ok", "error")
DEFAULT_LIMIT: Final = 200
MOST_LISTED: Final = 1000
# A menu with more entries than this is searched by typing; the rest can still be typed into the URL.
MOST_VALUES: Final = 200


class ListError(AnalysisError):
    """A sort, limit, metric or bound that the list does not know."""


class RequestRow(msgspec.Struct, kw_only=True):
    """One request. `stages` has the exclusive milliseconds of every stage that took time; they sum to `e2e_ms`. `ttft_stages` is the part of them up to the
    first token, empty where nobody recorded one.

    `ttft_ms` and `output_tokens` are null where nobody recorded them; `slowest_stage` is null without any stage time.
    """

    trace_id: str
    start: datetime
    service: str
    route: str | None
    model: str | None
    status: str
    error_type: str | None
    e2e_ms: float
    ttft_ms: float | None
    output_tokens: int | None
    slowest_stage: str | None
    slowest_stage_ms: float | None
    stages: dict[str, float]
    ttft_stages: dict[str, float] = {}


class RequestList(msgspec.Struct, kw_only=True):
    """The first `limit` of `total` matching requests in the order of `sort` (largest or newest first; by `errors`: failed ones first, newest on top; by a
    stage: those in which it took longest)."""

    sort: str
    limit: int
    total: int
    rows: list[RequestRow]


class Value(msgspec.Struct, kw_only=True):
    """One value of a filter and the number of requests of the window that carry it."""

    name: str
    requests: int


class Holdings(msgspec.Struct, kw_only=True):
    """What the store holds at all, whatever the window, and the values of the window that can be filtered by.

    `oldest` and `newest` are starts of requests, null when there is none. `spans` says whether any span has arrived
    that did not become a request, `newest_metric` when an inference server last sent a metric that is understood (both looked up only while there is no
    request). `values` is keyed `service`, `model`, `route`, `tenant`; a value counts requests under the
    other filters, so that a menu shows what choosing it would give.
    """

    oldest: datetime | None
    newest: datetime | None
    requests: int
    spans: bool
    newest_metric: datetime | None = None
    values: dict[str, list[Value]]


class Extent(msgspec.Struct, kw_only=True, frozen=True):
    """How many complete requests a window holds and between which starts; start and end are those of the window where it has them.

    `first`/`last` are the first and last start found. All four are None without a request and without bounds.
    """

    n: int
    start: datetime | None
    end: datetime | None
    first: datetime | None
    last: datetime | None


def list_requests(
    con: duckdb.DuckDBPyConnection,
    window: Window,
    *,
    sort: str = "e2e",
    limit: int = DEFAULT_LIMIT,
    metric: str = "e2e",
    min_ms: float | None = None,
    max_ms: float | None = None,
    status: str | None = None,
) -> RequestList:
    """List requests of a window, failed ones included unless a `status` is asked for; `min_ms <= metric < max_ms` narrows them to a row of the heat map.

    Raises:
        ListError: an unknown sort, status or metric, or a limit outside 1..1000. WindowError: a filter names what is stored nowhere.
    """
    if sort not in SORTS:
        raise ListError(f"sort {sort[:64]!r} is unknown: {nearest(sort, SORTS)}")
    if status is not None and status not in STATUSES:
        raise ListError(f"status {status[:64]!r} is unknown: use {' or '.join(STATUSES)}")
    if not 1 <= limit <= MOST_LISTED:
        raise ListError(
            f"limit {limit} must be from 1 to {MOST_LISTED}: narrow the window or the filters instead"
        )
    metric = known_metric(metric)
    more = {"sort": sort, "limit": limit, "metric": metric, "min_ms": min_ms, "max_ms": max_ms}
    more["status"] = status
    rows = fetch_frame(con, query("request_list"), filter_of(window) | more).to_dicts()
    if not rows:
        refuse_unstored(con, window)
    return RequestList(
        sort=sort,
        limit=limit,
        total=rows[0]["total"] if rows else 0,
        rows=[_row(row) for row in rows],
    )


def known_metric(metric: str) -> str:
    """Return the metric's name if there is such a latency.

    Raises:
        ListError: there is none, with the nearest one.
    """
    if metric not in METRICS:
        raise ListError(f"metric {metric[:64]!r} is unknown: {nearest(metric, METRICS)}")
    return metric


def holdings(con: duckdb.DuckDBPyConnection, window: Window) -> Holdings:
    """Say what there is to look at: the store's extent, and per filter the values in the window, most requests first."""
    oldest, newest, n = con.execute(query("request_holdings")).fetchall()[0]
    spans = n == 0 and bool(con.execute(query("any_span")).fetchall())
    newest_metric = con.execute(query("newest_metric")).fetchall()[0][0] if n == 0 else None
    values: dict[str, list[Value]] = {"service": [], "model": [], "route": [], "tenant": []}
    for kind, name, requests in con.execute(
        query("request_values"), filter_of(window) | {"most": MOST_VALUES}
    ).fetchall():
        values[kind].append(Value(name=name, requests=requests))
    return Holdings(
        oldest=_utc(oldest),
        newest=_utc(newest),
        requests=n,
        spans=spans,
        newest_metric=_utc(newest_metric),
        values=values,
    )


def extent(con: duckdb.DuckDBPyConnection, window: Window) -> Extent:
    """Return how many complete requests a window holds, and from when to when."""
    n, first, last = con.execute(query("request_extent"), filter_of(window)).fetchall()[0]
    first, last = _utc(first), _utc(last)
    # The window is half-open: without a bound of its own it ends just behind the last start.
    end = window.end or (last + timedelta(milliseconds=1) if last else None)
    return Extent(n=n, start=window.start or first, end=end, first=first, last=last)


def _row(row: dict[str, Any]) -> RequestRow:
    stages = {stage: float(row[f"{stage}_ms"]) for stage in STAGES if row[f"{stage}_ms"]}
    slowest = max(stages, key=stages.__getitem__, default=None)
    return RequestRow(
        trace_id=row["trace_id"],
        start=row["start"].astimezone(UTC),
        service=row["service"],
        route=row["route"],
        model=row["model"],
        status=row["status"],
        error_type=row["error_type"],
        e2e_ms=row["e2e_ms"],
        ttft_ms=row["ttft_ms"],
        output_tokens=row["output_tokens"],
        slowest_stage=slowest,
        slowest_stage_ms=stages[slowest] if slowest else None,
        stages=stages,
        ttft_stages={}
        if row["ttft_ms"] is None
        else {stage: float(row[f"ttft_{stage}_ms"]) for stage in STAGES if row[f"ttft_{stage}_ms"]},
    )


def _utc(time: datetime | None) -> datetime | None:
    return None if time is None else time.astimezone(UTC)
