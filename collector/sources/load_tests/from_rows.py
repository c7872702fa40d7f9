"""What does a row mean that the form of a load generator made? Its documented columns in, runs with their requests or summaries out.

A request: `start_` (or `end`, a moment in any form), `e2e_`, `ttft_`, `queue_`, `itl_`, `late_` with one of `s`, `ms`, `us`, `ns` behind it (it was sent so late after its
turn), error, status, model, route, tenant, input_tokens, output_tokens, cached_tokens; `cut` where the run's end cut it off. A figure of a `summary`: `metric`, `at` (mean,
median, max, p99, 99.9%) and `ms`, beside succeeded, failed, answered_rps, tokens, and `why` where a part of the requests is there. A value that no request has: `metric`
and `ms` alone. Of the run: `run` (its name), `run_key` where names repeat, rate_rps, in_flight, duration_s, timed, `bounded` and `bounded_by`, note, and `unstreamed`, a
note for where no value of a metric stands apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from overrun.collector.errors import BadPayload
from overrun.collector.sources.exports import otlp
from overrun.collector.sources.load_tests.result import (
    LoadTest,
    Request,
    Run,
    Summary,
    say_bounded,
    say_late,
    say_requests,
    say_unmeasured,
)
from overrun.collector.sources.load_tests.values import (
    NS,
    S,
    count,
    failure,
    percentile_of,
    status_of,
    text_of,
)

_TIMES: Final = ("start", "e2e", "ttft", "queue", "itl", "late")
COLUMNS: Final = frozenset(
    {f"{time}_{unit}" for time in _TIMES for unit in NS}
    | {"end", "error", "status", "model", "route", "tenant", "cut", "note", "unstreamed", "tool"}
    | {"input_tokens", "output_tokens", "cached_tokens", "succeeded", "failed", "answered_rps"}
    | {"summary", "metric", "at", "ms", "why", "run", "run_key", "rate_rps", "in_flight"}
    | {"duration_s", "timed", "bounded", "bounded_by", "place"}
)
_AT: Final = re.compile(r"p?\(?(\d+(?:\.\d+)?)[)%]?")
_NAMED: Final = {"median": 50.0, "med": 50.0, "max": 100.0}


@dataclass(slots=True)
class _Read:
    """What was read so far: the runs by their keys, bounds that are said at the end, and how many requests were left out."""

    runs: dict[str, Run] = field(default_factory=dict)
    bounds: dict[tuple[Any, str, bool], None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    unstreamed: str = ""
    by_end: bool = False
    tool: str = ""
    unmeasured: int = 0
    cut: int = 0
    late_ns: int = 0


def load_test(tool: str, rows: Iterable[Mapping[str, Any]]) -> LoadTest:
    """The runs that rows of a form are.

    Raises:
        BadPayload: the rows have columns that nobody documented.
    """
    read = _Read(tool=tool)
    for row in rows:
        if unknown := sorted(row.keys() - COLUMNS):
            raise BadPayload(f"the form of a load test has no column {unknown[0]!r}")
        _add(read, row)
    runs = [run for run in read.runs.values() if run.requests or run.summary is not None]
    if read.by_end:  # they are written down when they end
        for run in runs:
            run.requests.sort(key=lambda request: request.start_ns)
        runs.sort(key=lambda run: run.requests[0].start_ns)
    out = LoadTest(read.tool, [one for run in runs for one in run.requests], list(read.notes), runs)
    if read.unstreamed and not any(run.apart for run in runs):
        out.notes.append(read.unstreamed)
    for bound, said_by, corrected in read.bounds:
        say_bounded(out, bound, said_by, corrected=corrected)
    say_late(out, read.late_ns / S)
    if read.cut:
        out.notes.append(f"{say_requests(read.cut)} cut off at the end of the run and left out")
    say_unmeasured(out, read.unmeasured)
    return out


def _add(read: _Read, row: Mapping[str, Any]) -> None:
    run = _run(read, row)
    read.tool = str(row.get("tool") or read.tool)
    if row.get("note"):
        read.notes[str(row["note"])] = None
    if (bound := _number(row.get("bounded"))) is not None:
        corrected = _ns(row, "late") is not None
        read.bounds[bound, str(row.get("bounded_by")), corrected] = None
    read.unstreamed = str(row.get("unstreamed") or "")
    read.by_end |= row.get("end") is not None
    if row.get("cut"):
        read.cut += 1
    elif row.get("summary"):
        _add_figure(run, row)
    elif row.get("metric"):
        run.apart.setdefault(str(row["metric"]), []).append(float(row["ms"]))
    elif (request := _request(row)) is None:
        read.unmeasured += 1
    else:
        read.late_ns = max(read.late_ns, request.late_ns)
        run.requests.append(request)


def _run(read: _Read, row: Mapping[str, Any]) -> Run:
    key = str(row.get("run_key") or row.get("run"))
    if key not in read.runs:
        bound = _number(row.get("in_flight"))
        read.runs[key] = Run(
            str(row.get("run") or "run 1"),
            rate_rps=_number(row.get("rate_rps")),
            in_flight=count(bound),
            duration_s=_number(row.get("duration_s")),
            model=text_of(row.get("model")),
            timed=row.get("timed") is not False,
        )
    return read.runs[key]


def _request(row: Mapping[str, Any]) -> Request | None:
    """The request of a row; None where it has no measured time."""
    error, code = failure(row.get("error"))
    if row.get("status") is not None:
        code = status_of(row["status"])
    start, e2e, ttft, queue, itl, late = (_ns(row, name) for name in _TIMES)
    if start is None and row.get("end") is not None and e2e is not None:
        start = _moment_ns(row["end"]) - e2e
    if start is None or (e2e is None and error is None):
        return None
    late = max(late or 0, 0)
    return Request(
        start - late,
        (e2e or 0) + late,
        None if ttft is None else ttft + late,
        input_tokens=_count(row, "input_tokens"),
        output_tokens=_count(row, "output_tokens"),
        cached_tokens=_count(row, "cached_tokens"),
        error=error,
        status_code=code,
        model=text_of(row.get("model")),
        route=text_of(row.get("route")),
        tenant=text_of(row.get("tenant")),
        queue_ns=queue,
        itl_ns=itl,
        late_ns=late,
    )


def _moment_ns(told: Any) -> int:
    try:
        return otlp.moment_ns(told)
    except ValueError as error:
        raise BadPayload(f"a time is {str(told)[:40]!r}, wanted RFC 3339 or a number") from error


def _add_figure(run: Run, row: Mapping[str, Any]) -> None:
    """Put a figure into a run's summary; a row without one says what else the summary has."""
    if run.summary is None:
        run.why = str(row.get("why") or "")
        run.summary = Summary(
            {},
            {},
            _count(row, "succeeded"),
            _count(row, "failed") or 0,
            *(_number(row.get(name)) for name in ("answered_rps", "input_tokens", "output_tokens")),
        )
    metric, at, ms = row.get("metric"), str(row.get("at")), _number(row.get("ms"))
    if not metric or ms is None:
        return
    if at in ("mean", "avg", "average"):
        run.summary.means[metric] = ms
    elif at in _NAMED or (named := _AT.fullmatch(at)):
        percentile = _NAMED[at] if at in _NAMED else percentile_of(named[1])  # type: ignore[index]  # it matched
        run.summary.percentiles.setdefault(metric, {})[percentile] = ms


def _ns(row: Mapping[str, Any], name: str) -> int | None:
    """A time of a row, in whichever unit it stands; negative ones are none, but of a begin."""
    for unit, scale in NS.items():
        if (told := _number(row.get(f"{name}_{unit}"))) is not None:
            exact = row[f"{name}_{unit}"] if isinstance(row[f"{name}_{unit}"], int) else told
            return round(exact * scale) if told >= 0.0 or name == "start" else None
    return None


def _count(row: Mapping[str, Any], name: str) -> int | None:
    return count(_number(row.get(name)))


def _number(told: Any) -> float | None:
    """A number, also as text; none where it is neither or has no end."""
    try:
        number = float(told)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < float("inf") else None
