"""Rows of spans or model calls under names of anybody's: what a column means follows from the words of its name, and its unit from its suffix or from the row.

The last way, where no form and no load test is known. A row counts if it says when it began, when it ended or how long it took, and which trace, model or
tokens it is of. Every one of the first rows must, or be of the same log: a row with the same times that names no model. A JSON object that stands in a row as
text is read as if it stood there itself. A duration without a unit is read where a begin and an end stand beside it, or where one unit alone makes the calls
write as many tokens a second as models do.
"""

from __future__ import annotations

import contextlib
import json
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from overrun.collector.sources.exports import otlp

Found = tuple[dict[str, Any], str, dict[str, Any]]
# What begins a name and tells nothing; of a document within a row the last words count.
_TOLD_BY_ALL = re.compile(
    r"^(?:properties|attributes|metadata|context|trace|span|ai|llm|genai|x)+(?=.)"
)
_UNIT = r"(?:in)?(?P<unit>ms|millis|milliseconds|msec|s|sec|secs|seconds|us|micros|microseconds|ns|nanos|nanoseconds)?"
_SCALE_NS = {"m": 10**6, "s": 10**9, "u": 10**3, "n": 1}
# Field -> what its name is, letters and digits alone, in the order in which they are looked for.
_NAMES: dict[str, re.Pattern[str]] = {
    field: re.compile(pattern)
    for field, pattern in {
        "parent": r"parent(?:span|run|observation|call)?(?:id)?",
        "trace": r"(?:trace|roottrace|call)id|operationid",
        "id": r"(?:(?:span|run|observation|request|generation)?id|uuid)",
        "session": r"(?:session|conversation|thread|group)id|session",
        "first": r"(?:ttft|timetofirst(?:token|chunk|byte)|firsttoken(?:latency|time|duration|delay|at)?|completionstarttime)"
        + _UNIT,
        "start": r"(?:start|started|begin|began|request)(?:time(?:stamp)?|at|edat|createdat|ts)?|starttimestamp|start(?:time)?(?P<unit>ns|us|ms)",
        "end": r"(?:end|ended|finished|completed|response|stop)(?:time(?:stamp)?|at|edat|createdat|ts)?|endtimestamp",
        "took": r"(?:total|request|response|e2e|call)?(?:duration|latency|elapsed|took|delay|time(?:taken|spent)|responsetime)"
        + _UNIT,
        "time": r"(?:timestamp|time|timegenerated|createdat|datetime|date|ts)",
        "asked": r"(?:request)?(?:url|uri|path)",
        "kind": r"(?:type|spankind|spantype|runtype|kind|openinferencespankind|observationtype)",
        "model": r"(?:request|response|provided|used)?model(?:name|id)?",
        "provider": r"(?:provider|system|modelprovider|providername)",
        "name": r"(?:name|spanname|operationname|runname)",
        "service": r"(?:service|servicename|application|app|projectname|project)",
        "tenant": r"(?:tenant|tenantid|team|teamid|customer|customerid)",
        "status": r"(?:http|response|result)?(?:status|statuscode)|(?:response|result)code|resultsignature|level",
        "success": r"(?:is)?(?:success|successful|succeeded|ok)",
        "error": r"(?:error|errortype|errormessage|exception|failed|iserror)",
    }.items()
}
_KINDS = (
    (
        "LLM",
        (
            "llm",
            "generation",
            "chat",
            "completion",
            "chat_model",
            "chatmodel",
            "response",
            "text_completion",
        ),
    ),
    ("TOOL", ("tool", "function", "tool_call", "execute_tool")),
    ("RETRIEVER", ("retriever", "retrieval", "search", "vector_search")),
    ("EMBEDDING", ("embedding", "embeddings")),
    ("RERANKER", ("reranker", "rerank")),
    ("GUARDRAIL", ("guardrail", "guard", "moderation")),
    ("AGENT", ("agent",)),
)
# What is asked of a model, by a name, an address or the model's own name, where no count of tokens says it.
_ASKED = (
    ("EMBEDDING", "embed"),
    ("RERANKER", "rerank"),
    ("GUARDRAIL", "moderation"),
    *(("LLM", word) for word in ("chat", "completion", "generate", "responses", "messages")),
)
# A count of tokens: a name with one of these words, and of the others the first that is in it.
_COUNTED = frozenset({"token", "tokens", "usage"})
_COUNTS = (
    ("cached", frozenset({"cached", "cache"})),
    ("reasoning", frozenset({"reasoning", "thoughts", "thinking"})),
    ("output", frozenset({"output", "completion", "generated", "out"})),
    ("input", frozenset({"input", "prompt", "in"})),
)
# No count of what was read or written, whatever else the name says.
_NO_COUNT = frozenset(
    {"max", "limit", "budget", "remaining", "cost", "price", "usd", "per", "rate", "second"}
    | {"seconds", "creation", "write", "written", "audio", "image", "images", "video"}
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# Tokens a second of a model's answer, its wait included: from a CPU's large model to the fastest accelerators.
_WRITTEN_A_SECOND = (0.3, 3_000.0)
_LEAST_TIMED = 3  # rows that must agree on the unit
_LATEST_DURATION = 10**8  # as seconds since 1970 in 1973: a number below is no moment
_LONGEST_TEXT = 1 << 16  # of a JSON object that stands in a row as text
_US_TIME = re.compile(r"(\d\d?/\d\d?/\d{4}), (\d\d?:\d\d:\d\d)(\.\d{1,6})? ([AP]M)")
_FAILED = re.compile(r"(?i)err|fail|exception|timeout|cancel|abort")
_LISTS = (
    "data",
    "result",
    "results",
    "content",
    "items",
    "records",
    "rows",
    "spans",
    "traces",
    "runs",
    "requests",
    "calls",
    "logs",
    "events",
    "observations",
    "generations",
)
_LOOKED_AT = 20  # rows by which a file is known
_DEEPEST = 3


def documents(value: Any, notes: list[str] | None = None) -> list[dict[str, Any]] | None:
    """The request of such rows, listed or below one key of an answer; None of anything else. What is concluded about their unit is added to `notes`."""
    rows = _listed(value)
    first = [_fields(row) for row in rows[:_LOOKED_AT]]
    unit = _unit_of(first)
    read = [_read(found, unit) for found in first]
    if None in read or not any(read):
        return None
    if unit and notes is not None:
        notes.append(
            f"durations without a unit are read in {unit}: the only one in which these calls write as many tokens a second as models do"
        )
    later = (_read(_fields(row), unit) for row in rows[_LOOKED_AT:])
    return otlp.request(_span(number, told) for number, told in enumerate((*read, *later)) if told)


def lacking(value: Any) -> str:
    """What rows lack that have a begin and a model or tokens; "" for anything else, such as one document: a summary has a date and a duration, too."""
    rows = _listed(value)[:_LOOKED_AT]
    if rows == [value]:
        return ""
    found = [_fields(row) for row in rows]
    if not found or not all(
        ({"start", "time"} & n.keys()) and ({"model", "input"} & n.keys()) for n in found
    ):
        return ""
    if "took" not in found[0]:
        return "rows of calls without an end or a duration: add a column `end` (a time) or `duration_ms`"
    took = found[0]["took"].name
    return f"rows of calls whose column {took!r} has no unit: rename it {took}_ms or {took}_s, or add a column `end` (a time)"


@dataclass(frozen=True, slots=True)
class _Told:
    """A value of a row, the unit that its column's name ends with ("" for none), and that name."""

    value: Any
    unit: str
    name: str


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", re.sub(r"\s*[\[(].*", "", name).lower())


def _listed(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        held = [value[key] for key in _LISTS if isinstance(value.get(key), list)]
        return otlp.listed(held[0]) if len(held) == 1 else [value]
    return otlp.listed(value)


def _flat(
    row: Mapping[str, Any], before: str = "", depth: int = 0
) -> Iterator[tuple[int, str, Any]]:
    """The values of a row, those of objects in it under names with dots, and how deep each stands. Access logs write a dash for none."""
    for key, told in row.items():
        name = f"{before}.{key}" if before else str(key)
        inner = _object(told) if depth < _DEEPEST else None
        if inner is not None:
            yield from _flat(inner, name, depth + 1)
        elif told is not None and told not in ("", "-") and not isinstance(told, list | dict):
            yield depth, name, told


def _object(told: Any) -> dict[str, Any] | None:
    """An object, as such or as JSON text."""
    if isinstance(told, str) and told[:1] == "{" and len(told) <= _LONGEST_TEXT:
        with contextlib.suppress(ValueError, RecursionError):
            told = json.loads(told)
    return told if isinstance(told, dict) else None


def _fields(row: Mapping[str, Any]) -> dict[str, _Told]:
    """What a row's columns say: of two for one field that which stands less deep, or says more."""
    found: dict[str, _Told] = {}
    counts: dict[frozenset[str], dict[str, _Told]] = {}
    for _, name, told in sorted(_flat(row), key=lambda one: one[0]):
        words = frozenset(word.lower() for word in _WORD.findall(name))
        if count := _counted(words, told):
            apart = words - _COUNTED - dict(_COUNTS)[count]
            counts.setdefault(apart, {}).setdefault(count, _Told(told, "", name))
            continue
        field = _field(_plain(name), name)
        if field is not None and (field[0] not in found or _is_better(field[0], told, found)):
            found[field[0]] = _Told(told, field[1], name)
    # Names that share their other words belong together: of two such families the fuller one.
    for family in sorted(counts.values(), key=len):
        found |= family
    return found


def _counted(words: frozenset[str], told: Any) -> str:
    """Which tokens are counted in a column whose name has these words; "" for none."""
    if not words & _COUNTED or words & _NO_COUNT or _number(told) is None:
        return ""
    return next((field for field, meant in _COUNTS if words & meant), "")


def _read(found: Mapping[str, _Told], unit: str) -> dict[str, Any] | None:
    """The fields of a row in the words of `_NAMES`, times in ns; None if it is none of a span or call, empty if it is another one of the same log."""
    start = otlp.moment_ns(_time(found, "start")) or otlp.moment_ns(_time(found, "time"))
    end = otlp.moment_ns(_time(found, "end"))
    if not end and "start" in found and "took" not in found:
        end = otlp.moment_ns(_time(found, "time"))  # when it was written down
    took = _took_ns(found, end - start if start and end else None, unit)
    if not start or (not end and took is None):
        return None
    whole = end - start if end else (took or 0)
    if whole < 0:
        return None
    if not {"trace", "model", "input", "output"} & found.keys():
        return {}
    return {field: told.value for field, told in found.items()} | {
        "start": start,
        "whole": whole,
        "first": _first(found.get("first"), start, whole),
    }


def _field(plain: str, name: str) -> tuple[str, str] | None:
    """Which field a name is, and the unit that it ends with."""
    last = _plain(name.rpartition(".")[2])
    for spelled in dict.fromkeys(
        (plain, _TOLD_BY_ALL.sub("", plain), last, _TOLD_BY_ALL.sub("", last))
    ):
        for field, pattern in _NAMES.items():
            if match := pattern.fullmatch(spelled):
                return field, match.groupdict().get("unit") or ""
    return None


def _time(found: Mapping[str, _Told], field: str) -> Any:
    """A moment, as a number or in ISO's form; None for a number that is none."""
    told = found[field].value if field in found else None
    if isinstance(told, str) and re.fullmatch(r"\d{1,20}(?:\.\d+)?", told):
        told = float(told) if "." in told else int(told)
    if not isinstance(told, str):
        return told if (_number(told) or 0.0) >= _LATEST_DURATION else None
    if us := _US_TIME.fullmatch(told):
        day, clock, fraction, half = us.groups()
        at = datetime.strptime(f"{day} {clock} {half} +0000", "%m/%d/%Y %I:%M:%S %p %z")
        return at.timestamp() + float(fraction or 0)
    return told if re.match(r"\d{4}-\d\d-\d\d", told) else None


def _number(told: Any) -> float | None:
    try:
        return None if isinstance(told, bool) else float(told)
    except (TypeError, ValueError):
        return None


def _duration(found: Mapping[str, _Told]) -> tuple[float | None, str]:
    """How long a row's call took and the unit, "" where neither its name nor that of the begin says it; `response_time` is one if it is no moment."""
    told = found.get("took")
    if told is None and _time(found, "end") is None:
        told = found.get("end")
    if told is None:
        return None, ""
    start = found.get("start")
    return _number(told.value), told.unit or (start.unit if start is not None else "")


def _took_ns(found: Mapping[str, _Told], whole: int | None, unit: str) -> int | None:
    """A duration: by its suffix, or that of the begin beside it, else by begin and end, else by the unit of all rows."""
    number, own = _duration(found)
    if number is None or not 0.0 <= number < 1e18:
        return None
    if own or (whole is None and unit):
        return _scaled(number, own or unit)
    return whole


def _unit_of(rows: Iterable[Mapping[str, _Told]]) -> str:
    """The one unit in which durations without any let the calls write as fast as models do; "" where there is none, or more than one."""
    written = []
    for found in rows:
        number, unit = _duration(found)
        tokens = _number(found["output"].value) if "output" in found else None
        if number and number > 0.0 and not unit and tokens and tokens > 0.0:
            written.append(tokens / number)
    if len(written) < _LEAST_TIMED:
        return ""
    typical = statistics.median(written)
    least, most = _WRITTEN_A_SECOND
    units = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
    fits = [unit for unit, a_second in units.items() if least <= typical * a_second <= most]
    return fits[0] if len(fits) == 1 else ""


def _scaled(number: float, unit: str) -> int:
    return round(number * _SCALE_NS[unit.removeprefix("milli")[:1] or "m"])


def _is_better(field: str, told: Any, found: Mapping[str, _Told]) -> bool:
    """Whether a second column says of a field what the first one does not: `type` is `span`, `span_kind` is `llm`."""
    words = {word for _, known in _KINDS for word in known}
    return (
        field == "kind"
        and str(told).lower() in words
        and str(found["kind"].value).lower() not in words
    )


def _first(found: _Told | None, start: int, whole: int) -> int | None:
    """When the first token came after the start: a time, or a duration whose unit is said or the only one that fits."""
    if found is None:
        return None
    number = _number(found.value)
    if number is None:
        at = otlp.moment_ns(found.value) - start if isinstance(found.value, str) else -1
        return at if 0 <= at <= whole else None
    if not 0.0 <= number < 1e18:
        return None
    if found.unit:
        after = _scaled(number, found.unit)
        return after if after <= whole else None
    fits = [round(number * scale) for scale in (10**9, 10**6) if number * scale <= whole]
    return fits[0] if number > 0.0 and fits else None


def _kind(told: Mapping[str, Any]) -> str:
    said = str(told.get("kind") or "").lower()
    for kind, words in _KINDS:
        if said in words:
            return kind
    if "model" not in told:
        return "CHAIN"
    asked = " ".join(str(told.get(field) or "") for field in ("name", "asked", "model")).lower()
    named = next((kind for kind, word in _ASKED if word in asked), "CHAIN")
    return "LLM" if named == "CHAIN" and dict(_COUNTS).keys() & told.keys() else named


def _count(told: Any) -> int | None:
    number = _number(told)
    return round(number) if number is not None and number >= 0.0 else None


def _span(number: int, told: Mapping[str, Any]) -> Found:
    own = str(told.get("id") or 0)
    own = own if own.strip("0") else f"row {number}"  # zeros alone are no id of a span
    trace = str(told.get("trace") or f"trace of {own}")
    kind = _kind(told)
    first = told["first"]
    attributes = {
        "openinference.span.kind": kind,
        "gen_ai.response.model": told.get("model"),
        "gen_ai.provider.name": str(told.get("provider") or "").lower(),
        "gen_ai.usage.input_tokens": _count(told.get("input")),
        "gen_ai.usage.output_tokens": _count(told.get("output")),
        "gen_ai.usage.cache_read.input_tokens": _count(told.get("cached")),
        "gen_ai.usage.reasoning.output_tokens": _count(told.get("reasoning")),
        "gen_ai.response.time_to_first_chunk": first / 1e9 if first is not None else None,
        "session.id": told.get("session"),
        "tenant.id": told.get("tenant"),
    }
    if kind == "CHAIN":
        attributes = {"openinference.span.kind": kind, "session.id": told.get("session")}
    parent = told.get("parent")
    return (
        {"service.name": told.get("service") or "rows"},
        "rows",
        {
            "traceId": otlp.hex_id(trace, 32),
            "spanId": otlp.hex_id(own, 16),
            "parentSpanId": otlp.hex_id(parent, 16) if parent and str(parent) != own else "",
            "name": str(told.get("name") or kind.lower()),
            "kind": otlp.KINDS["internal"],
            "startTimeUnixNano": told["start"],
            "endTimeUnixNano": told["start"] + told["whole"],
            "attributes": otlp.attributes(
                {key: one for key, one in attributes.items() if one not in (None, "")}
            ),
            "status": {"code": otlp.ERROR if _failed(told) else 0},
        },
    )


def _failed(told: Mapping[str, Any]) -> bool:
    status, error = told.get("status"), told.get("error")
    if str(told.get("success")).lower() in ("false", "0", "0.0"):
        return True
    code = _number(status)
    if code is not None and code >= 400:
        return True
    if isinstance(status, str) and code is None and _FAILED.search(status):
        return True
    return error is True or (
        isinstance(error, str) and error.lower() not in ("", "false", "none", "null", "0")
    )
