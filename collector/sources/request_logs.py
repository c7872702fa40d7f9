"""What did a server write into its log about each request? A line with its times becomes a span that ends when the line was written.

A server is one entry of `_SERVERS`: which lines, and what in them is an attribute. Source: text-generation-inference's router (router/src/server.rs): times as
Rust prints them, which its vocabulary reads (`overrun.collector.dialects.tgi`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from overrun.collector.normalise import readers
from overrun.collector.sources.exports import otlp
from overrun.collector.sources.log_lines import plain_lines, time_ns


@dataclass(frozen=True, slots=True)
class _Server:
    service: str
    line: re.Pattern[str]  # `name` is what was asked, `told` its attributes
    whole: str  # the attribute that is the whole time


_SERVERS = (
    _Server(
        "tgi",
        re.compile(r"\b(?P<name>\w+)\{(?P<told>.*total_time=\"[^\"]+\".*)\}"),
        "total_time",
    ),
)
_TOLD = re.compile(r"(\w+)=\"([^\"]*)\"")


def documents(text: str, *, written_ns: int) -> list[dict[str, Any]]:
    """The request of all such lines in a log; none if it has none."""
    spans = []
    for number, (line, when) in enumerate(plain_lines(text)):
        for server in _SERVERS:
            match = server.line.search(line)
            at = time_ns(line, written_ns) or (time_ns(when, written_ns) if match else None)
            if match is None or at is None:
                continue
            told = dict(_TOLD.findall(match["told"]))
            took = readers.duration(told.get(server.whole, ""))
            if took is None:
                continue
            key = f"{server.service} {at} {number}"
            spans.append(
                (
                    {"service.name": server.service},
                    server.service,
                    {
                        "traceId": otlp.hex_id(f"trace {key}", 32),
                        "spanId": otlp.hex_id(f"span {key}", 16),
                        "name": match["name"],
                        "kind": otlp.KINDS["server"],
                        "startTimeUnixNano": at - took,
                        "endTimeUnixNano": at,
                        "attributes": otlp.attributes(told),
                        "status": {"code": 0 if "Success" in line else otlp.ERROR},
                    },
                )
            )
    return otlp.request(spans) if spans else []
