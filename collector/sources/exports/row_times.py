"""When did the call of a row begin? Moments in the forms that tables have, and whether a row's only time is its begin or its end.

A program's log is written when the call is over. Where neither words nor a second time say which it is, callers that ask one call after the other do: one
of the two makes calls overlap, and the other does not.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from overrun.collector.sources import log_lines
from overrun.collector.sources.exports import otlp
from overrun.collector.sources.exports.row_columns import Told, number

_LATEST_DURATION = 10**8  # as seconds since 1970 in 1973: a number below is no moment
_US_TIME = re.compile(r"(\d\d?/\d\d?/\d{4}), (\d\d?:\d\d:\d\d)(\.\d{1,6})? ([AP]M)")
_LONGEST = 100  # characters of a time
_LEAST_OVERLAPS = 3  # that tell a begin from an end
_LEAST_ROWS = 10


def moment_ns(told: Told | None) -> int:
    """A moment as a number, in ISO's form or a log's; 0 for none, and for a number that is none."""
    value = told.value if told is not None else None
    if isinstance(value, str) and re.fullmatch(r"\d{1,20}(?:\.\d{1,20})?", value):
        value = float(value) if "." in value else int(value)
    if not isinstance(value, str):
        return otlp.moment_ns(value) if (number(value) or 0.0) >= _LATEST_DURATION else 0
    text = value[:_LONGEST]
    if us := _US_TIME.fullmatch(text):
        day, clock, fraction, half = us.groups()
        at = datetime.strptime(f"{day} {clock} {half} +0000", "%m/%d/%Y %I:%M:%S %p %z")
        return otlp.moment_ns(at.timestamp() + float(fraction or 0))
    if re.match(r"\d{4}-\d\d-\d\d", text):
        return otlp.moment_ns(text)
    return log_lines.time_ns(text, int(datetime.now(UTC).timestamp() * 1e9)) or 0


def undeclared(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Which columns hold moments, where no name says so: the only one is a `time`, of two the one that is never later is the `start` and the other the `end`."""
    columns: dict[str, list[int]] = {}
    for row in rows:
        for name, value in row.items():
            try:
                moment = (
                    moment_ns(Told(value, "", name)) if isinstance(value, str | int | float) else 0
                )
            except (ValueError, OverflowError):
                moment = 0
            columns.setdefault(name, []).append(moment)
    whole = {name: told for name, told in columns.items() if all(told) and len(told) == len(rows)}
    if len(whole) == 1:
        return {"time": next(iter(whole))}
    if len(whole) == 2:
        (one, begins), (other, ends_) = whole.items()
        if all(begin <= end for begin, end in zip(begins, ends_, strict=True)):
            return {"start": one, "end": other}
        if all(end <= begin for begin, end in zip(begins, ends_, strict=True)):
            return {"start": other, "end": one}
    return {}


def is_logged(found: Mapping[str, Told]) -> bool:
    """Whether a row is a logger's line, whose time is when it was written: it has a level and a message, or a time as nginx names it."""
    time = found.get("time")
    return {"level", "message"} <= found.keys() or (
        time is not None and time.name.endswith(("time_local", "time_iso8601"))
    )


def ends(times: Sequence[tuple[int, int]]) -> bool:
    """Whether times are ends rather than begins, of (time, duration) in ns: as begins several calls overlap, as ends none does."""
    if len(times) < _LEAST_ROWS:
        return False
    ordered = sorted(times)
    whole_seconds = all(at % 10**9 == 0 for at, _ in ordered)
    slack = 10**9 if whole_seconds else 2 * 10**6
    pairs = list(itertools.pairwise(ordered))
    as_begins = sum(at + took > after + slack for (at, took), (after, _) in pairs)
    as_ends = sum(after - took < at - slack for (at, _), (after, took) in pairs)
    return as_ends == 0 and as_begins >= _LEAST_OVERLAPS
