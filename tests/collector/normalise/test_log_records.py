"""Log records are not stored, but the finish reason that one tells of an answer reaches the call, whichever comes first, and nothing else of it does."""

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from overrun.collector.errors import BadPayload
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import LOGS, TRACES
from overrun.collector.normalise import log_records
from overrun.collector.normalise.log_records import Note
from tests.collector.conftest import (
    T0_NS,
    Collector,
    attributes,
    body,
    chat,
    one,
    opened,
    rows,
    trace_id,
)

CALL = (2).to_bytes(8, "big")  # of `chat`


def said(
    trace: int = 1,
    *,
    event: str = "gen_ai.choice",
    reason: Any = "length",
    span: bytes = CALL,
    at_ns: int = T0_NS,
) -> bytes:
    """A logs request with one answer's event; a `reason` that is a list goes into the attributes, another into the body."""
    request = ExportLogsServiceRequest()
    record = (
        request.resource_logs.add()
        .scope_logs.add()
        .log_records.add(
            event_name=event, trace_id=trace_id(trace), span_id=span, time_unix_nano=at_ns
        )
    )
    if isinstance(reason, list):
        texts = ArrayValue(values=[AnyValue(string_value=r) for r in reason])
        record.attributes.append(
            KeyValue(key="gen_ai.response.finish_reasons", value=AnyValue(array_value=texts))
        )
    else:
        answer = {"finish_reason": reason, "message": "the words of the answer", "index": 0}
        record.body.kvlist_value.CopyFrom(KeyValueList(values=attributes(answer)))
    return bytes(request.SerializeToString())


def take(pipeline: Pipeline, logs: bytes) -> None:
    pipeline.writer.submit(LOGS, log_records.pack(log_records.told(logs)[1])).result(120)


REASON = "select finish_reason from v_llm_calls"


@pytest.mark.parametrize("first", ["spans", "logs"])
@pytest.mark.parametrize("drain", [True, False], ids=["assembled between", "together"])
def test_the_reason_reaches_the_call_and_its_request_whichever_comes_first(
    pipeline: Pipeline, first: str, drain: bool
) -> None:
    sends = [
        lambda: pipeline.writer.submit(TRACES, body(chat(1))).result(120),
        lambda: take(pipeline, said()),
    ]
    for send in sends if first == "spans" else reversed(sends):
        send()
        if drain:
            pipeline.drain()
    pipeline.drain()
    assert rows(pipeline, "select trace_id, finish_reason from v_llm_calls") == [
        (trace_id(1).hex(), "length")
    ]
    assert rows(pipeline, "select llm_calls, truncated from v_requests") == [(1, True)]


def test_what_the_span_says_itself_stands(pipeline: Pipeline) -> None:
    spans = chat(1)
    spans[1].attributes.extend(attributes({"gen_ai.response.finish_reasons": ["stop"]}))
    pipeline.writer.submit(TRACES, body(spans)).result(120)
    take(pipeline, said())
    pipeline.drain()
    assert one(pipeline, REASON) == "stop"


def test_the_reason_is_read_from_the_messages_of_an_event_that_says_it_there_alone() -> None:
    # Of a stream, opentelemetry-instrumentation-openai-v2 2.4b0 under the experimental conventions.
    request = ExportLogsServiceRequest()
    record = (
        request.resource_logs.add()
        .scope_logs.add()
        .log_records.add(
            event_name="gen_ai.client.inference.operation.details",
            trace_id=trace_id(1),
            span_id=CALL,
            time_unix_nano=T0_NS,
        )
    )
    message = KeyValueList(values=attributes({"role": "assistant", "finish_reason": "max_tokens"}))
    messages = ArrayValue(
        values=[
            AnyValue(kvlist_value=KeyValueList(values=attributes({"role": "tool"}))),
            AnyValue(kvlist_value=message),
        ]
    )
    record.attributes.append(
        KeyValue(key="gen_ai.output.messages", value=AnyValue(array_value=messages))
    )
    [note] = log_records.told(request.SerializeToString())[1]
    assert (note.span_id, note.time_ns, note.finish_reason) == (2, T0_NS, "length")


def test_of_several_answers_the_first_counts(pipeline: Pipeline) -> None:
    pipeline.writer.submit(TRACES, body(chat(1))).result(120)
    take(pipeline, said(reason="content_filter", at_ns=T0_NS + 5))
    take(pipeline, said(reason="max_tokens"))
    pipeline.drain()
    assert one(pipeline, REASON) == "length"


def test_a_reason_that_was_acknowledged_survives_an_end_before_its_assembly(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with opened(path) as pipeline:
        pipeline.writer.submit(TRACES, body(chat(1))).result(120)
        pipeline.drain()
        take(pipeline, said())
        pipeline.quiet.take(
            float("inf"), 0.0, 10
        )  # as if the process had ended here: nobody assembles them
        pipeline.quiet.done(dict(pipeline.quiet._running))
    with opened(path) as pipeline:
        pipeline.drain()
        assert one(pipeline, REASON) == "length"


def note(reason: str) -> Note:
    return Note(*(int.from_bytes(trace_id(1)[i : i + 8]) for i in (0, 8)), 2, T0_NS, reason)


@pytest.mark.parametrize(
    ("logs", "notes"),
    [
        (said(), [note("length")]),
        (said(reason="end_turn"), [note("stop")]),
        (
            said(event="gen_ai.client.inference.operation.details", reason=["tool_use", "stop"]),
            [note("tool_calls")],
        ),
        (said(event="gen_ai.user.message"), []),
        (said(event=""), []),
        (said(span=b""), []),
        (said(reason=""), []),
        (said(reason=7), []),
        (said(reason="x" * 65), []),
        (ExportLogsServiceRequest().SerializeToString(), []),
    ],
)
def test_what_a_record_tells(logs: bytes, notes: list[Note]) -> None:
    assert log_records.told(logs)[1] == notes
    assert log_records.unpack(log_records.pack(notes)) == notes


def test_a_body_that_is_no_logs_request_is_refused() -> None:
    with pytest.raises(BadPayload, match="not an OTLP logs export request"):
        log_records.told(b"\xff\xff\xff")


def test_over_the_network_the_note_is_taken_and_the_words_are_not(collector: Collector) -> None:
    collector.post("traces", body(chat(1)))
    answer = collector.post("logs", said())
    again = collector.post("logs", said())
    assert (answer.status_code, answer.content, again.content) == (200, b"", b"")
    collector.pipeline.drain()
    assert collector.rows(REASON) == [("length",)]
    assert collector.rows("select count(*) from span_notes") == [(1,)]
    collector.writer.call(lambda c: c.execute("checkpoint")).result(120)
    assert b"words of the answer" not in collector.path.read_bytes()
