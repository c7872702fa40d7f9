"""Stored spans become request rows: when they are quiet, again when a span comes late, after a restart, and once however an engine's spans arrive."""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from overrun.analysis.assembly.assemble import assemble
from overrun.collector.config import CollectorSettings, PrivacySettings
from overrun.collector.errors import QueueFull, StoreUnavailable
from overrun.collector.ingest import reading
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.reading import LAST_SEQ, quiet_spans
from overrun.collector.ingest.recent_rows import Recent
from overrun.collector.ingest.rounds import Assembled
from overrun.collector.ingest.writer import METRICS, TRACES
from overrun.collector.lifecycle.rollups import roll_up
from overrun.collector.store import database as store
from overrun.collector.store.database import BATCH_BITS
from overrun.sample_traces.replay import load
from tests.collector.conftest import T0_NS, body, chat, one, opened, rows, span, trace_id
from tests.conftest import new_store
from tests.waiting import LIMIT_S, until

REQUESTS = "select trace_id, round(e2e_ms, 6), llm_calls, tool_calls, spans from v_requests order by trace_id"


def send(pipeline: Pipeline, *bodies: bytes) -> None:
    for data in bodies:
        pipeline.writer.submit(TRACES, data).result(LIMIT_S)


def payloads(name: str) -> list[bytes]:
    return [p.request.SerializeToString() for p in load(name).payloads if p.signal == "traces"]


# --- when ---


def test_nothing_is_assembled_before_the_quiet_period_and_everything_by_a_drain(
    pipeline: Pipeline,
) -> None:
    send(pipeline, body(chat(1)), body(chat(2)))
    assert (one(pipeline, "select count(*) from requests"), len(pipeline.quiet)) == (0, 2)
    pipeline.drain()
    assert (one(pipeline, "select count(*) from v_requests"), len(pipeline.quiet)) == (2, 0)


def test_a_quiet_trace_is_assembled_by_itself(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db", quiet_s=0.05) as pipeline:
        send(pipeline, body(chat(1)))
        until(lambda: one(pipeline, "select count(*) from v_requests"))
        assert rows(pipeline, REQUESTS) == [(trace_id(1).hex(), 100.0, 1, 0, 2)]


def test_a_late_span_changes_the_row_and_adds_none(pipeline: Pipeline) -> None:
    send(pipeline, body(chat(1)))
    pipeline.drain()
    before = rows(pipeline, REQUESTS)
    tool = span(
        1,
        3,
        1,
        name="tool",
        start_ms=92,
        ms=5,
        attributes={"gen_ai.operation.name": "execute_tool"},
    )
    send(pipeline, body([tool]))
    pipeline.drain()
    after = rows(pipeline, REQUESTS)
    assert before == [(trace_id(1).hex(), 100.0, 1, 0, 2)]
    assert after == [(trace_id(1).hex(), 100.0, 1, 1, 3)]
    assert one(pipeline, "select count(*) from llm_calls") == 1
    assert one(pipeline, "select tool_ms from v_requests") == 5.0


def test_a_root_that_comes_last_makes_the_whole_request(pipeline: Pipeline) -> None:
    root, call = chat(1)
    send(pipeline, body([call]))
    pipeline.drain()
    assert rows(pipeline, REQUESTS) == [(trace_id(1).hex(), 80.0, 1, 0, 1)]
    send(pipeline, body([root]))
    pipeline.drain()
    assert rows(pipeline, REQUESTS) == [(trace_id(1).hex(), 100.0, 1, 0, 2)]


def test_spans_that_come_in_two_bodies_are_counted_once_in_the_row(pipeline: Pipeline) -> None:
    send(pipeline, body(chat(1)), body([*chat(1), span(2, 1)]))
    pipeline.drain()
    assert rows(pipeline, REQUESTS) == [(trace_id(1).hex(), 100.0, 1, 0, 2)]


def test_a_background_trace_is_kept_as_spans_and_is_no_request(pipeline: Pipeline) -> None:
    send(pipeline, body([span(1, 1, name="load model"), span(1, 2, 1)]))
    pipeline.drain()
    assert (
        one(pipeline, "select count(*) from v_requests"),
        one(pipeline, "select count(*) from v_spans"),
    ) == (0, 2)


def test_stage_times_sum_to_e2e_exactly_for_every_recording(pipeline: Pipeline) -> None:
    for name in (
        "semconv-genai-openai",
        "semconv-openai-v2",
        "vllm-joined",
        "sglang-spans",
        "openllmetry",
        "vercel-ai-sdk",
    ):
        send(pipeline, *payloads(name))
    pipeline.drain()
    stages = [
        c
        for (c,) in rows(
            pipeline,
            "select column_name from duckdb_columns() where table_name = 'requests' and column_name like '%\\_ns' escape '\\' and column_index > 40",
        )
    ]
    names = [
        c for c in stages if not c.startswith("ttft_") and c not in ("inferred_ns", "wait_user_ns")
    ]
    assert len(names) == 14
    assert one(pipeline, "select count(*) from requests") >= 50
    assert rows(pipeline, f"select * from requests where {' + '.join(names)} <> e2e_ns") == []


# --- an engine's trace joined by response id ---

JOINED = """select trace_id, round(e2e_ms, 6), round(ttft_ms, 6), ttft_source, round(queue_ms, 6), round(prefill_ms, 6), round(decode_ms, 6), llm_calls, spans
            from v_requests order by trace_id"""
CALLS = """select trace_id, span_id, engine_span_id, response_id, round(e2e_ms, 6), round(queue_ms, 6), input_tokens, output_tokens
           from v_llm_calls order by trace_id, span_id"""


def bodies_per_trace(name: str) -> list[bytes]:
    """The spans of a recording, one body per span, in a fixed odd order: engines before, between and after their clients."""
    singles = []
    for payload in load(name).payloads:
        for resource_spans in payload.request.resource_spans:
            for scope_spans in resource_spans.scope_spans:
                for s in scope_spans.spans:
                    made = type(payload.request)()
                    r = made.resource_spans.add()
                    r.resource.CopyFrom(resource_spans.resource)
                    one_scope = r.scope_spans.add()
                    one_scope.scope.CopyFrom(scope_spans.scope)
                    one_scope.spans.add().CopyFrom(s)
                    singles.append((s.span_id, made.SerializeToString()))
    return [data for _, data in sorted(singles)]


ARRIVALS: dict[str, Callable[[], Sequence[bytes | None]]] = {  # None is a drain
    "client then engine": lambda: payloads("vllm-joined"),
    "engine then client": lambda: payloads("vllm-joined")[::-1],
    "client, drain, engine": lambda: [payloads("vllm-joined")[0], None, payloads("vllm-joined")[1]],
    "engine, drain, client": lambda: [payloads("vllm-joined")[1], None, payloads("vllm-joined")[0]],
    "both, drain, both again in one body": lambda: [
        *payloads("vllm-joined"),
        None,
        b"".join(payloads("vllm-joined")),
    ],
    "one span at a time": lambda: bodies_per_trace("vllm-joined"),
    "one span at a time with a drain after every seventh": lambda: list(
        itertools.chain.from_iterable(
            [data, None] if i % 7 == 6 else [data]
            for i, data in enumerate(bodies_per_trace("vllm-joined"))
        )
    ),
    "one span at a time backwards with a drain after every fifth": lambda: list(
        itertools.chain.from_iterable(
            [data, None] if i % 5 == 4 else [data]
            for i, data in enumerate(bodies_per_trace("vllm-joined")[::-1])
        )
    ),
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    with opened(tmp_path_factory.mktemp("joined") / "t.db") as pipeline:
        with_both = payloads("vllm-joined")
        send(pipeline, b"".join(with_both))
        pipeline.drain()
        return rows(pipeline, JOINED), rows(pipeline, CALLS)


@pytest.mark.parametrize("arrival", ARRIVALS)
def test_client_and_engine_seen_together_are_twenty_requests_in_any_order_of_arrival(
    pipeline: Pipeline, expected: tuple[Any, Any], arrival: str
) -> None:
    for data in ARRIVALS[arrival]():
        if data is None:
            pipeline.drain()
        else:
            send(pipeline, data)
    pipeline.drain()
    found, calls = rows(pipeline, JOINED), rows(pipeline, CALLS)
    assert (len(found), len(calls)) == (20, 20)
    assert (
        one(pipeline, "select count(*) from requests"),
        one(pipeline, "select count(*) from llm_calls"),
    ) == (20, 20)
    assert found == expected[0]
    assert calls == expected[1]
    assert all(call[2] is not None for call in calls)


def test_an_engine_trace_alone_is_a_request_until_its_client_call_comes(pipeline: Pipeline) -> None:
    engine = span(
        2,
        1,
        name="llm_request",
        start_ms=15,
        ms=70,
        kind=2,
        attributes={
            "gen_ai.request.id": "cmpl-1",
            "gen_ai.latency.e2e": 0.07,
            "gen_ai.latency.time_in_queue": 0.02,
            "gen_ai.latency.time_to_first_token": 0.03,
        },
    )
    send(pipeline, body([engine], {"service.name": "vllm"}))
    pipeline.drain()
    assert rows(pipeline, "select service, engine_only from v_requests") == [("vllm", True)]
    assert rows(
        pipeline, "select engine_e2e_ms, date_diff('ms', start, \"end\") from v_engine_spans"
    ) == [(70.0, 70)]
    send(pipeline, body(chat(1, response_id="cmpl-1")))
    pipeline.drain()
    assert rows(pipeline, "select service, engine_only, round(queue_ms, 6) from v_requests") == [
        ("shop", False, 20.0)
    ]
    assert rows(pipeline, "select ttft_source, engine_span_id is not null from v_llm_calls") == [
        ("engine", True)
    ]


# --- restarts and failures ---


def test_a_request_that_goes_on_while_its_engines_trace_is_assembled_is_one_request(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = {
        "gen_ai.request.id": "chatcmpl-1",
        "gen_ai.latency.e2e": 0.07,
        "gen_ai.latency.time_to_first_token": 0.02,
        "gen_ai.usage.completion_tokens": 5,
    }
    client = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.usage.output_tokens": 5,
    }
    root, call = (
        span(1, 1, name="POST /chat", kind=2, ms=120),
        span(1, 2, 1, name="chat m", kind=3, start_ms=10, ms=90, attributes=client),
    )
    send(
        pipeline,
        body([call]),
        body([span(2, 1, name="llm_request", kind=2, start_ms=20, ms=70, attributes=engine)]),
    )
    take = pipeline.quiet.take
    with monkeypatch.context() as still:
        still.setattr(
            pipeline.quiet,
            "take",
            lambda *when: {key: seen for key, seen in take(*when).items() if key[1] == 2},
        )
        pipeline._assemble_due(0.0)
    assert (one(pipeline, "select count(*) from v_llm_calls"), len(pipeline.quiet)) == (1, 1)
    send(pipeline, body([root]))
    pipeline.drain()
    assert rows(pipeline, REQUESTS) == [(trace_id(1).hex(), 120.0, 1, 0, 3)]
    assert one(pipeline, "select count(*) from v_llm_calls") == 1


def test_traces_that_waited_longer_than_memory_lasts_are_read_from_their_own_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("overrun.collector.ingest.pipeline.Recent", lambda: Recent(0))
    asked: list[dict[str, int]] = []
    with opened(tmp_path / "t.db") as pipeline:
        send(pipeline, body(chat(1)), body(chat(2)), body(chat(3)))
        pipeline.drain()
        ask = reading._asked
        monkeypatch.setattr(
            reading,
            "_asked",
            lambda cursor, query, params, **tables: (
                asked.append(params) or ask(cursor, query, params, **tables)
            ),
        )
        late = span(
            2,
            3,
            1,
            name="tool",
            start_ms=92,
            ms=5,
            attributes={"gen_ai.operation.name": "execute_tool"},
        )
        send(pipeline, body(chat(4)), body([late]), body(chat(5)))
        pipeline.drain()
        assert [row[2:] for row in rows(pipeline, REQUESTS)] == [
            (1, 0, 2),
            (1, 1, 3),
            (1, 0, 2),
            (1, 0, 2),
            (1, 0, 2),
        ]
    assert {
        (params["since"] >> BATCH_BITS, params["until"] >> BATCH_BITS)
        for params in asked
        if "since" in params
    } == {(0, LAST_SEQ >> BATCH_BITS), (4, 7)}


def test_an_id_that_many_answers_have_brings_no_traces_together(pipeline: Pipeline) -> None:
    """Answers out of a cache, or of a mock provider: to look for partners in all of them would cost more with each one."""
    same = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.response.id": "chatcmpl-mock",
        "gen_ai.usage.output_tokens": 5,
    }
    for number in range(1, 13):
        send(
            pipeline,
            body(
                [span(number, 1, name="chat m", kind=3, start_ms=1_000 * number, attributes=same)]
            ),
        )
        pipeline.drain()
    with pipeline.store.reading() as cursor:
        traces = pa.table(
            {
                "trace_hi": pa.array([0xABC], pa.uint64()),
                "trace_lo": pa.array([12], pa.uint64()),
                "start_ns": [T0_NS],
            }
        )
        assert set(quiet_spans(cursor, traces).column("trace_lo").to_pylist()) == {12}
    assert len(rows(pipeline, REQUESTS)) == 12


def test_a_restart_assembles_what_the_last_process_did_not(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    store = new_store(path)
    # As after kill -9: the spans are there, no row is, and nobody was asked to tidy up.
    dead = Pipeline(store, CollectorSettings(quiet_s=3600.0), PrivacySettings(), assemble)
    send(dead, body(chat(1)), body(chat(2)))
    dead._stop.set()
    dead.writer.close()
    store.close()
    with opened(path) as pipeline:
        assert (one(pipeline, "select count(*) from requests"), pipeline.quiet.backlog) == (0, 2)
        pipeline.drain()
        assert one(pipeline, "select count(*) from v_requests") == 2
        assert pipeline.store.meta("assembled_through") == "2"
    with opened(path) as pipeline:
        assert (len(pipeline.quiet), pipeline.quiet.backlog) == (0, 0)


def test_a_late_span_after_a_restart_recomputes_the_row_of_before(tmp_path: Path) -> None:
    root, call = chat(1)
    for spans in ([root], [call], [span(1, 3, 1, start_ms=95, ms=1)]):
        with opened(tmp_path / "t.db") as pipeline:
            send(pipeline, body(spans))
    with opened(tmp_path / "t.db") as pipeline:
        assert rows(pipeline, REQUESTS) == [(trace_id(1).hex(), 100.0, 1, 0, 3)]


def test_the_mark_stays_before_a_trace_that_still_waits(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db", quiet_s=3600.0) as pipeline:
        send(pipeline, body(chat(1)))
        pipeline.drain()
        send(pipeline, body(chat(2)))
        assert pipeline.store.meta("assembled_through") == "1"


@pytest.mark.parametrize("error", [RuntimeError("a defect"), ValueError("another")])
def test_an_error_while_assembling_keeps_traces_pending_and_the_next_try_takes_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    caplog.set_level(logging.CRITICAL, "overrun.collector")
    broken, met = [True], threading.Event()

    def sometimes(spans: pa.Table) -> Assembled:
        if broken[0]:
            met.set()
            raise error
        return assemble(spans)

    pipeline = Pipeline(
        new_store(tmp_path / "t.db"), CollectorSettings(quiet_s=0.05), PrivacySettings(), sometimes
    )
    send(pipeline, body(chat(1)))
    assert met.wait(LIMIT_S)
    assert (one(pipeline, "select count(*) from requests"), len(pipeline.quiet)) == (0, 1)
    assert pipeline.store.meta("assembled_through") == "0"
    broken[0] = False
    until(lambda: not len(pipeline.quiet))
    assert one(pipeline, "select count(*) from requests") == 1
    pipeline.close()


def test_what_does_not_fit_into_the_memory_of_a_quiet_store_is_assembled_with_the_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SETTLED_MEMORY", "1MB")
    pipeline = Pipeline(
        store.open_store(tmp_path / "t.db", create=True, memory_limit="256MB"),
        CollectorSettings(quiet_s=3600.0),
        PrivacySettings(),
        assemble,
    )
    send(pipeline, *(body(chat(k)) for k in range(1, 21)))
    pipeline.store.settle()
    pipeline.drain()
    assert (one(pipeline, "select count(*) from v_requests"), len(pipeline.quiet)) == (20, 0)
    pipeline.close()


def test_a_trace_that_cannot_be_assembled_does_not_hold_up_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "overrun.collector")

    def choking(spans: pa.Table) -> Assembled:
        if 3 in spans.column("trace_lo").to_pylist():
            raise ValueError("a defect met by one trace only")
        return assemble(spans)

    pipeline = Pipeline(
        new_store(tmp_path / "t.db"), CollectorSettings(quiet_s=3600), PrivacySettings(), choking
    )
    send(pipeline, body([s for trace in range(1, 8) for s in chat(trace)]))
    with pytest.raises(StoreUnavailable, match="1 traces are stored but could not be assembled"):
        pipeline.drain()
    assert (one(pipeline, "select count(*) from requests"), len(pipeline.quiet)) == (6, 1)
    with pytest.raises(StoreUnavailable):
        pipeline.close()


def test_rows_that_the_store_refuses_leave_the_old_ones_and_the_trace_pending(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "overrun.collector")
    send(pipeline, body(chat(1)))
    pipeline.drain()
    pipeline.writer.call(
        lambda connection: connection.execute("alter table llm_calls rename to away")
    ).result(LIMIT_S)
    send(pipeline, body([span(1, 3, 1, start_ms=95, ms=1)]))
    with pytest.raises(StoreUnavailable, match="1 traces are stored but could not be assembled"):
        pipeline.drain()
    assert (one(pipeline, "select spans from requests"), len(pipeline.quiet)) == (2, 1)
    pipeline.writer.call(
        lambda connection: connection.execute("alter table away rename to llm_calls")
    ).result(LIMIT_S)
    pipeline.drain()
    assert (one(pipeline, "select spans from requests"), len(pipeline.quiet)) == (3, 0)


def test_while_somebody_reads_the_log_can_be_moved_into_the_file(pipeline: Pipeline) -> None:
    send(pipeline, body(chat(1)))
    pipeline.drain()
    pipeline.writer.call(lambda connection: roll_up(connection, time.time_ns())).result(LIMIT_S)
    with pipeline.store.reading() as cursor:
        held = cursor.execute(REQUESTS).fetchall()
        send(
            pipeline,
            body(
                [
                    span(
                        1,
                        3,
                        1,
                        name="tool",
                        start_ms=92,
                        ms=5,
                        attributes={"gen_ai.operation.name": "execute_tool"},
                    )
                ]
            ),
            body(chat(2)),
        )
        pipeline.drain()
        pipeline.writer.call(lambda connection: roll_up(connection, time.time_ns())).result(LIMIT_S)
        pipeline.store.connection.execute("checkpoint")
        assert cursor.execute(REQUESTS).fetchall() == held
    assert len(rows(pipeline, REQUESTS)) == 2


def test_closing_assembles_what_is_pending(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db") as pipeline:
        send(pipeline, body(chat(1)))
    with opened(tmp_path / "t.db") as pipeline:
        assert one(pipeline, "select count(*) from v_requests") == 1


def test_hostile_times_are_set_aside_and_harm_no_request(pipeline: Pipeline) -> None:
    zero, backwards, huge, cycle = (
        span(i, 1, name="chat", attributes={"gen_ai.operation.name": "chat"}) for i in (1, 2, 3, 4)
    )
    zero.start_time_unix_nano = zero.end_time_unix_nano = 0
    backwards.end_time_unix_nano = backwards.start_time_unix_nano - 5_000_000
    huge.start_time_unix_nano, huge.end_time_unix_nano = 2**64 - 1, 2**64 - 1
    cycle.parent_span_id = cycle.span_id
    send(pipeline, body([zero, backwards, huge, cycle, *chat(5)]))
    pipeline.drain()
    assert one(pipeline, "select count(*) from v_spans") == 3
    assert one(pipeline, "select count(*) from v_quarantine") == 3
    assert (
        one(pipeline, f"select e2e_ms from v_requests where trace_id = '{trace_id(5).hex()}'")
        == 100.0
    )
    assert len(pipeline.quiet) == 0


def test_metrics_wait_for_no_assembly(pipeline: Pipeline) -> None:
    pipeline.writer.submit(METRICS, b"").result(LIMIT_S)
    assert len(pipeline.quiet) == 0


def test_a_trace_that_never_ends_has_a_row_while_it_goes_on(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db", quiet_s=60.0, max_trace_age_s=1.0) as pipeline:
        numbers = itertools.count(3)
        sent = [2]
        send(pipeline, body(chat(1)))

        def has_a_row() -> bool:
            sent.append(next(numbers))
            send(pipeline, body([span(1, sent[-1], 1)]))
            return bool(one(pipeline, "select count(*) from v_requests"))

        until(has_a_row)
        number = sent[-1]
        [seen] = rows(pipeline, "select spans from requests")
        assert int(pipeline.store.meta("assembled_through") or 0) > 1
        send(pipeline, body([span(1, number + 1, 1)]))
        pipeline.drain()
        assert rows(pipeline, "select spans from requests") == [(number + 1,)]
        assert seen <= (number,)


def test_many_traces_of_a_killed_process_do_not_keep_new_ones_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.db"
    with opened(path, quiet_s=3_600.0) as pipeline:
        monkeypatch.setattr(pipeline, "drain", lambda *_: None)
        send(pipeline, body([one for trace in range(1, 51) for one in chat(trace)]))
    # Room for ten traces that wait.
    monkeypatch.setattr("overrun.collector.ingest.writer.PENDING_BYTES", (1 << 20) // 10)
    with opened(path, quiet_s=3_600.0, waiting_mib=1) as pipeline:
        send(pipeline, body(chat(99)))
        pipeline.drain()
        assert one(pipeline, "select count(*) from v_requests") == 51


def test_a_line_of_memory_holds_for_a_server_and_not_for_reading_files(tmp_path: Path) -> None:
    settings = CollectorSettings(quiet_s=3600, memory_soft_mib=1, memory_hard_mib=1)
    reading = Pipeline(new_store(tmp_path / "files.db"), settings, PrivacySettings(), assemble)
    try:
        send(reading, body(chat(1)))
        assert reading.writer.no_room() == ""
    finally:
        reading.close()
    serving = Pipeline(
        new_store(tmp_path / "t.db"), settings, PrivacySettings(), assemble, serving=True
    )
    try:
        with pytest.raises(QueueFull, match="memory_soft_mib is 1"):
            send(serving, body(chat(1)))
    finally:
        serving.close()
