"""Locust's CSV files: NAME_stats.csv, with a row an endpoint, and NAME_stats_history.csv, with a row a second.

Source: locustio/locust locust/stats.py, docs.locust.io retrieve statistics in CSV format, read in 2026.
"""

from __future__ import annotations

import csv
import io
import re
import statistics
from collections.abc import Mapping, Sequence
from typing import Final

from overrun.collector.errors import BadPayload
from overrun.collector.sources.load_tests.result import LoadTest, Run, Summary
from overrun.collector.sources.load_tests.values import count, number

_STREAMED: Final = re.compile(r"ttft|first.?token|first.?chunk", re.IGNORECASE)
_ROUNDED: Final = "Locust rounds times above 100 ms to two digits"
# A row of the history shows the last 10 s: the rows of the first 10 s at a level still hold the level before.
_SETTLES_S: Final = 10.0
_LEAST_ROWS: Final = 5

Row = Mapping[str, str]


def is_csv(head: str) -> bool:
    """Whether the first line of a file is that of its statistics."""
    return is_history(head) or ("Request Count" in head and "Failure Count" in head)


def is_history(head: str) -> bool:
    """Whether the first line of a file is that of its history."""
    return head.replace('"', "").startswith("Timestamp,User Count,")


def locust_csv(text: str) -> LoadTest:
    """The run of a file: of the statistics its total, of the history a run per number of users."""
    rows = list(csv.DictReader(io.StringIO(text)))
    out = LoadTest("locust", notes=[_ROUNDED])
    if is_history(text.partition("\n")[0]):
        out.runs = _levels([row for row in rows if row.get("Name") == "Aggregated"])
        out.notes.append("a level's percentiles are the median of those of its 10 s windows")
    elif (run := _total(rows)) is not None:
        out.runs = [run]
    if not out.runs:
        raise BadPayload("its statistics hold no request")
    return out


def _total(rows: Sequence[Row]) -> Run | None:
    """All requests as one run. Rows named after first tokens are times, no requests, and spoil the total row: then the largest endpoint stands for the run."""
    first = [row for row in rows if _STREAMED.search(f"{row.get('Type')} {row.get('Name')}")]
    own = [row for row in rows if row not in first and row.get("Name") != "Aggregated"]
    total = [row for row in rows if row.get("Name") == "Aggregated"] if not first else []
    chosen = max(total or own, key=lambda row: _cell(row, "Request Count") or 0.0, default=None)
    if chosen is None or not _cell(chosen, "Request Count"):
        return None
    percentiles, means = {"e2e": _percentiles(chosen)}, {}
    mean = _cell(chosen, "Average Response Time")
    if mean is not None:
        means["e2e"] = mean
    for row in first[:1]:
        percentiles["ttft"] = _percentiles(row)
    asked, failed = (
        count(_cell(chosen, "Request Count")) or 0,
        count(_cell(chosen, "Failure Count")) or 0,
    )
    rate, failing = _cell(chosen, "Requests/s") or 0.0, _cell(chosen, "Failures/s") or 0.0
    return Run("test", summary=Summary(percentiles, means, asked - failed, failed, rate - failing))


def _levels(rows: Sequence[Row]) -> list[Run]:
    """A run per number of users that was kept for long enough, of the rows after it had settled."""
    levels: list[list[Row]] = []
    for row in rows:
        if not levels or levels[-1][0]["User Count"] != row["User Count"]:
            levels.append([])
        levels[-1].append(row)
    runs = []
    for level in levels:
        began = _cell(level[0], "Timestamp") or 0.0
        settled = [row for row in level if (_cell(row, "Timestamp") or 0.0) >= began + _SETTLES_S]
        users = count(_cell(level[0], "User Count"))
        if len(settled) < _LEAST_ROWS or not users:
            continue
        listed = [_percentiles(row) for row in settled]
        e2e = {
            at: statistics.median(values)
            for at in listed[0]
            if len(values := [one[at] for one in listed if at in one]) >= _LEAST_ROWS
        }
        asked, failed = (
            (_cell(settled[-1], name) or 0.0) - (_cell(settled[0], name) or 0.0)
            for name in ("Total Request Count", "Total Failure Count")
        )
        lasted = (_cell(settled[-1], "Timestamp") or 0.0) - (_cell(settled[0], "Timestamp") or 0.0)
        done = max(0, round(asked - failed))
        runs.append(
            Run(
                f"{users:,} users",
                summary=Summary(
                    {"e2e": e2e}, {}, done, max(0, round(failed)), done / lasted if lasted else None
                ),
                in_flight=users,
                duration_s=lasted,
            )
        )
    return runs


def _percentiles(row: Row) -> dict[float, float]:
    """The percentiles of a row by their columns, `95%` and so on, in ms."""
    found = {}
    for name in row:
        named = re.fullmatch(r"(\d+(?:\.\d+)?)%", name or "")
        value = _cell(row, name) if named else None
        if named and value is not None:
            found[float(named[1])] = value
    return found


def _cell(row: Row, name: str) -> float | None:
    try:
        return number(float(row.get(name) or ""))
    except ValueError:
        return None
