"""Rows of spans or model calls under names of anybody's: what a column means follows from the words of its name, and its unit from its suffix or from the row.

The last way, where no form and no load test is known. A row counts if it says when it began, when it ended or how long it took, and which trace, model or
tokens it is of; every one of the first rows must. Nothing is guessed that a row does not show: a duration without a unit needs a begin and an end beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
        "cached": r"(?:cached|cacheread)(?:input|prompt)?tokens?|(?:input|prompt)(?:cached|cachedtokens)|cachereadinputtokens",
        "reasoning": r"(?:output|completion)?reasoningtokens?",
        "input": r"(?:n|num|total)?(?:input|prompt)tokens?(?:count)?|tokencountprompt|usage(?:details)?(?:input|prompttokens|inputtokens)|tokensin(?:put)?",
        "output": r"(?:n|num|total)?(?:output|completion|generated)tokens?(?:count)?|tokencountcompletion"
        r"|usage(?:details)?(?:output|completiontokens|outputtokens)|tokensout(?:put)?",
        "first": r"(?:ttft|timetofirst(?:token|chunk|byte)|firsttoken(?:latency|time|at)?|completionstarttime)"
        + _UNIT,
        "start": r"(?:start|started|begin|began|request)(?:time(?:stamp)?|at|edat|createdat|ts)?|starttimestamp|start(?:time)?(?P<unit>ns|us|ms)",
        "end": r"(?:end|ended|finished|completed|response|stop)(?:time(?:stamp)?|at|edat|createdat|ts)?|endtimestamp",
        "took": r"(?:total|request|response|e2e|call)?(?:duration|latency|elapsed|took|delay|time(?:taken|spent)|responsetime)"
        + _UNIT,
        "time": r"(?:timestamp|time|createdat|datetime|date|ts)",
        "kind": r"(?:type|spankind|spantype|runtype|kind|openinferencespankind|observationtype)",
        "model": r"(?:request|response|provided|used)?model(?:name|id)?",
        "provider": r"(?:provider|system|modelprovider|providername)",
        "name": r"(?:name|spanname|operationname|runname)",
        "service": r"(?:service|servicename|application|app|projectname|project)",
        "tenant": r"(?:tenant|tenantid|team|teamid|customer|customerid)",
        "status": r"(?:status|statuscode|httpstatus|httpstatuscode|responsestatus|responsestatuscode|level)",
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


def documents(value: Any) -> list[dict[str, Any]] | None:
    """The request of such rows, listed or below one key of an answer; None of anything else."""
    rows = _listed(value)
    read = [_read(row) for row in rows[:_LOOKED_AT]]
    if not read or None in read:
        return None
    return otlp.request(
        _span(number, told)
        for number, row in enumerate(rows)
        for told in [_read(row)]
        if told is not None
    )


def lacking(value: Any) -> str:
    """What rows lack that have a begin and a model or tokens; "" for anything else, such as one document: a summary has a date and a duration, too."""
    rows = _listed(value)[:_LOOKED_AT]
    if rows == [value]:
        return ""
    names = [
        {field[0]: name for name, _ in _flat(row) if (field := _field(_plain(name), name))}
        for row in rows
    ]
    if not names or not all(
        ({"start", "time"} & n.keys()) and ({"model", "input"} & n.keys()) for n in names
    ):
        return ""
    took = names[0].get("took")
    if took is None:
        return "rows of calls without an end or a duration: add a column `end` (a time) or `duration_ms`"
    return f"rows of calls whose column {took!r} has no unit: rename it {took}_ms or {took}_s, or add a column `end` (a time)"


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _listed(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        held = [value[key] for key in _LISTS if isinstance(value.get(key), list)]
        return otlp.listed(held[0]) if len(held) == 1 else [value]
    return otlp.listed(value)


def _flat(row: Mapping[str, Any], before: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    for key, told in row.items():
        name = f"{before}.{key}" if before else str(key)
        if isinstance(told, dict) and depth < _DEEPEST:
            yield from _flat(told, name, depth + 1)
        elif told is not None and told != "" and not isinstance(told, list | dict):
            yield name, told


def _read(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The fields of a row in the words of `_NAMES`, times in ns; None if it is none of a span or call."""
    found: dict[str, tuple[Any, str]] = {}
    for name, told in _flat(row):
        field = _field(_plain(name), name)
        if field is not None and (field[0] not in found or _is_better(field[0], told, found)):
            found[field[0]] = (told, field[1])
    start = otlp.moment_ns(_time(found, "start")) or otlp.moment_ns(_time(found, "time"))
    end = otlp.moment_ns(_time(found, "end"))
    if not end and "start" in found and "took" not in found:
        end = otlp.moment_ns(_time(found, "time"))  # when it was written down
    took = _took_ns(found, end - start if start and end else None)
    if not start or (not end and took is None):
        return None
    of = {"trace", "model", "input", "output"} & found.keys()
    if not of:
        return None
    told_of = {field: told for field, (told, _) in found.items()}
    whole = end - start if end else (took or 0)
    if whole < 0:
        return None
    return told_of | {
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


def _time(found: Mapping[str, tuple[Any, str]], field: str) -> Any:
    told = found.get(field, (None, ""))[0]
    if isinstance(told, str) and re.fullmatch(r"\d{9,20}(?:\.\d+)?", told):
        return float(told) if "." in told else int(told)
    return told if not isinstance(told, str) or re.match(r"\d{4}-\d\d-\d\d", told) else None


def _number(told: Any) -> float | None:
    try:
        return None if isinstance(told, bool) else float(told)
    except (TypeError, ValueError):
        return None


def _took_ns(found: Mapping[str, tuple[Any, str]], whole: int | None) -> int | None:
    """A duration: by its suffix, or that of the begin beside it, else by begin and end."""
    told, unit = found.get("took", (None, ""))
    number, unit = _number(told), unit or found.get("start", (None, ""))[1]
    if number is None or number < 0.0:
        return None
    return _scaled(number, unit) if unit else whole


def _scaled(number: float, unit: str) -> int:
    return round(number * _SCALE_NS[unit.removeprefix("milli")[:1] or "m"])


def _is_better(field: str, told: Any, found: Mapping[str, tuple[Any, str]]) -> bool:
    """Whether a second column says of a field what the first one does not: `type` is `span`, `span_kind` is `llm`."""
    words = {word for _, known in _KINDS for word in known}
    return (
        field == "kind"
        and str(told).lower() in words
        and str(found["kind"][0]).lower() not in words
    )


def _first(found: tuple[Any, str] | None, start: int, whole: int) -> int | None:
    """When the first token came after the start: a time, or a duration whose unit is said or the only one that fits."""
    if found is None:
        return None
    number = _number(found[0])
    if number is None:
        at = otlp.moment_ns(found[0]) - start if isinstance(found[0], str) else -1
        return at if 0 <= at <= whole else None
    if found[1]:
        after = _scaled(number, found[1])
        return after if after <= whole else None
    fits = [round(number * scale) for scale in (10**9, 10**6) if number * scale <= whole]
    return fits[0] if number > 0.0 and fits else None


def _kind(told: Mapping[str, Any]) -> str:
    said = str(told.get("kind") or "").lower()
    for kind, words in _KINDS:
        if said in words:
            return kind
    return "LLM" if "model" in told and ("output" in told or "input" in told) else "CHAIN"


def _count(told: Any) -> int | None:
    number = _number(told)
    return round(number) if number is not None and number >= 0.0 else None


def _span(number: int, told: Mapping[str, Any]) -> Found:
    own = str(told.get("id") or number)
    trace = str(told.get("trace") or f"row {own}")
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
    code = _number(status)
    if code is not None and code >= 400:
        return True
    if isinstance(status, str) and code is None and _FAILED.search(status):
        return True
    return error is True or (
        isinstance(error, str) and error.lower() not in ("", "false", "none", "null", "0")
    )
