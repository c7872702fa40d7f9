"""Spans with impossible times are set aside whole, counted and said to the sender; what is at the edge of possible stays."""

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import METRICS, TRACES
from overrun.collector.normalise.quarantine import MIN_TIME_NS
from overrun.sample_traces import replay
from tests.collector.conftest import T0_NS, Collector, body, chat, one, rows, span, trace_id
from tests.collector.normalise.test_points import gauge
from tests.collector.normalise.test_points import request as points

EARLY = "time before 2000: are these nanoseconds?"
YEAR_NS = 365 * 86_400 * 10**9


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        (0, 0, "no start time"),
        (0, T0_NS, "no start time"),
        (T0_NS, 0, "no end time"),
        (T0_NS + 1, T0_NS, "end before start"),
        (2**64 - 5, T0_NS, "time after 2200"),
        (T0_NS, 2**64 - 1, "time after 2200"),
        (2**63 - 5, 2**63 - 1, "time after 2200"),
        (T0_NS, T0_NS + 11 * YEAR_NS, "longer than ten years"),
        (T0_NS, T0_NS, None),
        (T0_NS, T0_NS + 9 * YEAR_NS, None),
        (1, 2, EARLY),
        (T0_NS // 10**6, T0_NS // 10**6 + 1, EARLY),  # milliseconds
        (MIN_TIME_NS - 1, MIN_TIME_NS, EARLY),
        (MIN_TIME_NS, MIN_TIME_NS, None),
    ],
)
def test_a_span_with_impossible_times_is_set_aside_with_its_reason(
    pipeline: Pipeline, start: int, end: int, reason: str | None
) -> None:
    odd = span(1, 7, 1, name="odd", attributes={"shop.kind": "garden", "gen_ai.request.model": "m"})
    odd.start_time_unix_nano, odd.end_time_unix_nano = start, end
    stored = pipeline.writer.submit(TRACES, body([odd, *chat(2)])).result(120)
    pipeline.drain()
    assert (stored.items, stored.rejected, "quarantined" in stored.reason) == (
        3,
        0,
        reason is not None,
    )
    aside = rows(
        pipeline,
        "select trace_id, span_id, parent_span_id, service, name, reason, sent_start_ns, sent_end_ns, model, attributes from v_quarantine",
    )
    ids = (trace_id(1).hex(), "0000000000000007", "0000000000000001")
    assert aside == (
        [(*ids, "shop", "odd", reason, start, end, "m", {"shop.kind": "garden"})] if reason else []
    )
    assert one(pipeline, "select count(*) from v_spans where name = 'odd'") == (0 if reason else 1)
    assert pipeline.writer.counters.quarantined_spans == (1 if reason else 0)


def test_the_sender_is_warned_and_nothing_counts_as_rejected(collector: Collector) -> None:
    backwards = span(3, 1)
    backwards.end_time_unix_nano = backwards.start_time_unix_nano - 1
    answer = collector.post("traces", body([backwards]))
    told = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert (answer.status_code, told.rejected_spans, "v_quarantine" in told.error_message) == (
        200,
        0,
        True,
    )


def test_a_broken_id_and_an_impossible_time_are_both_said(pipeline: Pipeline) -> None:
    late, nameless = span(4, 1), span(4, 2)
    late.end_time_unix_nano, nameless.span_id = 0, b"short"
    stored = pipeline.writer.submit(TRACES, body([late, nameless, span(4, 3)])).result(120)
    assert (stored.items, stored.rejected) == (2, 1)
    assert "wrong length" in stored.reason
    assert "quarantined" in stored.reason


def test_no_recording_has_a_span_that_is_set_aside(pipeline: Pipeline) -> None:
    for name in replay.manifest():
        for payload in replay.load(name).payloads:
            if payload.signal == "traces":
                pipeline.writer.submit(TRACES, payload.request.SerializeToString()).result(120)
    assert one(pipeline, "select count(*) from v_quarantine") == 0


def test_events_from_before_2000_are_left_out_and_said(pipeline: Pipeline) -> None:
    odd = span(5, 1)
    odd.events.add(name="fine", time_unix_nano=T0_NS)
    odd.events.add(name="without a time")
    odd.events.add(name="early", time_unix_nano=17)
    stored = pipeline.writer.submit(TRACES, body([odd])).result(120)
    assert (stored.items, stored.rejected, "before 2000" in stored.reason) == (1, 0, True)
    assert rows(pipeline, "select name from span_events order by time_ns") == [
        ("without a time",),
        ("fine",),
    ]


def test_points_of_impossible_times_are_rejected_with_the_reason(pipeline: Pipeline) -> None:
    sent = [gauge("vllm:num_requests_waiting", float(n)) for n in range(4)]
    for metric, time_ns in zip(sent, (T0_NS, 0, T0_NS // 10**6, 2**63), strict=True):
        metric.gauge.data_points[0].time_unix_nano = time_ns
    stored = pipeline.writer.submit(METRICS, points(*sent)).result(120)
    assert (stored.items, stored.rejected) == (1, 3)
    assert stored.reason.startswith("data points from before 2000 or after 2200")
    assert rows(pipeline, "select value from points") == [(0.0,)]
