"""The slow, obvious reading of sent spans: one span at a time, plain Python, from the same tables of words. What normalise/spans.py must come to."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from overrun.collector.decode.columns import any_value
from overrun.collector.dialects import Dialect, Field, Mark, load
from overrun.collector.normalise import privacy, wording
from overrun.collector.normalise.limits import Limits
from overrun.collector.normalise.quarantine import MAX_DURATION_NS
from overrun.collector.normalise.readers import MAX_TOKENS, SLACK_NS, finish_reason, provider
from overrun.collector.normalise.spans import (
    _IDENTITIES,
    _NAMES,
    INT_COLUMNS,
    MAX_NAME,
    TEXT_COLUMNS,
    Rules,
)

DIALECTS: tuple[Dialect, ...] = load()
_LAST_NS = 2**63 - 1


@dataclass(slots=True)
class Row:
    """One span as it should be stored (`aside`: in the quarantine, for its times cannot be).

    `said` is the set of (role, stage) that the strongest rules say (more than one if they tie).
    """

    body: int
    ok: bool
    columns: dict[str, Any]
    said: set[tuple[str, str]]
    dialects: set[str | None]
    attributes: dict[str, Any]
    events: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    links: list[tuple[bytes, bytes, dict[str, Any]]] = field(default_factory=list)
    source: dict[str, Any] = field(default_factory=dict)
    aside: bool = False


def rows(bodies: Sequence[bytes], rules: Rules) -> list[Row]:
    """Every span of these bodies, in the order sent."""
    out = []
    for body, data in enumerate(bodies):
        request = ExportTraceServiceRequest.FromString(data)
        for resource_spans in request.resource_spans:
            for scope_spans in resource_spans.scope_spans:
                source = _source(resource_spans, scope_spans, rules)
                for span in scope_spans.spans:
                    out.append(
                        _row(
                            body,
                            span,
                            scope_spans.scope.name,
                            source,
                            _named(resource_spans),
                            rules,
                        )
                    )
                    out[-1].aside = _impossible(span.start_time_unix_nano, span.end_time_unix_nano)
    return out


def _impossible(start: int, end: int) -> bool:
    year_2200 = int(datetime(2200, 1, 1, tzinfo=UTC).timestamp()) * 10**9
    return not (0 < start <= end < year_2200 and end - start <= MAX_DURATION_NS)


# --- values ---


def text_of(value: AnyValue) -> str:
    """A value as text; how many digits a double has is Arrow's business."""
    kind = value.WhichOneof("value")
    if kind is None:
        return ""
    content = getattr(value, kind)
    if kind == "string_value":
        return str(content)
    if kind == "bool_value":
        return "true" if content else "false"
    if kind == "int_value":
        return str(content)
    if kind == "double_value":
        return str(pa.scalar(content).cast(pa.string()).as_py())
    if kind == "bytes_value":
        return _bytes_text(content)
    return json.dumps(
        any_value(value), ensure_ascii=False, separators=(",", ":"), default=_bytes_text
    )


def _bytes_text(content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content.hex()
    return (
        content.hex()
        if any(unicodedata.category(c) == "Cc" and c not in "\t\n\r" for c in text)
        else text
    )


def _number(value: AnyValue) -> float | None:
    kind = value.WhichOneof("value")
    if kind in ("int_value", "double_value"):
        number = float(getattr(value, kind))
    elif kind == "string_value":
        try:
            number = float(value.string_value.strip().strip('"'))
        except ValueError:
            return None
    else:
        return None
    return number if math.isfinite(number) else None


def _count(value: AnyValue) -> int | None:
    number = _number(value)
    return int(number) if number is not None and 0 <= number <= MAX_TOKENS else None


def _duration(value: AnyValue, scale: float) -> int | None:
    number = _number(value)
    if number is None or not 0 <= number * scale <= MAX_DURATION_NS:
        return None
    return round(number * scale)


def _flag(value: AnyValue) -> bool | None:
    if value.WhichOneof("value") == "bool_value":
        return value.bool_value
    if value.WhichOneof("value") == "string_value":
        return {"true": True, "1": True, "false": False, "0": False}.get(
            value.string_value.strip().strip('"').lower()
        )
    return None


def _first(value: AnyValue) -> str | None:
    kind = value.WhichOneof("value")
    found: Any = None
    if kind == "array_value" and value.array_value.values:
        found = any_value(value.array_value.values[0])
    elif kind == "string_value":
        found = value.string_value
        if found.startswith("[") or (found.startswith("(") and found.endswith(")")):
            items = _document(found if found[0] == "[" else "[" + found[1:-1].rstrip(" ,") + "]")
            if items is None:
                return str(found)
            found = items[0] if items else None
        else:
            found = found.strip('"')
    return found if isinstance(found, str) and found else None


def _status(value: AnyValue) -> int | None:
    number = _count(value)
    return number if number is not None and 100 <= number < 1000 else None


def _words(value: AnyValue) -> str | None:
    return _unquoted(text_of(value)) or None


def _unquoted(text: str) -> str:
    if len(text) > 1 and text.startswith('"') and text.endswith('"'):
        try:
            inner = json.loads(text)
        except ValueError:
            return text
        return inner if isinstance(inner, str) and not re.search("[\ud800-\udfff]", inner) else text
    return text


def _spelled_duration(value: AnyValue) -> int | None:
    """1.5s, 12.3ms, 456.7\u00b5s or 80ns."""
    found = re.fullmatch(
        "([0-9.]+)(s|ms|us|\u00b5s|\u03bcs|ns)", value.string_value.strip().strip('"')
    )
    if found is None or not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?", found[1]):
        return None
    return _duration(
        AnyValue(string_value=found[1]), {"s": 1e9, "ms": 1e6, "ns": 1.0}.get(found[2], 1e3)
    )


def _moment(value: AnyValue) -> int | None:
    """An ISO time as Unix nanoseconds."""
    text = value.string_value.strip().strip('"')
    parts = re.fullmatch(
        r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?)(?:[.,](\d+))?(Z|[+-]\d\d:?\d\d)?", text
    )
    if parts is None or (parts[2] and parts[1].count(":") == 1):
        return None
    try:
        whole = datetime.fromisoformat(parts[1] + (parts[3] or "Z")).timestamp()
    except ValueError:
        return None
    found = int(whole) * 10**9 + int(((parts[2] or "") + "0" * 9)[:9])
    return found if 0 <= found <= _LAST_NS else None


def _streams(value: AnyValue) -> bool | None:
    lower = value.string_value.lower()
    return (
        True
        if "stream" in lower
        else False
        if lower in ("converse", "invokemodel") or "generate" in lower
        else None
    )


def _document(text: str) -> Any:
    """JSON in a text, or a printed Python dict of names and numbers."""
    if not text.startswith(("{", "[")) or len(text) > 1 << 20:
        return None
    for said in (
        text,
        re.sub(
            r"\bNone\b", "null", re.sub(r"\bTrue\b", "true", re.sub(r"\bFalse\b", "false", text))
        ).replace("'", '"'),
    ):
        try:
            return json.loads(said)
        except (ValueError, RecursionError):
            continue
    return None


def _leaf(found: Any, path: tuple[str, ...]) -> AnyValue | None:
    """What stands at a path of a document."""
    for step in path:
        if isinstance(found, dict) and step in found:
            found = found[step]
        elif isinstance(found, list) and step.isdecimal() and int(step) < len(found):
            found = found[int(step)]
        elif isinstance(found, list) and found and step == "-1":
            found = found[-1]
        else:
            return None
    if isinstance(found, bool):
        return AnyValue(bool_value=found)
    if isinstance(found, int | float):
        return AnyValue(double_value=float(min(found, 2**900)))
    if isinstance(found, str) and not re.search("[\ud800-\udfff]", found):
        return AnyValue(string_value=found)
    return None


def _at_path(f: Field, value: AnyValue) -> Any:
    document = _document(text_of(value))
    leaf = _leaf(document, f.path)
    found = None if leaf is None else _READERS[f.reader](leaf)
    more = [_leaf(document, path) for path in f.plus]
    return (
        found
        if found is None
        else found + sum((m is not None and _count(m)) or 0 for m in more)
        if f.plus
        else found
    )


def _path(value: AnyValue) -> str | None:
    found = re.match(
        r"(?:[A-Za-z][\w+.-]*://[^/]*)?(/.*)?$", privacy.without_query(text_of(value)), re.DOTALL
    )
    path = found[1] if found else None
    return path if path and not re.fullmatch(r"/\*+", path) else None


_READERS = {
    "text": _words,
    "int": _count,
    "float": _number,
    "bool": _flag,
    "seconds": lambda v: _duration(v, 1e9),
    "millis": lambda v: _duration(v, 1e6),
    "first": _first,
    "status": _status,
    "path": _path,
    "duration": _spelled_duration,
    "moment": _moment,
    "streams": _streams,
    "ended": lambda v: (
        v.string_value
        if v.string_value in {"completed", "incomplete", "failed", "cancelled"}
        else None
    ),
    "chat_id": lambda v: (
        f"chatcmpl-{v.string_value}"
        if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", v.string_value)
        else None
    ),
    "given": lambda v: (
        v.string_value if v.string_value.lower() not in ("", "null", "none") else None
    ),
    "present": lambda v: True,
    "resends": lambda v: None if _count(v) is None else (_count(v) or 0) + 1,
}


@functools.cache
def fold(key: str) -> str:
    """One spelling for all."""
    return re.sub("[:_]", ".", key)


@functools.cache
def _asked() -> list[str]:
    """Every attribute key that a rule asks for, in the order of the tables."""
    keys = (
        [f.key for d in DIALECTS for f in d.fields]
        + [m.key for d in DIALECTS for m in d.marks]
        + [key for d in DIALECTS for key, _ in d.failures]
    )
    return [*keys, *_STATEMENTS, *_NETWORK_KEYS]


@functools.cache
def means(key: str) -> str:
    """The known key that this one is, or is another spelling of."""
    asked = _asked()
    return (
        key if key in asked else next((known for known in asked if fold(known) == fold(key)), key)
    )


@functools.cache
def _sources(column: str) -> list[Field]:
    """Where a column's value may come from, best first."""
    fields = [
        (f.rank, order, f)
        for order, d in enumerate(DIALECTS)
        for f in d.fields
        if f.column == column
    ]
    return [f for _, _, f in sorted(fields, key=lambda x: x[:2])]


def canonical(span: Span, start: int, scope: str) -> tuple[dict[str, Any], set[int]]:
    """Canonical column -> value (first present and readable by rank, then order of dialects), and which attributes were taken for one."""
    out: dict[str, Any] = {}
    taken: set[int] = set()
    present = {means(a.key) for a in span.attributes}
    for column in (*INT_COLUMNS, "total_tokens", "temperature", "streaming", *TEXT_COLUMNS):
        for f in _sources(column):
            if (
                f.key not in present
                or (f.beside and f.beside not in present)
                or (f.served and span.kind == Span.SPAN_KIND_CLIENT)
            ):
                continue
            spelled = sorted(
                (a.key != f.key, a.key, i)
                for i, a in enumerate(span.attributes)
                if means(a.key) == f.key
            )
            found = [
                (
                    i,
                    _at_path(f, span.attributes[i].value)
                    if f.path
                    else _READERS[f.reader](span.attributes[i].value),
                )
                for _, _, i in spelled
            ]
            if f.reader == "moment":
                lasted = min(
                    max(min(span.end_time_unix_nano, _LAST_NS) - start, 0), MAX_DURATION_NS
                )
                found = [
                    (
                        i,
                        max(t - start, 0)
                        if t is not None and -SLACK_NS <= t - start <= lasted + SLACK_NS
                        else None,
                    )
                    for i, t in found
                ]
            found = [(i, value) for i, value in found if value is not None]
            if found:
                out[column] = found[0][1]
                if (
                    not f.path
                    and f.reader not in ("present", "streams")
                    and column != "total_tokens"
                ):
                    taken.update(i for i, _ in found)
                break
    for column, word in (("finish_reason", finish_reason), ("provider", provider)):
        if column in out:
            out[column] = word(out[column])
    _add_apart(out, scope)
    return out, taken


def _add_apart(out: dict[str, Any], scope: str) -> None:
    """Input tokens hold the cached ones; a provider that lists them apart is seen from more cached tokens than there are tokens, from the total, or is known.
    So do output tokens what was thought, which the total has and its parts do not."""
    extra = out.get("cached_tokens", 0) + out.get("cache_write_tokens", 0)
    rest = (
        out.pop("total_tokens")
        - out.get("input_tokens", 1 << 60)
        - out.get("output_tokens", 1 << 60)
        if "total_tokens" in out
        else 0
    )
    known = any(scope == s or scope.startswith(s + ".") for d in DIALECTS for s in d.cached_apart)
    if "input_tokens" in out and extra and (known or rest == extra):
        out["input_tokens"] += extra
        return
    inside = (
        "openai",
        "azure",
        "az.ai",
        "deepseek",
        "gcp",
        "google",
        "vertex",
        "xai",
        "x_ai",
        "x-ai",
        "mistral",
        "groq",
        "vllm",
        "sglang",
    )
    if (
        "input_tokens" in out
        and extra > out["input_tokens"]
        and not out.get("provider", "").lower().startswith(inside)
    ):
        out["input_tokens"] += extra
        return
    beside = (
        out.get("provider", "")
        .lower()
        .startswith(("gcp", "google", "gemini", "vertex", "xai", "x_ai", "x-ai"))
    )
    if rest > 0 and (out["reasoning_tokens"] == rest if "reasoning_tokens" in out else beside):
        out["output_tokens"] += rest
        out["reasoning_tokens"] = rest


def event_values(span: Span, failed: bool) -> dict[str, Any]:
    """Canonical column -> what attributes of events say: the largest number, or the first text."""
    out: dict[str, Any] = {}
    for f in (f for d in DIALECTS for f in d.event_fields):
        told = [
            _READERS[f.reader](AnyValue(string_value=text_of(a.value)))
            for e in span.events
            for a in e.attributes
            if e.name == f.event and a.key == f.key and (failed or not f.failed)
        ]
        told = [value for value in told if value is not None]
        if told and f.column not in out:
            out[f.column] = told[0] if isinstance(told[0], str) else max(told)
    return out


# --- privacy: value by value; which keys carry text is test_privacy.py's matter ---


def stored_text(key: str, value: AnyValue, rules: Rules) -> str | None:
    """What of an attribute is kept: its text, None for nothing, or its length and hash. Numbers and booleans are nobody's words."""
    salt = rules.salt if rules.hash_users else None
    number = value.WhichOneof("value") in ("int_value", "double_value", "bool_value")
    return privacy.clean(
        key,
        text_of(value),
        store_text=rules.store_text or number,
        salt=salt,
        hash_key=rules.salt,
    )


def program_name(name: str, rules: Rules) -> str:
    """A name that a program chose; some senders put a whole message there."""
    return (name if rules.store_text else wording.name(name, rules.salt))[:MAX_NAME]


def identity(text: str, rules: Rules) -> str:
    """What tells one thing from another."""
    return text if rules.store_text else wording.identity(text, rules.salt)


def state_of(span: Span, rules: Rules) -> str:
    """A span's tracestate without members that have words in them or are private."""
    if rules.store_text:
        return span.trace_state
    return ",".join(
        member
        for member in span.trace_state.split(",")
        if len(member.split()) < 2 and not wording.is_private(member)
    )


def name_of(span: Span, rules: Rules) -> str:
    """A span's name; a path in it ends where its query begins, unless text is kept."""
    path = re.search(r"/[^\s?#]*", span.name)
    while not rules.store_text and path is not None:
        if span.name[path.end() : path.end() + 1] in ("?", "#"):
            return program_name(span.name[: path.end()], rules)
        path = re.compile(r"/[^\s?#]*").search(span.name, path.end())
    return program_name(span.name, rules)


def kept(attributes: Sequence[KeyValue], taken: set[int], rules: Rules) -> dict[str, Any]:
    """The attributes that stay in the map: each key once (its first), not taken by a column, private text left out, within the limits."""
    out: dict[str, Any] = {}
    seen = set()
    for i, attribute in enumerate(attributes):
        if attribute.key in seen:
            continue
        seen.add(attribute.key)
        if i in taken or len(attribute.key) > 256 or len(out) == Limits().attributes:
            continue
        text = stored_text(attribute.key, attribute.value, rules)
        if text is not None:
            out[program_name(attribute.key, rules)] = text
    return out


# --- role and stage: first hit wins ---

_WRITES = {
    "insert",
    "update",
    "upsert",
    "delete",
    "replace",
    "merge",
    "create",
    "drop",
    "alter",
    "commit",
    "set",
    "put",
    "add",
}
_STATEMENTS = (
    "db.operation.name",
    "db.operation",
    "db.statement",
    "db.query.text",
    "db.query.summary",
)
_STAGE_WORDS = {
    "guardrail": "guard guardrail guardrails moderate moderation safety pii jailbreak policy_check content_filter",
    "wait_user": "wait_user human_approval human_in_the_loop await_user wait_for_user",
    "retrieval": "retrieve retrieval retriever rerank reranker reranking vector vector_search search"
    " embed embedding embeddings fetch_docs similarity_search knn",
    "prompt": "prompt template tokenize tokenise render format_messages build_prompt",
    "queue": "queue queued wait waiting admission backoff retry_sleep retry.sleep semaphore throttle rate_limit rate.limit ratelimit rate_limiter rate.limiter"
    " ratelimiter rate_limiting rate.limiting ratelimiting",
    "post": "post postprocess postprocessing post_process post_processing parse parser citation citations persist serialization evaluate evaluation evaluator"
    " stream_to_client output format formatter formatting",
    "tool": "tool tools tool_call function_call",
}
_STAGES = (
    *_STAGE_WORDS,
    "network",
    "gateway",
    "kv_transfer",
    "prefill",
    "decode",
    "other",
    "first_token",
    "generation",
)
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "HTTP"}
_NETWORK_KEYS = {
    "http.request.method",
    "http.method",
    "url.full",
    "http.url",
    "rpc.system",
    "rpc.system.name",
}
_HTTP_KEYS = _NETWORK_KEYS - {"rpc.system", "rpc.system.name"} | {
    "http.path",
    "http.target",
    "http.route",
    "http.status_code",
    "http.response.status_code",
}
# The order in which rules are asked; within attributes, what names the operation before what hints at the protocol, a value before a presence.
OURS, FOLDED, ENGINE, PHASE, ATTRIBUTE, NAME, WORD, WEAK, NETWORK, CONTAINER = (
    0,
    10,
    20,
    30,
    40,
    60,
    62,
    65,
    80,
    85,
)
KIND_WORD, STRONG = 55, 5
_KIND_WORDS = {
    "generation": "llm generation chat_model llm_call model_call",
    "tool": "tool tool_call mcp_tool_call function_call",
    "prompt": "prompt prompt_template",
    "guardrail": "guardrail guardrails moderation",
    "retrieval": "retriever retrieval embedding embeddings reranker rerank reranking",
    "post": "evaluator evaluation parser",
    "other": "agent chain workflow task session step entry",
}
_MESSAGING = {"messaging.system", "messaging.destination.name", "messaging.destination"}
_ORDER = {"guardrail": 0, "tool": 2, "generation": 4, "retrieval": 6, "post": 8, "other": 10}


def _mark_rank(mark: Mark) -> int:
    if mark.strong:
        return STRONG
    if mark.client:
        return WORD - 1
    if mark.weak and mark.role == "llm":
        return 70
    if mark.weak:
        return WEAK
    of_stage = ATTRIBUTE + _ORDER.get(mark.stage, 6) + (not mark.values and not mark.pattern)
    return {"folded": FOLDED, "engine": ENGINE, "phase": PHASE, "write": ATTRIBUTE}.get(
        mark.role, of_stage
    )


def sayings(span: Span, scope: str) -> Iterator[tuple[int, str, str]]:
    """(rank, role, stage) of every rule that has something to say of this span; the lowest rank wins."""
    keys = {means(attribute.key) for attribute in span.attributes}
    for attribute in span.attributes:
        text, key = _unquoted(text_of(attribute.value)), means(attribute.key)
        if key == "overrun.stage" and text in _STAGES:
            yield OURS, "plain", text
        if key in _STATEMENTS:
            words = re.sub(r"/\*.*?\*/|--[^\n]*\n", " ", text, flags=re.DOTALL).split()
            if words and words[0].lower() in _WRITES:
                yield ATTRIBUTE, "write", "post"
        known = False
        for mark in _marks(key):
            if (mark.beside and mark.beside not in keys) or (
                mark.client and span.kind != Span.SPAN_KIND_CLIENT
            ):
                continue
            if (
                re.fullmatch(mark.pattern, text)
                if mark.pattern
                else not mark.values or text in mark.values or text.upper() in mark.values
            ):
                known = True
                yield _mark_rank(mark), mark.role, mark.stage
        if not known and re.fullmatch(
            r"(.*[._:])?(span|observation|run|step)[._]?(kind|type)", key, re.IGNORECASE
        ):
            word = text.lower().replace("-", "_")
            for stage in (stage for stage, words_ in _KIND_WORDS.items() if word in words_.split()):
                yield (
                    (WEAK, "container", stage)
                    if stage == "other"
                    else (KIND_WORD, "llm" if stage == "generation" else "plain", stage)
                )
    by_name = _name_says(span.name, scope)
    of_messages = span.kind in (
        Span.SPAN_KIND_PRODUCER,
        Span.SPAN_KIND_CONSUMER,
    ) or not keys.isdisjoint(_MESSAGING)
    http = not keys.isdisjoint(_HTTP_KEYS) or {"uri", "outcome"} <= keys
    own_work = (
        http
        and by_name is not None
        and (span.kind == Span.SPAN_KIND_SERVER or by_name[2] in ("post", "prompt", "queue"))
    )
    if by_name and not ((of_messages or own_work) and by_name[0] == WORD):
        yield by_name
    of_call = (
        http
        and span.kind == 0
        and any(span.parent_span_id)
        and len(span.parent_span_id) == 8
        and "http.route" not in keys
    )
    if of_call or (
        span.kind == Span.SPAN_KIND_CLIENT
        and (http or any(means(a.key) in _NETWORK_KEYS for a in span.attributes))
    ):
        yield NETWORK, "plain", "network"
    if span.kind in (Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CONSUMER):
        yield CONTAINER, "container", "other"


@functools.cache
def _marks(key: str) -> list[Mark]:
    return [m for d in DIALECTS for m in d.marks if m.key == key]


@functools.cache
def _name_says(name: str, scope: str) -> tuple[int, str, str] | None:
    for rule in (r for d in DIALECTS for r in d.names):
        if (
            not rule.scope or scope == rule.scope or scope.startswith(f"{rule.scope}.")
        ) and re.fullmatch(rule.pattern, name):
            ranks = {"folded": FOLDED, "engine": ENGINE, "phase": PHASE, "write": ATTRIBUTE}
            return STRONG if rule.strong else ranks.get(rule.role, NAME), rule.role, rule.stage
    if name == "raw_gen_ai_request" or re.fullmatch(
        r"\S+ \S+ (http|websocket) (send|receive)", name
    ):
        return FOLDED, "folded", "other"
    if name in {"http.send", "http.headers", "http.receive"}:
        return FOLDED, "folded", "other"
    if name in {
        "http.getconn",
        "http.dns",
        "http.connect",
        "http.tls",
        "dns.lookup",
        "tcp.connect",
        "tls.connect",
        "RESOLVE",
        "CONNECT",
        "SSL handshake",
    }:
        return NAME, "phase", "network"
    if name.partition(" ")[0] in {"DNS", "socket", "TLS"} and re.fullmatch(
        r"(DNS lookup|socket connect|TLS client handshake)( \S+)?", name
    ):
        return NAME, "phase", "network"
    verb, _, rest = name.upper().removeprefix("HTTP ").partition(" ")
    verbal = verb in _METHODS - {"HTTP"} and (
        name.upper().startswith("HTTP ") or re.match(r"/|\S+://", rest)
    )
    if (
        not verbal
        and re.split(r"\s", name.removeprefix("fetch ").removeprefix("HTTP "))[0] not in _METHODS
    ):
        for stage, words in _STAGE_WORDS.items():
            parted = name if stage == "tool" else re.sub("([a-z0-9])([A-Z])", r"\1_\2", name)
            if any(
                re.search(rf"[^a-z0-9]{word}[^a-z0-9]", f" {parted.lower()} ")
                for word in words.split()
            ):
                return WORD, "plain", stage
    return None


def _strongest(span: Span, scope: str) -> set[tuple[str, str]]:
    found = list(sayings(span, scope))
    if not found:
        return {("plain", "other")}
    best = min(rank for rank, _, _ in found)
    return {(role, stage) for rank, role, stage in found if rank == best}


def _dialects(span: Span, scope: str) -> set[str | None]:
    """The vocabulary of the span: its scope's, else the most special one among its keys (several if they are equally special)."""
    for d in DIALECTS:
        if any(scope == s or scope.startswith(f"{s}.") for s in d.scopes):
            return {d.name}
    of_keys = [
        d for d in (_claims(means(attribute.key)) for attribute in span.attributes) if d is not None
    ]
    least = min((d.precedence for d in of_keys), default=None)
    return {d.name for d in of_keys if d.precedence == least} or {None}


@functools.cache
def _claims(key: str) -> Dialect | None:
    """The vocabulary with the longest prefix of the key."""
    claims = [
        (len(p), d.precedence, order, d)
        for order, d in enumerate(DIALECTS)
        for p in d.prefixes
        if key.startswith(p)
    ]
    return max(claims, key=lambda c: c[:3])[3] if claims else None


# --- a span, its events and its source ---


def _row(
    body: int, span: Span, scope: str, source: dict[str, Any], named: dict[str, str], rules: Rules
) -> Row:
    span = _with_counts(span)
    start, end = min(span.start_time_unix_nano, _LAST_NS), min(span.end_time_unix_nano, _LAST_NS)
    found, taken = canonical(span, start, scope)
    status = span.status.code if 0 <= span.status.code <= 2 else 0
    if (
        status == 2
        and any(means(a.key) in d.answers for d in DIALECTS for a in span.attributes)
        and all(e.name != "exception" for e in span.events)
    ):
        status = 0
    if any(
        means(a.key) == key and text_of(a.value) in values
        for d in DIALECTS
        for key, values in d.failures
        for a in span.attributes
    ):
        status = 2
    found = event_values(span, status == 2) | found
    said = _strongest(span, scope)
    columns: dict[str, Any] = {
        "trace_hi": _word(span.trace_id[:8], 8),
        "trace_lo": _word(span.trace_id[8:], 8),
        "span_id": _word(span.span_id, 8),
        "parent_id": _word(span.parent_span_id, 8),
        "start_ns": start,
        "duration_ns": min(max(end - start, 0), MAX_DURATION_NS),
        "name": name_of(span, rules),
        "kind": span.kind if 0 <= span.kind <= 5 else 0,
        "status": status,
        "flags": span.flags,
        "trace_state": state_of(span, rules)[:512] or None,
    }
    for column in (*INT_COLUMNS, "temperature", "streaming"):
        columns[column] = found.get(column)
    for column in TEXT_COLUMNS:
        text = found.get(column)
        if column == "response_id" and text is not None:
            text = re.sub(
                r"^(cmpl-.+)-\d{1,3}$", r"\1", re.sub(r"^\d{1,3}_((?:chat)?cmpl-.+)$", r"\1", text)
            )
        if column == "model" and text is not None:
            text = re.sub(r"^(?:pro.+/publishers/[^/]+/)?models/(.+)$", r"\1", text)
        if column == "tenant" and text is None:
            begins = columns["parent_id"] == 0 and all(role != "engine" for role, _ in said)
            text = named.get("tenant.id", named.get("service.namespace") if begins else None)
        if column == "user_hash" and text is not None and rules.hash_users:
            text = hashlib.blake2b(text.encode(), digest_size=8, key=rules.salt).hexdigest()
        columns[column] = text if text is None else text[:MAX_NAME]
        if columns[column] is not None and column in (*_IDENTITIES, *_NAMES):
            kept_as = identity if column in _IDENTITIES else program_name
            columns[column] = kept_as(columns[column], rules)
    ttft = found.get("ttft_ns")
    if (
        ttft is not None
        and ttft > 20 * columns["duration_ns"]
        and ttft // 1000 <= columns["duration_ns"]
        and ttft % 10**9 == 0
    ):
        ttft //= 1000
    if found.get("streaming") is False and all(role == "llm" for role, _ in said):
        ttft = None
    attempts = {n for d in DIALECTS for n in d.attempt_events}
    begun = [
        t - start
        for t in (event_ns(e.time_unix_nano, span) for e in span.events if e.name in attempts)
        if t > start
    ]
    if ttft is not None and begun and ttft + max(begun) <= columns["duration_ns"] + SLACK_NS:
        ttft += max(begun)
    columns |= _stream(span, start, ttft, engine=any(role == "engine" for role, _ in said))
    chunk_names = {e.name for e in span.events if is_chunk(e.name)}
    ok = (
        len(span.trace_id) == 16
        and len(span.span_id) == 8
        and any(span.trace_id)
        and any(span.span_id)
    )
    return Row(
        body,
        ok,
        columns,
        said,
        _dialects(span, scope),
        kept(span.attributes, taken, rules),
        [
            (
                event_ns(e.time_unix_nano, span),
                program_name(e.name, rules),
                kept(e.attributes, set(), rules),
            )
            for e in span.events
            if e.name not in chunk_names
        ],
        [
            (x.trace_id, x.span_id, kept(x.attributes, set(), rules))
            for x in span.links
            if len(x.trace_id) == 16 and len(x.span_id) == 8
        ],
        source,
    )


def _with_counts(span: Span) -> Span:
    """The span with what its sender's limits took as attributes, behind its own."""
    out = Span()
    out.CopyFrom(span)
    for part in ("attributes", "events", "links"):
        if number := getattr(span, f"dropped_{part}_count"):
            out.attributes.add(key=f"otel.dropped_{part}_count").value.int_value = number
    for item in (*out.events, *out.links):
        if item.dropped_attributes_count:
            item.attributes.add(
                key="otel.dropped_attributes_count"
            ).value.int_value = item.dropped_attributes_count
    return out


def _word(raw: bytes, width: int) -> int:
    return int.from_bytes(raw, "big") if len(raw) == width else 0


@functools.cache
def is_chunk(name: str) -> bool:
    """Whether events of this name are chunks."""
    return any(
        name == n or (n.endswith("*") and name.startswith(n[:-1]))
        for d in DIALECTS
        for n in d.chunk_events
    )


def _stream(span: Span, start: int, ttft: int | None, *, engine: bool) -> dict[str, Any]:
    """TTFT and its source (0 none, 1 attribute, 2 event, 3 engine, 4 dropped), the gaps between chunk events, and the usable answer.

    Where events were dropped, only a name that says so is a first one, and chunks go on at the pace of those that are left.
    """
    counts = [
        count
        for a in span.attributes
        if a.key == "otel.dropped_events_count" and (count := _count(a.value)) is not None
    ]
    lost = counts[0] if counts else 0
    first_names = {n for d in DIALECTS for n in d.first_token_events}
    chunk_names = {e.name for e in span.events if is_chunk(e.name)}
    times = [(event_ns(e.time_unix_nano, span), e.name) for e in span.events]
    source = 0 if ttft is None else 3 if engine else 1
    # A time that had to be cut is no time to measure from.
    told = {
        name
        for _, name in times
        if not lost or "first" in name.lower() or re.fullmatch(r"(.*[._])?0", name)
    }
    firsts = [
        t
        for t, name in times
        if name in (first_names | chunk_names) & told and start - SLACK_NS <= t < _LAST_NS
    ]
    if ttft is None and firsts:
        ttft, source = _after(start, min(firsts)), 2
    chunks = sorted(t for t, name in times if name in chunk_names)
    whole, lasted = (chunks[-1] - chunks[0] if chunks else None), len(chunks)
    if lost and whole is not None:
        source = source or 4
        if lasted > 1:
            duration = min(max(min(span.end_time_unix_nano, _LAST_NS) - start, 0), MAX_DURATION_NS)
            whole, lasted = (
                min(round(whole * (lasted + lost - 1.0) / (lasted - 1.0)), duration),
                lasted + lost,
            )
    usable = [
        t
        for t, name in times
        if name == "overrun.usable_answer" and start - SLACK_NS <= t < _LAST_NS
    ]
    return {
        "ttft_ns": ttft,
        "ttft_source": source,
        "chunks": lasted or None,
        "chunk_span_ns": whole,
        "chunk_gap_max_ns": max((b - a for a, b in itertools.pairwise(chunks)), default=0)
        if chunks
        else None,
        "usable_ns": _after(start, min(usable)) if usable else None,
    }


def event_ns(told: int, span: Span) -> int:
    """When an event was; one whose number is in its span as so many µs or ms was told in those."""
    start, end = min(span.start_time_unix_nano, _LAST_NS), min(span.end_time_unix_nano, _LAST_NS)
    if start > 10**17 and told < start // 2:
        for scale in (10**3, 10**6):
            if start // scale <= told <= end // scale:
                return max(told * scale, start)
    return min(told, _LAST_NS)


def _after(start: int, moment: int) -> int:
    return min(max(moment - start, 0), MAX_DURATION_NS)


def _named(resource_spans: Any) -> dict[str, str]:
    """Attributes of a resource that are one word or number; the last of a repeated key counts."""
    named: dict[str, str] = {}
    for a in resource_spans.resource.attributes:
        value = any_value(a.value)
        if isinstance(value, str | int | float) and value != "":
            named[a.key] = str(value)[:MAX_NAME]
        else:
            named.pop(a.key, None)
    return named


def _source(resource_spans: Any, scope_spans: Any, rules: Rules) -> dict[str, Any]:
    """What the row of a source says in columns of its own."""
    named = _named(resource_spans)
    hosts = [
        named[key]
        for key in ("service.instance.id", "k8s.pod.name", "host.name", "container.id", "host.id")
        if key in named
    ]
    texts = {
        "service": named.get("service.name", "unknown_service"),
        "version": named.get("service.version"),
        "scope_name": scope_spans.scope.name[:MAX_NAME],
        "scope_version": scope_spans.scope.version[:MAX_NAME],
        "resource_schema_url": resource_spans.schema_url,
        "scope_schema_url": scope_spans.schema_url,
    }
    kept_texts = {key: text and program_name(text, rules) for key, text in texts.items()}
    return kept_texts | {"instance": identity(hosts[0], rules) if hosts else None}
