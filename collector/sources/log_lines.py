"""What are the lines of a log, and when was each written? Times without a zone are read as UTC, those without a year are of the year before the file was written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

# Where a container's log keeps a line, and when it came.
_LINES, _TIMES = ("log", "message", "msg", "line"), ("time", "timestamp", "ts", "@timestamp")
_FULL = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
_SHORT = re.compile(r"\b(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")


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
    full, short = _FULL.search(line), _SHORT.search(line)
    try:
        if full is not None:
            when = datetime(*(int(part) for part in full.groups()[:6]), tzinfo=UTC)  # type: ignore[misc,arg-type]
            fraction = full[7]
        elif short is not None:
            written = datetime.fromtimestamp(written_ns / 1e9, UTC)
            parts = [int(part) for part in short.groups()[:5]]
            when = datetime(written.year, *parts, tzinfo=UTC)  # type: ignore[misc,arg-type]
            if when > written + timedelta(days=1):
                when = when.replace(year=written.year - 1)
            fraction = short[6]
        else:
            return None
    except ValueError:
        return None
    return int(when.timestamp()) * 10**9 + (int(fraction.ljust(9, "0")) if fraction else 0)
