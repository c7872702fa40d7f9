"""Which log records are calls? Some senders (Claude Code, Gemini CLI, Codex) report each request to a model and each tool as an event with its duration, in
logs alone. Records in, spans out, read by the words of their attributes as rows are (`exports/rows.py`).

A record is a call if it says how long it took, and of which model with which tokens or which failure, or which tool it was. It was written when the call was
over. Where one record says how long the answer took to begin and a later one of its session counts the tokens (Codex), both are one call. A record inside of a
span is left out: its sender reports the span itself. Source: code.claude.com/docs (monitoring usage: events), google-gemini/gemini-cli docs/cli/telemetry.md,
openai/codex codex-rs/otel.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from overrun.collector.decode import otlp_json
from overrun.collector.errors import BadPayload
from overrun.collector.sources import deployments
from overrun.collector.sources.exports import otlp, rows
from overrun.collector.sources.exports.row_columns import Told, fields

_LONGEST = (
    1_000  # characters of an attribute that are looked at: ids, names and numbers are shorter
)
_MOST_ATTRIBUTES = 200  # of a record
_MOST_PROMPTS = 10_000  # whose begins are kept: two million bytes
_TIMES, _OF_WHAT = ("duration", "latency", "elapsed", "token"), ("model", "tool", "function")
_Event = tuple[int, str, str, str, dict[str, Told]]  # time, service, scope, name, what it says


class _Begun:
    """When the last prompts began: their events come in several bodies, and of copies of a span the one that ends last counts. After a restart a prompt that
    goes on begins with its next event."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._begun: dict[str, int] = {}
        self._lock = threading.Lock()

    def note(self, prompt: str, begin: int) -> int:
        """The earliest begin that was noted of a prompt (ns since 1970)."""
        with self._lock:
            earliest = min(begin, self._begun.pop(prompt, begin))
            self._begun[prompt] = earliest
            if len(self._begun) > self._most:
                del self._begun[next(iter(self._begun))]
            return earliest


_BEGUN = _Begun(_MOST_PROMPTS)


def calls(body: bytes) -> tuple[int, bytes]:
    """How many calls and deployments the records of a logs request are, and a request with their spans and those of their prompts (empty for none).

    Raises:
        BadPayload: the body is no logs request.
    """
    try:
        request = ExportLogsServiceRequest.FromString(body)
    except DecodeError as error:
        raise BadPayload(f"the body is no OTLP logs export request: {error}") from error
    spans = list(_spans(sorted(_events(request), key=lambda event: event[0])))
    spans += deployments.spans(request)
    if not spans:
        return 0, b""
    (document,) = otlp.request(spans)
    used = sum(span["name"] != rows.PROMPT for _, _, span in spans)
    return used, otlp_json.from_document("traces", document)


def _events(request: ExportLogsServiceRequest) -> Iterator[_Event]:
    """The records outside of spans that name a model or a tool."""
    for resource in request.resource_logs:
        service = next(
            (
                one.value.string_value
                for one in resource.resource.attributes
                if one.key == "service.name"
            ),
            "",
        )
        for scope in resource.scope_logs:
            for record in scope.log_records:
                if not record.trace_id and _may_be_call(record):
                    at = record.time_unix_nano or record.observed_time_unix_nano
                    name, told = _named(record), fields(_values(record))
                    if 0 < at < 2**63 and told.keys() & {"model", "name"}:
                        yield at, service, scope.scope.name, name, told


def _may_be_call(record: LogRecord) -> bool:
    """Whether the names of a record's attributes are worth a closer look, which ordinary logs need not have."""
    if len(record.attributes) > _MOST_ATTRIBUTES:
        return False
    names = " ".join(one.key[:_LONGEST] for one in record.attributes).lower()
    return any(word in names for word in _TIMES) and any(word in names for word in _OF_WHAT)


def _named(record: LogRecord) -> str:
    """The name of a record's event."""
    told = next((one.value for one in record.attributes if one.key == "event.name"), record.body)
    return (record.event_name or told.string_value)[:_LONGEST]


def _values(record: LogRecord) -> dict[str, Any]:
    """A record's attributes as a row, and what its event's name says it is of."""
    values = {one.key: _value(one) for one in record.attributes if one.key != "event.name"}
    return values | ({"type": "tool"} if "tool" in _named(record) else {})


def _value(attribute: KeyValue) -> Any:
    value: AnyValue = attribute.value
    which = value.WhichOneof("value")
    if which == "string_value":
        return value.string_value[:_LONGEST]
    return getattr(value, which) if which in ("int_value", "double_value", "bool_value") else None


def _spans(events: list[_Event]) -> Iterator[rows.Found]:
    """A span per call; one that has begun waits for what counts its tokens."""
    begun: dict[tuple[str, str], _Event] = {}
    seen: dict[str, tuple[rows.Found, int, Any]] = {}
    for at, service, scope, name, told in events:
        session = (service, str(told["session"].value) if "session" in told else "")
        counts = bool(told.keys() & {"input", "output"})
        earlier = begun.pop(session, None) if counts and "took" not in told else None
        if earlier is not None:
            took = Told(at - _begin(earlier), "ns", "took")
            whole = earlier[4] | told | {"took": took}
        elif not counts and _has_begun(told):
            if session not in begun or begun[session][3] == name:  # else of a piece of the answer
                begun[session] = (at, service, scope, name, told)
            continue
        else:
            whole = told
        span = None
        with contextlib.suppress(ValueError, TypeError, OverflowError):  # a value is of no use
            span = rows.event(whole, at, service, scope)
        if span is None:
            continue
        yield span
        if prompt := rows.prompt_of(whole, service):
            session_id = whole["session"].value if "session" in whole else None
            seen[prompt] = (span, max(at, seen[prompt][1] if prompt in seen else 0), session_id)
            _BEGUN.note(prompt, span[2]["startTimeUnixNano"])
    for prompt, (span, end, session_id) in seen.items():
        yield rows.prompt_span(span, prompt, _BEGUN.note(prompt, end), end, session_id)


def _has_begun(told: dict[str, Told]) -> bool:
    """Whether a record is of a call of a model that did not fail; without tokens it says when the answer began."""
    return {"took", "model"} <= told.keys() and "kind" not in told and not rows.is_failed(told)


def _begin(event: _Event) -> int:
    took = rows.took_ns(event[4], "")
    return event[0] - (took or 0)
