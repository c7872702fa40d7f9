"""Events of coding agents are calls: each request to a model and each tool that a log record reports with its duration becomes a span, and no other record."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from overrun.collector.errors import BadPayload
from overrun.collector.sources import log_events

AT = 1_790_000_000 * 10**9
CLAUDE = {
    "event.name": "api_request",
    "session.id": "s-1",
    "prompt.id": "p-1",
    "model": "claude-opus",
    "duration_ms": "5000",
    "input_tokens": "12",
    "output_tokens": "200",
    "cache_read_tokens": "20000",
    "cache_creation_tokens": "300",
}
TOOL = {"event.name": "tool_result", "tool_name": "Bash", "duration_ms": 900, "prompt.id": "p-1"}
CODEX = {"event.name": "codex.api_request", "conversation.id": "c-1", "model": "gpt"}
COMPLETED = {"event.name": "codex.sse_event", "conversation.id": "c-1", "model": "gpt"}


def attribute(key: str, value: Any) -> KeyValue:
    if isinstance(value, bool):
        return KeyValue(key=key, value=AnyValue(bool_value=value))
    if isinstance(value, int):
        return KeyValue(key=key, value=AnyValue(int_value=value))
    return KeyValue(key=key, value=AnyValue(string_value=str(value)))


def logs(*records: tuple[float, dict[str, Any]], trace_id: bytes = b"") -> bytes:
    """A logs request of records, each so many seconds after AT."""
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    for after, told in records:
        record = scope.log_records.add(time_unix_nano=AT + round(after * 1e9), trace_id=trace_id)
        record.attributes.extend(attribute(key, value) for key, value in told.items())
    return request.SerializeToString()


def spans(body: bytes) -> list[Span]:
    return [
        span
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def told(span: Span) -> dict[str, Any]:
    return {
        one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in span.attributes
    }


def test_a_request_to_a_model_is_a_call_that_ended_when_it_was_written() -> None:
    used, body = log_events.calls(logs((10, CLAUDE), (11, TOOL)))
    call, tool, prompt = spans(body)
    assert used == 2
    assert (call.start_time_unix_nano, call.end_time_unix_nano) == (AT + 5 * 10**9, AT + 10**10)
    values = told(call)
    assert values["gen_ai.usage.input_tokens"] == 12
    assert values["gen_ai.usage.cache_read.input_tokens"] == 20_000
    assert values["gen_ai.usage.cache_creation.input_tokens"] == 300
    assert told(tool)["openinference.span.kind"] == "TOOL"
    assert (tool.name, call.parent_span_id, tool.parent_span_id) == (
        "Bash",
        prompt.span_id,
        prompt.span_id,
    )
    assert (prompt.start_time_unix_nano, prompt.end_time_unix_nano) == (
        call.start_time_unix_nano,
        tool.end_time_unix_nano,
    )


def test_a_prompt_of_several_bodies_begins_with_the_first_one() -> None:
    first = CLAUDE | {"prompt.id": "p-2"}
    *_, before = spans(log_events.calls(logs((10, first)))[1])
    *_, after = spans(log_events.calls(logs((30, first)))[1])
    assert before.span_id == after.span_id
    assert after.start_time_unix_nano == before.start_time_unix_nano == AT + 5 * 10**9
    assert after.end_time_unix_nano == AT + 30 * 10**9


def test_what_began_and_what_counts_its_tokens_are_one_call() -> None:
    begun = CODEX | {"duration_ms": "400", "http.response.status_code": "200"}
    done = COMPLETED | {"input_token_count": "9000", "output_token_count": "150", "ttft_ms": "900"}
    piece = COMPLETED | {"event.kind": "response.created", "duration_ms": "100"}
    used, body = log_events.calls(logs((1, begun), (2, piece), (7, done), (8, begun), (9, piece)))
    (call,) = spans(body)
    assert used == 1
    assert (call.start_time_unix_nano, call.end_time_unix_nano) == (AT + 6 * 10**8, AT + 7 * 10**9)
    assert told(call)["gen_ai.response.time_to_first_chunk"] == 0.9


@pytest.mark.parametrize(
    "failure",
    [{"http.response.status_code": "429"}, {"error": "Overloaded"}, {"success": False}],
)
def test_a_failed_request_is_a_call_without_tokens(failure: dict[str, Any]) -> None:
    (span,) = spans(log_events.calls(logs((1, CODEX | {"duration_ms": 400} | failure)))[1])
    assert span.status.code == 2


@pytest.mark.parametrize(
    "record",
    [
        {"event.name": "user_prompt", "prompt_length": 9, "prompt.id": "p-1"},
        {"event.name": "tool_decision", "tool_name": "Bash", "decision": "accept"},
        {"event.name": "gemini_cli.api_request", "model": "gemini"},
        {"message": "took 5 s", "duration_ms": 5_000},
        {"model": "m", "latency": 5, "output_tokens": 9},  # no unit
        {"model": "m", "duration_ms": -5, "output_tokens": 9},
    ],
)
def test_other_records_are_none(record: dict[str, Any]) -> None:
    assert log_events.calls(logs((1, record))) == (0, b"")


def test_a_record_inside_of_a_span_is_left_to_the_span() -> None:
    assert log_events.calls(logs((10, CLAUDE), trace_id=b"1" * 16)) == (0, b"")


_KEYS = st.sampled_from(
    [*CLAUDE, "ttft_ms", "status_code", "error", "tool_name", "duration", "start_time"]
)
_VALUES = st.integers(-(2**63), 2**63 - 1) | st.text(max_size=9) | st.booleans()


@given(
    records=st.lists(
        st.tuples(st.floats(-1e9, 1e9), st.dictionaries(_KEYS, _VALUES, max_size=8)), max_size=5
    )
)
def test_any_records_are_calls_or_none(records: list[tuple[float, dict[str, Any]]]) -> None:
    used, body = log_events.calls(logs(*((at, CLAUDE | told) for at, told in records)))
    assert used <= len(records)
    assert all(span.end_time_unix_nano >= span.start_time_unix_nano for span in spans(body))


@given(body=st.binary(max_size=200))
def test_any_bytes_are_a_request_or_refused(body: bytes) -> None:
    with contextlib.suppress(BadPayload):
        log_events.calls(body)
