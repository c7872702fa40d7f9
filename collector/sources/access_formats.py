"""Which proxy wrote a line, where its numbers mean something by their place alone? A line in, the call that it is about out.

A format is one entry of `_FORMATS`, as data. Source: Envoy's default access log (Istio, Contour and Envoy Gateway write it too, Istio with three more words),
HAProxy's `option httplog` (configuration manual, 8.2.3 and 8.4: milliseconds, -1 for what was not reached), AWS's access log of Application Load Balancers,
and the common log format of web servers with nginx's $request_time (seconds with three decimals) or gunicorn's %(L)s (with six) behind it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

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


_ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z"
_ENVOY = re.compile(
    rf'\[(?P<start>{_ISO})\] "(?P<method>[A-Z]+) (?P<path>\S+) [^"]{{0,20}}" (?P<status>\d{{1,3}})(?: \S+){{1,3}}(?: "[^"]*")? \d+ \d+ (?P<ms>\d{{1,12}}) (?:\d+|-) "'
)
_HAPROXY = re.compile(
    r"\[(?P<start>\d\d/[A-Z][a-z]{2}/\d{4}:[\d:.]{8,15})\] \S+ \S+ -?\d+/(?P<queue>-?\d{1,12})/-?\d+/-?\d+/\+?(?P<ms>\d{1,12}) (?P<status>-?\d{1,3}) \S+ \S+ \S+ \S{4} \S+ \S+ "
    r'(?:\{[^}]*\} ){0,2}"(?P<method>[A-Z]+) (?P<path>\S+)'
)
_LOAD_BALANCER = re.compile(
    rf'^\S+ (?P<end>{_ISO}) \S+ \S+ \S+ -?[\d.]+ -?[\d.]+ -?[\d.]+ (?P<status>\d{{1,3}}) \S+ \S+ \S+ "(?P<method>[A-Z]+) (?P<path>\S+) [^"]*" .* (?P<start>{_ISO}) "'
)
_COMMON = re.compile(
    r'"(?P<method>[A-Z]+) (?P<path>\S+) HTTP/[\d.]{1,5}" (?P<status>\d{3}) (?P<rest>.*)'
)
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


_FORMATS: tuple[
    tuple[str, re.Pattern[str], Callable[[re.Match[str], str, str, int], _Times | None]], ...
] = (
    ("envoy", _ENVOY, _by_start),
    ("haproxy", _HAPROXY, _by_start),
    ("load-balancer", _LOAD_BALANCER, _by_both),
    ("server", _COMMON, _by_end),
)
