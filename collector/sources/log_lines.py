"""What are the lines of a log, and when was each written? Times without a zone are read as UTC, those without a year are of the year before the file was written."""

from __future__ import annotations

import json
import re
import time as time_module
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from overrun.collector.sources.exports import otlp

# Where a container's log keeps a line, and when it came.
_LINES, _TIMES = ("log", "message", "msg", "line"), ("time", "timestamp", "ts", "@timestamp")
_CLOCK = r"(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
_ZONE = r"(?:\s?(Z|[+-]\d\d:?\d\d)\b)?"
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}
_MONTH = rf"({'|'.join(_MONTHS)})"
# Each gives year, month, day, clock and fraction, and the zone; a year of None is the one of the file.
_FULL = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)(?:[T ]| - )" + _CLOCK + _ZONE)
_NAMED = re.compile(rf"\b(\d\d?)[/ ]{_MONTH}[/ ](\d{{4}})[: ]{_CLOCK}{_ZONE}")
_PRINTED = re.compile(rf"\b{_MONTH} (\d\d?), (\d{{4}})(?: @|,)? {_CLOCK}")  # Kibana's tables
_SYSLOG = re.compile(rf"\b{_MONTH} +(\d\d?) {_CLOCK}")
# A file that is dated before has lost its time (archives that can be built again set 1970): years are then counted back from today.
_EARLIEST_NS = 946_684_800 * 10**9  # 2000
_SHORT = re.compile(rf"\b(\d\d)-(\d\d) {_CLOCK}")


def plain_lines(text: str) -> Iterator[tuple[str, str]]:
    """The lines of a log, and when their container says that each was written ("" where it does not): as they are, or in JSON objects of a container's log."""
    for line in text.splitlines():
        if not line.startswith("{"):
            yield line, ""
            continue
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            told = {}
        words = next((told[key] for key in _LINES if isinstance(told.get(key), str)), line)
        yield words, next((str(told[key]) for key in _TIMES if key in told), "")


def time_ns(line: str, written_ns: int) -> int | None:
    """When a line was written (ns since 1970); None if it does not say."""
    if re.fullmatch(r"\d{10}(?:\d{3})?(?:\.\d+)?", line):
        return otlp.moment_ns(float(line))
    found = _moment(line)
    if found is None:
        return None
    year, month, day, clock, fraction, zone = found
    written = datetime.fromtimestamp(dated_ns(written_ns) / 1e9, UTC)
    try:
        when = datetime(year or written.year, month, day, *clock, tzinfo=UTC)
        if year is None and when > written + timedelta(days=1):
            when = when.replace(year=written.year - 1)
    except ValueError:
        return None
    return (int(when.timestamp()) - zone) * 10**9 + int((fraction or "0").ljust(9, "0"))


def dated_ns(written_ns: int) -> int:
    """When a file was written (ns since 1970): as its date says, if that can be, else now."""
    return written_ns if written_ns >= _EARLIEST_NS else time_module.time_ns()


def _moment(
    line: str,
) -> tuple[int | None, int, int, tuple[int, int, int], str | None, int] | None:
    """Year, month, day, clock, the digits after the seconds and the zone's seconds, of the first date in a line."""
    if full := _FULL.search(line):
        year, month, day, *clock, fraction, zone = full.groups()
        return int(year), int(month), int(day), _clock(clock), fraction, _offset(zone)
    if named := _NAMED.search(line):
        day, month, year, *clock, fraction, zone = named.groups()
        return int(year), _MONTHS[month], int(day), _clock(clock), fraction, _offset(zone)
    if printed := _PRINTED.search(line):
        month, day, year, *clock, fraction = printed.groups()
        return int(year), _MONTHS[month], int(day), _clock(clock), fraction, 0
    if syslog := _SYSLOG.search(line):
        month, day, *clock, fraction = syslog.groups()
        return None, _MONTHS[month], int(day), _clock(clock), fraction, 0
    if short := _SHORT.search(line):
        month, day, *clock, fraction = short.groups()
        return None, int(month), int(day), _clock(clock), fraction, 0
    return None


def _clock(digits: list[str]) -> tuple[int, int, int]:
    hour, minute, second = (int(part) for part in digits)
    return hour, minute, second


def _offset(zone: str | None) -> int:
    """Seconds east of UTC."""
    if zone is None or zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    return (1 if zone[0] == "+" else -1) * (3_600 * hours + 60 * minutes)
