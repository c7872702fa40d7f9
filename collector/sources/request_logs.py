"""What did a server write into its log about each request? A line with its times becomes a span that ends when the line was written.

Three kinds of logs are known. A server with words of its own is one entry of `_SERVERS`: which lines, and what in them is an attribute (text-generation-
inference, router/src/server.rs: times as Rust prints them, which `overrun.collector.dialects.tgi` reads). llama.cpp prints how long reading and writing took
after each answer; since 2026 the time since its start stands before each line. Any other server or proxy writes access lines: a date, the address of a model's
API, a status and a duration with its unit (Gin, which Ollama is built with, Traefik, llama-swap, nginx's $request_time).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from overrun.collector.normalise import readers
from overrun.collector.sources import access_formats, access_statuses, model_apis
from overrun.collector.sources.exports import calls, otlp
from overrun.collector.sources.log_lines import plain_lines, time_ns

_Found = tuple[dict[str, Any], str, dict[str, Any]]


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


_REQUEST = re.compile(r"\bPOST\b[\s|]*\"?\s*(?:https?://[^/\s\"]+)?(/[^\s\"?|]*)")
_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|µs|us|ns|s)")
_TOOK = re.compile(rf"(?<![\w.:]){_PART.pattern}(?:{_PART.pattern})*(?![\w])")
_SECONDS = re.compile(r"\b(?:request_time|rt)[=:]\s*\"?(\d+\.\d+)\b")
_PART_NS = {"h": 3_600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "µs": 10**3}
# llama.cpp's lines: minutes.seconds.ms.us since the start, and what it prints of an answer.
_SINCE = re.compile(r"(?:^|\s)(\d+)\.(\d\d)\.(\d{3})\.(\d{3}) [A-Z] ")
_TASK = re.compile(r"\bid +\d+ \| task (\d+) ")
_PROMPT = re.compile(r"\b(?:task\.n_tokens|n_prompt_tokens) = (\d+)")
_SPENT = re.compile(
    r"(?P<what>prompt eval|eval|total) time\s*=\s*(?P<ms>[\d.]+) ms(?: /\s*(?P<n>\d+) (?:tokens|runs))?"
)


@dataclass(slots=True)
class _Answer:
    """What llama.cpp printed of an answer so far: milliseconds and tokens."""

    ms: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    prompt: int = 0  # all of its tokens, those of the cache as well


def documents(
    text: str, *, written_ns: int, notes: list[str] | None = None
) -> list[dict[str, Any]]:
    """The request of all such lines in a log; none if it has none. How times were found is added to `notes`."""
    lines = list(plain_lines(text))
    spans = [*_of_servers(lines, written_ns)] or [*_of_access(lines, written_ns, notes)]
    if not spans:  # what Ollama's llama.cpp prints is of the same requests as its access lines
        spans = _of_llama(lines, written_ns, notes)
    return otlp.request(spans) if spans else []


def _span(service: str, key: str, name: str, at: int, took: int, **told: Any) -> _Found:
    return (
        {"service.name": service},
        service,
        {
            "traceId": otlp.hex_id(f"trace {key}", 32),
            "spanId": otlp.hex_id(f"span {key}", 16),
            "name": name,
            "kind": otlp.KINDS["server"],
            "startTimeUnixNano": at - took,
            "endTimeUnixNano": at,
        }
        | told,
    )


def _of_servers(lines: list[tuple[str, str]], written_ns: int) -> Iterator[_Found]:
    for number, (line, when) in enumerate(lines):
        for server in _SERVERS:
            match = server.line.search(line)
            at = _at(line, when, written_ns) if match else None
            if match is None or at is None:
                continue
            told = dict(_TOLD.findall(match["told"]))
            took = readers.duration(told.get(server.whole, ""))
            if took is None:
                continue
            yield _span(
                server.service,
                f"{server.service} {at} {number}",
                match["name"],
                at,
                took,
                attributes=otlp.attributes(told),
                status={"code": 0 if "Success" in line else otlp.ERROR},
            )


def _at(line: str, when: str, written_ns: int) -> int | None:
    return time_ns(line, written_ns) or (time_ns(when, written_ns) if when else None)


@dataclass(frozen=True, slots=True)
class _Asked:
    """An access line of a model's API in no known format: its number in the file, when it was written and how long the call took (ns)."""

    number: int
    at: int
    took: int
    path: str
    operation: str
    is_ollama: bool
    around: tuple[str, str]  # what stands before and behind the address


def _of_access(
    lines: list[tuple[str, str]], written_ns: int, notes: list[str] | None
) -> Iterator[_Found]:
    """A call per access line of a model's API that has a date, a status and a duration, in a known format or with a unit."""
    found: list[int] = []
    asked: list[_Asked] = []
    for number, (line, when) in enumerate(lines):
        if (known := access_formats.read(line, when, written_ns)) is not None:
            found.append(known.status)
            yield from _of_format(number, known)
        elif (one := _asked(number, line, when, written_ns)) is not None:
            asked.append(one)
    statuses = access_statuses.statuses([one.around for one in asked])
    for one, status in zip(asked, statuses, strict=True):
        if status is not None:
            found.append(status)
            yield _access_span(one, status)
    if notes is not None and found:
        notes.append(f"statuses of the access lines: {access_statuses.counted(found)}")
    if notes is not None and (without := statuses.count(None)):
        notes.append(
            f"{without:,} access {'line' if without == 1 else 'lines'} left out: no number of them is surely an HTTP status "
            "(log it as status=200, or behind the protocol's name)"
        )


def _asked(number: int, line: str, when: str, written_ns: int) -> _Asked | None:
    request = _REQUEST.search(line)
    operation = model_apis.asked_of(request[1]) if request else ""
    if request is None or not operation:
        return None
    around = line[: request.start()], line[request.end() :]
    at, took = _at(line, when, written_ns), _took(" ".join(around))
    if at is None or took is None:
        return None
    own = request[1].startswith("/api/") and "[GIN]" in line
    return _Asked(number, at, took, request[1], operation, own, around)


def _access_span(one: _Asked, status: int) -> _Found:
    told = {
        "gen_ai.operation.name": one.operation,
        "gen_ai.provider.name": "ollama" if one.is_ollama else "",
        "http.request.method": "POST",
        "http.route": one.path,
        "http.response.status_code": status,
    }
    return _span(
        "ollama" if one.is_ollama else "server",
        f"access {one.at} {one.number}",
        f"POST {one.path}",
        one.at,
        one.took,
        attributes=otlp.attributes({key: value for key, value in told.items() if value}),
        status={"code": otlp.ERROR if status >= 400 else 0},
    )


def _of_format(number: int, line: access_formats.Line) -> list[_Found]:
    """The call of a line, and where its proxy let it wait, the request around it."""
    failed = line.status >= 400 or line.status < 100
    asked = {"http.request.method": "POST", "http.route": line.path}
    operation, queue = model_apis.asked_of(line.path), line.queue or 0
    told: dict[str, Any] = {
        "gen_ai.operation.name": operation,
        "http.response.status_code": line.status,
    }
    told |= {"error.type": "no answer"} if line.status < 100 else {}
    call = _span(
        line.proxy,
        f"{line.proxy} {line.start} {number}",
        operation,
        line.start + line.whole,
        line.whole - queue,
        attributes=otlp.attributes(told | (asked if line.queue is None else {})),
        status={"code": otlp.ERROR if failed else 0},
    )
    call[2]["kind"] = otlp.KINDS["client"]
    if line.queue is None:
        return [call]
    waits = calls.Waits(queue_ms=queue / 1e6, whole_ms=line.whole / 1e6)
    return calls.with_gateway(call, asked, line.start, waits)


def _took(words: str) -> int | None:
    """The longest duration in a line, in ns: a proxy writes its server's beside its own."""
    found = [
        round(sum(float(n) * _PART_NS.get(unit, 1) for n, unit in _PART.findall(match[0])))
        for match in _TOOK.finditer(words)
    ]
    found += [round(float(told) * 1e9) for told in _SECONDS.findall(words)]
    return max(found, default=None)


def _of_llama(
    lines: list[tuple[str, str]], written_ns: int, notes: list[str] | None
) -> list[_Found]:
    """A call per answer of llama.cpp; without a date the last line was written when the file was."""
    answers: dict[str, _Answer] = {}
    done: list[tuple[int | None, int, _Answer]] = []  # the date, ns since the start
    task, since, dated = "", 0, False
    for line, when in lines:
        if clock := _SINCE.search(line):
            minutes, seconds, ms, us = (int(part) for part in clock.groups())
            since = ((60 * minutes + seconds) * 10**6 + 1_000 * ms + us) * 1_000
        if named := _TASK.search(line):
            task = named[1]
        answer = answers.setdefault(task, _Answer())
        if prompt := _PROMPT.search(line):
            answer.prompt = int(prompt[1])
        spent = _SPENT.search(line)
        if spent is None:
            continue
        answer.ms[spent["what"]] = float(spent["ms"])
        answer.tokens[spent["what"]] = int(spent["n"] or 0)
        if spent["what"] == "total" and {"prompt eval", "eval"} <= answer.ms.keys():
            at = _at(line, when, written_ns)
            dated |= at is not None
            done.append((at, since, answers.pop(task)))
    if notes is not None and done:
        notes.append("times count from a free slot: how long requests wait for one is not logged")
        if not dated and since:
            notes.append("lines count from the start: the last is dated by the file")
        elif not dated:
            notes.append(
                "no line has a time: answers are set one after the other, the last one at the file's date. Durations and order are as logged; dates, pauses and load are not"
            )
    if not dated and not since:
        return _in_order([answer for _, _, answer in done], written_ns)
    start = written_ns - since
    return [
        _answered(number, start + after if at is None else at, answer)
        for number, (at, after, answer) in enumerate(done)
        if at is not None or not dated
    ]


def _in_order(answers: list[_Answer], written_ns: int) -> list[_Found]:
    """The calls of answers without any time, one after the other up to the time of the file."""
    found, at = [], written_ns
    for number, answer in reversed(list(enumerate(answers))):
        found.append(_answered(number, at, answer))
        at -= round(1e6 * answer.ms["total"])
    return found[::-1]


def _answered(number: int, at: int, answer: _Answer) -> _Found:
    read, prompt = answer.tokens["prompt eval"], answer.prompt
    seconds = {what: ms / 1e3 for what, ms in answer.ms.items()}
    told = {
        "gen_ai.usage.input_tokens": max(prompt, read),
        "gen_ai.usage.output_tokens": answer.tokens["eval"],
        "gen_ai.latency.time_to_first_token": seconds["prompt eval"],
        "gen_ai.latency.time_in_queue": 0.0,  # it counts from the moment when the request got a slot
        "gen_ai.latency.time_in_model_prefill": seconds["prompt eval"],
        "gen_ai.latency.time_in_model_decode": seconds["eval"],
        "gen_ai.latency.e2e": seconds["total"],
    }
    if prompt:
        told["gen_ai.usage.cache_read.input_tokens"] = max(prompt - read, 0)
    return _span(
        "llama.cpp",
        f"llama.cpp {at} {number}",
        "llama.cpp",
        at,
        round(1e6 * answer.ms["total"]),
        attributes=otlp.attributes(told),
        status={"code": 0},
    )
