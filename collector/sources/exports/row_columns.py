"""Which column of a row says what? Words of names in, fields out: a row's values by the field that each is, with the unit that its name or text gives.

Names are anybody's. What a name means follows from its words: letters and digits alone, its last part, or its last two.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from overrun.collector.normalise import known_keys, readers

# What begins a name and means nothing; of a document within a row the last words count.
_SAID_BY_ALL = re.compile(
    r"^(?:properties|attributes|metadata|context|trace|span|transaction|ai|llm|genai|x)+(?=.)"
)
_UNIT = r"(?:in)?(?P<unit>ms|millis|milliseconds|msec|s|sec|secs|seconds|us|micros|microseconds|ns|nanos|nanoseconds)?"
_LASTS = r"(?:time|duration|latency|delay)"
# Whose duration the whole's is called.
_WHOSE = "total|request|response|e2e|call|generation|provider|model|api|inference|execution|processing|completion"
# Field -> what its name is, letters and digits alone, in the order in which they are looked for.
_NAMES: dict[str, re.Pattern[str]] = {
    field: re.compile(pattern)
    for field, pattern in {
        "parent": r"parent(?:span|run|observation|call)?(?:id)?",
        "trace": r"(?:trace|roottrace|call|correlation|prompt)id|operationid|trace",
        "id": r"(?:(?:span|run|observation|request|generation)?id|uuid)",
        "session": r"(?:session|conversation|thread|group)id|session",
        "first": r"(?:ttft|timetofirst(?:token|chunk|byte)|firsttoken(?:latency|time|duration|delay|at)?|completionstarttime)"
        + _UNIT,
        "start": r"(?:start|started|begin|began|request)(?:time(?:stamp)?|at|edat|createdat|ts)?(?:utc|local)?|starttimestamp|start(?:time)?(?P<unit>ns|us|ms)",
        "end": r"(?:end|ended|finished|completed|response|stop)(?:time(?:stamp)?|at|edat|createdat|ts)?|endtimestamp",
        # What a part of the call took; before the whole, whose words are fewer.
        "queue": rf"(?:timein)?(?:queued?|queue?ing|queuewait|wait(?:ing)?){_LASTS}?{_UNIT}",
        "prefill": rf"(?:timein)?(?:model)?(?:prompt(?:eval(?:uation)?|processing)?|prefill){_LASTS}?{_UNIT}",
        "decode": rf"(?:timein)?(?:model)?(?:completion|decode|decoding|eval(?:uation)?|predicted){_LASTS}?{_UNIT}",
        "load": rf"(?:model)?load(?:ing)?{_LASTS}?{_UNIT}",
        # What the server behind a gateway took; Envoy's x-envoy-upstream-service-time ends at its first byte.
        "behind": rf"(?:upstream|backend|origin)(?:response|request)?{_LASTS}{_UNIT}",
        "took": rf"(?:(?:{_WHOSE})*(?:duration|latency|elapsed(?:time)?|took|delay|time(?:taken|spent))|(?:{_WHOSE})+time)"
        + _UNIT,
        "time": r"(?:timestamp|time|timegenerated|created(?:at)?|datetime|date|ts|timelocal|timeiso8601)(?:utc)?|(?:timestamp|createdat|ts)(?:ms|us|ns)",
        "asked": r"(?:http|request|original|full|cs)*(?:url|uri|path)(?:full|path|stem)?",
        "method": r"(?:http|request|cs)*method",
        "kind": r"(?:type|spankind|spantype|runtype|kind|openinferencespankind|observationtype)",
        "model": r"(?:request|response|provided|used)?model(?:name|id|(?:perma)?slug)?",
        "provider": r"(?:provider|system|vendor|modelprovider|providername)",
        "name": r"(?:name|spanname|operationname|runname|opname|toolname|functionname)",
        "service": r"(?:service|servicename|application|app|appname|projectname|project)",
        "tenant": r"(?:tenant|tenantid|team|teamid|customer|customerid)",
        "status": r"(?:http|response|result|downstream|sc)*(?:status(?:code)?|code)|outcome|resultsignature",
        "level": r"level|severity|loglevel|levelname",
        "message": r"msg|message|event",
        "success": r"(?:is)?(?:request)?(?:success|successful|succeeded|ok)",
        "error": r"(?:last)?err(?:or)?(?:type|message|reason)?|exception|failed|iserror",
    }.items()
}
PARTS = ("queue", "load", "prefill", "decode")
_DURATIONS = frozenset({*PARTS, "behind", "took"})
_MOMENTS = frozenset({"start", "end", "time"})
_DATED = re.compile(r"\s*(?:\d|[A-Z][a-z]{2,8},? \d)")
_DAY = re.compile(r"\d{1,4}[-/.]\d\d?[-/.]\d{1,4}")
# Of these the name has to say that it is a time.
_TIMED = re.compile(_LASTS)
# A count of tokens: a name with one of these words, and of the others the first that is in it.
_COUNTED = frozenset({"token", "tokens", "usage"})
COUNTS = (
    ("written", frozenset({"creation", "write", "written", "cache", "cached"})),
    ("cached", frozenset({"cached", "cache"})),
    ("reasoning", frozenset({"reasoning", "thoughts", "thinking"})),
    ("output", frozenset({"output", "completion", "generated", "out"})),
    ("input", frozenset({"input", "prompt", "in"})),
    ("total", frozenset({"total"})),
    # Of a chat, where nothing above says it.
    ("output", frozenset({"answer", "reply"})),
    ("input", frozenset({"question", "query", "message"})),
)
_COUNTING = {
    field: frozenset().union(*(meant for one, meant in COUNTS if one == field))
    for field, _ in COUNTS
}
_WRITTEN = frozenset({"creation", "write", "written"})  # into a cache
# No count of what was read or written, whatever else the name says.
_NO_COUNT = frozenset(
    {"max", "limit", "budget", "remaining", "cost", "price", "usd", "per", "rate", "second"}
    | {"seconds", "audio", "image", "images", "video"}
    | {"time", "duration", "latency", "ms", "queue"}
)
# How many tokens a part of the call was about, beside the time that it took: `eval_count`, `predicted_n`.
_OF_PARTS = (
    ("input", re.compile(r"prompt(?:eval)?(?:count|n)")),
    ("output", re.compile(r"(?:eval|predicted|decoded?)(?:count|n)")),
    ("cached", re.compile(r"cached?(?:count|n)")),
)
_OF_CALLS = ("gen_ai.", "llm.", "openinference.")
_ENVELOPES = re.compile(
    r"^(?:(?:span_?)?attributes|properties|tags|labels|fields|resource)\.(?:attributes\.)?"
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
KINDS = (
    (
        "LLM",
        (
            *("llm", "generation", "chat", "completion", "chat_model", "chatmodel"),
            *("response", "text_completion"),
        ),
    ),
    ("TOOL", ("tool", "function", "tool_call", "execute_tool")),
    ("RETRIEVER", ("retriever", "retrieval", "search", "vector_search")),
    ("EMBEDDING", ("embedding", "embeddings")),
    ("RERANKER", ("reranker", "rerank")),
    ("GUARDRAIL", ("guardrail", "guard", "moderation")),
    ("AGENT", ("agent",)),
)
_KIND_WORDS = frozenset(word for _, words in KINDS for word in words)
_THOUSANDS = re.compile(r"-?\d{1,3}(?:,\d{3}){1,6}(?:\.\d{1,9})?")
_LONGEST_TEXT = 1 << 16  # of a JSON object that stands in a row as text
_LONGEST_NAME = 400  # characters; a longer one is no column's
_DEEPEST = 3


@dataclass(frozen=True, slots=True)
class Told:
    """A value of a row, the unit that its column's name or its text ends with ("" for none), and that name."""

    value: Any
    unit: str
    name: str
    place: tuple[int, int] = (0, 0)  # how deep it stands, how loosely its name fits


def fields(row: Mapping[str, Any]) -> dict[str, Told]:
    """What a row's columns say: of two for one field that which stands less deep, then whose name fits better, then the first."""
    found: dict[str, Told] = {}
    counts: dict[frozenset[str], dict[str, Told]] = {}
    of_parts: dict[str, Told] = {}
    for depth, name, value in sorted(_flat(row), key=lambda one: one[0]):
        words = frozenset(word.lower() for word in _WORD.findall(name))
        if count := _counted(words, value):
            apart = words - _COUNTED - _COUNTING[count]
            counts.setdefault(apart, {}).setdefault(count, Told(value, "", name))
            continue
        last = plain(name.rpartition(".")[2])
        if part := next((field for field, known in _OF_PARTS if known.fullmatch(last)), ""):
            of_parts.setdefault(part, Told(value, "", name))
            continue
        field, unit, rank = _field(name)
        told = _told(field, value, unit, name, (depth, rank))
        if told is not None and (field not in found or _is_better(field, told, found[field])):
            found[field] = told
    # Names that share their other words belong together: of two such families the fuller one.
    for family in sorted(counts.values(), key=len):
        found |= family
    if found.keys() & {"prefill", "decode"}:
        _add_counts(found, of_parts)
    return found


def _add_counts(found: dict[str, Told], of_parts: Mapping[str, Told]) -> None:
    """Take the counts of parts where no column counts tokens: what a prompt's part read, and beside it what a cache gave."""
    read, cached = of_parts.get("input"), of_parts.get("cached")
    if read is not None and cached is not None and "input" not in found:
        both = (number(read.value) or 0.0) + (number(cached.value) or 0.0)
        found["input"] = Told(both, "", read.name)
    for field, told in of_parts.items():
        found.setdefault(field, told)


def known_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a row that a vocabulary knows, which pass through it as if their sender had sent them: what stands under `attributes`, `tags` and such,
    or in a namespace of model calls. Other names are anybody's words."""
    found = {}
    for _, name, value in _flat(row):
        key = _ENVELOPES.sub("", name)
        is_attribute = key != name or key.startswith(_OF_CALLS)
        if is_attribute and "." in key and known_keys.is_known(key):
            found[key] = value
    return found


def plain(name: str) -> str:
    """A name's letters and digits, without what stands behind it in brackets."""
    return re.sub(r"[^a-z0-9]", "", re.sub(r"\s*[\[(].*", "", name).lower())


def number(told: Any) -> float | None:
    """A number, also one in quotes or with commas between its thousands."""
    if isinstance(told, str) and _THOUSANDS.fullmatch(told):
        told = told.replace(",", "")
    try:
        return None if isinstance(told, bool) else float(told)
    except (TypeError, ValueError, OverflowError):
        return None


def is_id(told: Any) -> bool:
    """Whether a value can be an id: it has a digit that is not zero, as no word has."""
    return not isinstance(told, bool) and bool(re.search(r"[1-9]", str(told)[:200]))


def _flat(
    row: Mapping[str, Any], before: str = "", depth: int = 0
) -> Iterator[tuple[int, str, Any]]:
    """The values of a row, those of objects in it under names with dots, and how deep each stands. Access logs write a dash for none."""
    for key, told in row.items():
        name = f"{before}.{key}" if before else str(key)
        inner = _object(told) if depth < _DEEPEST and len(name) <= _LONGEST_NAME else None
        if inner is not None:
            yield from _flat(inner, name, depth + 1)
        elif told is not None and told not in ("", "-") and not isinstance(told, list | dict):
            yield depth, name[:_LONGEST_NAME], told


def _object(told: Any) -> dict[str, Any] | None:
    """An object, as such or as JSON text."""
    if isinstance(told, str) and told[:1] == "{" and len(told) <= _LONGEST_TEXT:
        with contextlib.suppress(ValueError, RecursionError):
            told = json.loads(told)
    return told if isinstance(told, dict) else None


def _counted(words: frozenset[str], told: Any) -> str:
    """Which tokens are counted in a column whose name has these words; "" for none."""
    if not words & _COUNTED or words & _NO_COUNT or number(told) is None:
        return ""
    if words & _WRITTEN:
        return "written" if words & {"cache", "cached", "creation"} else ""
    return next((field for field, meant in COUNTS[1:] if words & meant), "")


@functools.lru_cache(maxsize=4_096)
def _field(name: str) -> tuple[str, str, int]:
    """Which field a name is ("" for none), the unit that it ends with, and how loosely it fits: as a whole (0) to its last part alone."""
    parts = name.split(".")
    whole, pair, last = plain(name), plain("".join(parts[-2:])), plain(parts[-1])
    tried = (whole, _SAID_BY_ALL.sub("", whole), pair, last, _SAID_BY_ALL.sub("", last))
    for rank, spelled in enumerate(tried):
        for field, pattern in _NAMES.items():
            match = pattern.fullmatch(spelled)
            if match is None:
                continue
            unit = match.groupdict().get("unit") or ""
            if field not in PARTS or _is_timed(spelled, unit, name):
                return field, unit, rank
    return "", "", 0


def _is_timed(spelled: str, unit: str, name: str) -> bool:
    """Whether the name of a part says that it is a time: `prompt_s` is one, `prompts` is none."""
    stands = unit != "s" or name[-2:-1] in ("_", "-", " ", ".")
    return bool(_TIMED.search(spelled)) or (bool(unit) and stands)


def _told(field: str, value: Any, unit: str, name: str, place: tuple[int, int]) -> Told | None:
    """A column's value as its field has it; None where it cannot be of that field."""
    if not field or (field in ("trace", "parent") and not is_id(value)):
        return None
    if field in _MOMENTS and isinstance(value, str) and not _is_dated(value):
        return None
    if field in _DURATIONS:
        if number(value) is None:
            value, unit = readers.duration(value), "ns"
        if value is None:
            return None
    return Told(value, unit, name, place)


def _is_dated(text: str) -> bool:
    """Whether a text can be a moment; a date without a time of day dates no call."""
    return bool(_DATED.match(text)) and not _DAY.fullmatch(text)


def _is_better(field: str, told: Told, before: Told) -> bool:
    """Whether a second column says of a field what the first one does not: `type` is `span`, `span_kind` is `llm`; a whole is longer than its parts."""
    if field == "kind":
        better = str(told.value).lower() in _KIND_WORDS
        if better or str(before.value).lower() in _KIND_WORDS:
            return better and str(before.value).lower() not in _KIND_WORDS
    if field == "took" and told.place[0] == before.place[0] and told.unit == before.unit:
        return (number(told.value) or 0.0) > (number(before.value) or 0.0)
    return told.place < before.place
