"""Which proxy wrote a line, where its numbers mean something by their place alone? A line in, the call that it is about out.

A format is one entry of `access_formats.toml`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from overrun.collector.sources import model_apis
from overrun.collector.sources.log_lines import time_ns


@dataclass(frozen=True, slots=True)
class Line:
    """A call that a line is about, in ns; `queue` is what it waited at the proxy before it was sent on, None where the format does not say."""

    proxy: str
    start: int
    whole: int
    status: int
    path: str
    queue: int | None = None


_WORDS = re.compile(r'"[^"]*[A-Za-z][^"]*"')
_SECONDS = re.compile(r'(?<![^\s"=])\d{1,7}\.\d{3}(?:\d{3})?(?![^\s",])')
_LONGEST = 8_000  # characters of a line


def read(line: str, when: str, written_ns: int) -> Line | None:
    """The call of a line in a known format, None of any other line; `when` is what a container says of it."""
    line = line[:_LONGEST]
    if '"POST ' not in line:
        return None
    for proxy, pattern, times in _FORMATS:
        found = pattern.search(line)
        if found is None:
            continue
        path = model_apis.path_of(found["path"])
        if found["method"] != "POST" or not model_apis.asked_of(path):
            return None
        told = times(found, line, when, written_ns)
        if told is not None:
            start, whole, queue = told
            return Line(proxy, start, whole, int(found["status"]), path, queue)
    return None


_Times = tuple[int, int, int | None]


def _by_start(found: re.Match[str], line: str, when: str, written_ns: int) -> _Times | None:
    """Its begin, and milliseconds; a wait that was not reached is none."""
    start = time_ns(found["start"], written_ns)
    queue = found.groupdict().get("queue")
    waited = None if queue is None else max(int(queue), 0) * 10**6
    return None if start is None else (start, int(found["ms"]) * 10**6, waited)


def _by_both(found: re.Match[str], line: str, when: str, written_ns: int) -> _Times | None:
    """Its begin and its end: durations are missing of those that failed."""
    start, end = (time_ns(found[name], written_ns) for name in ("start", "end"))
    return None if start is None or end is None or end < start else (start, end - start, None)


def _by_end(found: re.Match[str], line: str, when: str, written_ns: int) -> _Times | None:
    """When it was written, and the longest of the numbers that are seconds: a server's own stands beside the whole."""
    end = time_ns(line, written_ns) or (time_ns(when, written_ns) if when else None)
    seconds = [float(one[0]) for one in _SECONDS.finditer(_WORDS.sub(" ", found["rest"]))]
    if end is None or not seconds:
        return None
    whole = round(max(seconds) * 1e9)
    return end - whole, whole, None


class _Format(msgspec.Struct, forbid_unknown_fields=True):
    proxy: str
    times: Literal["start", "both", "end"]
    pattern: str


class _Formats(msgspec.Struct, forbid_unknown_fields=True):
    formats: list[_Format]


_TIMES = {"start": _by_start, "both": _by_both, "end": _by_end}
_FORMATS = [
    (one.proxy, re.compile(one.pattern), _TIMES[one.times])
    for one in msgspec.toml.decode(
        Path(__file__).with_suffix(".toml").read_bytes(), type=_Formats
    ).formats
]
