"""k6's results: its JSON lines and CSV with one value a line, and the summaries of `--summary-export` and `handleSummary`.

Source: grafana.com/docs/k6 results-output (real-time JSON and CSV, end of test), read in 2026.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from overrun.collector.errors import BadPayload
from overrun.collector.sources.load_tests.result import LoadTest, Request, Run, Summary
from overrun.collector.sources.load_tests.values import (
    MS,
    Document,
    S,
    count,
    dict_of,
    failure,
    number,
)

# What a script calls the times of an answer that is streamed; k6 itself has no such metric.
_STREAMED: Final = (
    (re.compile(r"ttft|first_?token|first_?chunk", re.IGNORECASE), "ttft"),
    (re.compile(r"\bitl\b|_itl|itl_|inter_?token", re.IGNORECASE), "itl"),
    (re.compile(r"tpot|per_?output_?token", re.IGNORECASE), "tpot"),
)
# By its digits before the point: until the year 5138 seconds have at most 11.
_UNITS: Final = ((11, S), (14, MS), (17, 1_000))
_OURS: Final = ("http_reqs", "http_req_duration", "iterations", "iteration_duration", "vus")
_WAITED: Final = "k6 measures no first token of its own: `http_req_waiting` ends at the first byte of the headers"


@dataclass(frozen=True, slots=True)
class _Point:
    metric: str
    time_ns: int
    value: float
    tags: Mapping[str, str]


def is_line(document: Document) -> bool:
    """Whether a document is a line of its JSON output."""
    return document.get("type") in ("Metric", "Point") and isinstance(document.get("metric"), str)


def is_summary(document: Document) -> bool:
    """Whether a document is an end-of-test summary."""
    return any(name in dict_of(document, "metrics") for name in _OURS)


def is_csv(head: str) -> bool:
    """Whether the first line of a file is that of its CSV."""
    return head.startswith("metric_name,timestamp,metric_value")


def k6(documents: Sequence[Document], _: int) -> LoadTest:
    """The requests of its JSON lines."""
    return _of_points(
        _Point(
            str(document["metric"]),
            _moment_ns(data.get("time")),
            value,
            {str(k): str(v) for k, v in dict_of(data, "tags").items()},
        )
        for document in documents
        if document.get("type") == "Point"
        and (value := number((data := dict_of(document, "data")).get("value"))) is not None
    )


def k6_csv(text: str) -> LoadTest:
    """The requests of its CSV."""
    return _of_points(_csv_points(text))


def k6_summary(documents: Sequence[Document], _: int) -> LoadTest:
    """The runs that its summaries describe; a metric's figures stand in `values`, or beside its name in an exported summary."""
    out = LoadTest("k6", notes=[_WAITED])
    for document in documents:
        metrics = dict_of(document, "metrics")
        figures = {
            name: dict_of(metrics[name], "values") or metrics[name]
            for name in metrics
            if isinstance(metrics[name], dict)
        }
        percentiles: dict[str, dict[float, float]] = {}
        means: dict[str, float] = {}
        for name, values in figures.items():
            metric = "e2e" if name == "http_req_duration" else _streamed(name)
            if metric is None or "{" in name:
                continue
            for figure, value in values.items():
                ms = number(value)
                at = _percentile(figure)
                if ms is not None and figure == "avg":
                    means[metric] = ms
                elif ms is not None and at is not None:
                    percentiles.setdefault(metric, {})[at] = ms
        made = dict_of(figures, "http_reqs")
        total = count(made.get("count"))
        missed = dict_of(figures, "http_req_failed")
        ratio = number(missed.get("rate", missed.get("value")))
        failed = round(ratio * total) if ratio is not None and total is not None else 0
        lasted = number(dict_of(document, "state").get("testRunDurationMs"))
        out.runs.append(
            Run(
                "test",
                summary=Summary(
                    percentiles,
                    means,
                    None if total is None else total - failed,
                    failed,
                    number(made.get("rate")),
                ),
                duration_s=None if lasted is None else lasted / 1_000.0,
            )
        )
    return out


def _of_points(points: Iterable[_Point]) -> LoadTest:
    """One run a scenario, in the order in which they began; a request ends where its duration is recorded."""
    runs: dict[str, Run] = {}
    apart: dict[str, dict[str, list[float]]] = {}
    for point in points:
        scenario = point.tags.get("scenario", "")
        if point.metric == "http_req_duration":
            runs.setdefault(scenario, Run(scenario or "test")).requests.append(_request(point))
        elif (metric := _streamed(point.metric)) is not None:
            apart.setdefault(scenario, {}).setdefault(metric, []).append(point.value)
    out = LoadTest("k6")
    for scenario, run in sorted(
        runs.items(), key=lambda item: min(request.start_ns for request in item[1].requests)
    ):
        run.apart = apart.get(scenario, {})
        run.requests.sort(key=lambda request: request.start_ns)
        out.requests += run.requests
        out.runs.append(run)
    if not any(run.apart for run in out.runs):
        out.notes.append(_WAITED)
    return out


def _request(point: _Point) -> Request:
    e2e_ns, status = round(point.value * MS), point.tags.get("status", "")
    failed = point.tags.get("expected_response") == "false" or status in ("0", "")
    failed |= point.tags.get("error_code", "") not in ("", "0") or status >= "400"
    error, code = (
        failure(status if status not in ("0", "") else "unanswered") if failed else (None, None)
    )
    route = point.tags.get("name") or point.tags.get("url")
    return Request(
        point.time_ns - e2e_ns,
        e2e_ns,
        error=error,
        status_code=code,
        route=None if route is None else re.sub(r"[?#].*", "", route)[:200],
    )


def _csv_points(text: str) -> Iterator[_Point]:
    for row in csv.DictReader(io.StringIO(text)):
        try:
            value = float(row.get("metric_value") or "")
        except ValueError:
            continue
        tags = {name: cell for name, cell in row.items() if isinstance(cell, str) and cell}
        yield _Point(row["metric_name"], _moment_ns(row.get("timestamp")), value, tags)


def _moment_ns(value: Any) -> int:
    """A moment in ns since 1970: RFC 3339, or a number of seconds, ms, us or ns by its size (K6_CSV_TIME_FORMAT)."""
    text = str(value)
    try:
        if re.fullmatch(r"\d+(\.\d+)?", text):
            digits = len(text.partition(".")[0])
            unit = next((unit for most, unit in _UNITS if digits <= most), 1)
            return round(float(text) * unit) if unit > 1 else int(text.partition(".")[0])
        # Python reads microseconds; k6 writes nanoseconds.
        return round(datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text)).timestamp() * S)
    except ValueError as error:
        raise BadPayload(f"a line's time is {text[:40]!r}, wanted RFC 3339 or a number") from error


def _streamed(name: str) -> str | None:
    return next((metric for pattern, metric in _STREAMED if pattern.search(name)), None)


def _percentile(figure: str) -> float | None:
    if figure in ("med", "max"):
        return 50.0 if figure == "med" else 100.0
    named = re.fullmatch(r"p\((\d+(?:\.\d+)?)\)", figure)
    return float(named[1]) if named else None
