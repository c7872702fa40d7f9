"""Acknowledged means stored: what the writer answers, when, and what it does with repeats, culprits and a store that refuses."""

import sys
import threading
import time
from pathlib import Path

import duckdb
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from overrun.analysis.assembly.assemble import assemble
from overrun.collector.config import CollectorSettings, PrivacySettings
from overrun.collector.errors import BadPayload, QueueFull, StoreLocked, StoreUnavailable
from overrun.collector.ingest import writer as writer_module
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.quiet_traces import QuietTraces
from overrun.collector.ingest.writer import METRICS, TRACES, Stored, Writer
from overrun.collector.normalise.spans import Rules
from overrun.collector.receive import health
from overrun.collector.store.database import FileStore
from overrun.collector.store.store import Store
from tests import programs
from tests.collector.conftest import T0_NS, body, chat, held, one, opened, plain_body, rows, span
from tests.conftest import new_store
from tests.waiting import LIMIT_S


def metrics_body(name: str) -> bytes:
    sent = ExportMetricsServiceRequest()
    sent.resource_metrics.add().scope_metrics.add().metrics.add(name=name).gauge.data_points.add(
        time_unix_nano=T0_NS, as_double=1.0
    )
    return sent.SerializeToString()


# --- answer after the commit ---


def test_when_a_body_is_answered_another_cursor_can_read_it(pipeline: Pipeline) -> None:
    cursor = pipeline.store.cursor()
    for i in range(1, 30):
        assert pipeline.writer.submit(TRACES, plain_body()).result(LIMIT_S) == Stored(1, 0)
        assert cursor.execute("select count(*) from spans").fetchall() == [(i,)]
    cursor.close()


def test_a_body_is_not_answered_while_its_rows_cannot_be_read(pipeline: Pipeline) -> None:
    with held(pipeline.writer):
        waiting = pipeline.writer.submit(TRACES, plain_body())
        assert not waiting.done()
        assert one(pipeline, "select count(*) from spans") == 0
    waiting.result(LIMIT_S)
    assert one(pipeline, "select count(*) from spans") == 1


def test_bodies_that_gathered_during_a_commit_go_together_in_the_next(pipeline: Pipeline) -> None:
    with held(pipeline.writer):
        waiting = [pipeline.writer.submit(TRACES, plain_body()) for _ in range(50)]
    assert all(w.result(LIMIT_S) == Stored(1, 0) for w in waiting)
    assert pipeline.writer.counters.commits == 1
    assert rows(pipeline, "select spans from batches") == [(50,)]


def test_senders_come_before_jobs(pipeline: Pipeline) -> None:
    with held(pipeline.writer):
        job = pipeline.writer.call(
            lambda connection: connection.execute("select count(*) from spans").fetchall()
        )
        body = pipeline.writer.submit(TRACES, plain_body())
    assert job.result(LIMIT_S) == [(1,)]
    assert body.done()


def test_a_commit_takes_no_more_than_its_share_of_bytes(tmp_path: Path) -> None:
    bodies = [
        body([span(trace, i, name="n" * 200) for i in range(1, 2_000)]) for trace in range(1, 6)
    ]
    assert 2 * len(bodies[0]) < 1 << 20 < 3 * len(bodies[0])
    with opened(tmp_path / "t.db", commit_mib=1) as pipeline:
        with held(pipeline.writer):
            waiting = [pipeline.writer.submit(TRACES, data) for data in bodies]
        for w in waiting:
            w.result(LIMIT_S)
        assert [n for (n,) in rows(pipeline, "select spans from batches order by batch")] == [
            2 * 1_999,
            2 * 1_999,
            1_999,
        ]


def test_traces_and_metrics_of_one_commit_are_stored_together(pipeline: Pipeline) -> None:
    with held(pipeline.writer):
        waiting = [
            pipeline.writer.submit(TRACES, plain_body()),
            pipeline.writer.submit(METRICS, metrics_body("m")),
        ]
    for w in waiting:
        w.result(LIMIT_S)
    assert rows(pipeline, "select spans, points from batches") == [(1, 1)]


def test_each_body_is_told_how_many_items_it_brought(pipeline: Pipeline) -> None:
    broken = span(1, 9)
    broken.trace_id = b""
    with held(pipeline.writer):
        waiting = [
            pipeline.writer.submit(TRACES, body(spans))
            for spans in ([span(1, 1)], [broken, span(1, 2), span(1, 3)], [])
        ]
    assert [(w.result(LIMIT_S).items, w.result(LIMIT_S).rejected) for w in waiting] == [
        (1, 0),
        (2, 1),
        (0, 0),
    ]


# --- culprits ---


@pytest.mark.parametrize("signal", [TRACES, METRICS])
def test_a_bad_body_fails_alone_and_its_neighbours_are_stored(
    pipeline: Pipeline, signal: int
) -> None:
    with held(pipeline.writer):
        before = pipeline.writer.submit(TRACES, plain_body())
        bad = pipeline.writer.submit(signal, b"\xff\xff\xff")
        after = pipeline.writer.submit(TRACES, plain_body())
        points = pipeline.writer.submit(METRICS, metrics_body("good"))
    assert isinstance(bad.exception(LIMIT_S), BadPayload)
    assert [w.result(LIMIT_S).rejected for w in (before, after, points)] == [0, 0, 0]
    assert (
        one(pipeline, "select count(*) from spans"),
        one(pipeline, "select count(*) from points"),
    ) == (2, 1)
    assert pipeline.writer.counters.bad_bodies == 1


@pytest.mark.parametrize("decoder", ["fast", "upb"])
def test_either_decoder_stores_the_same(tmp_path: Path, decoder: str) -> None:
    with opened(tmp_path / "t.db", decoder=decoder) as pipeline:
        assert pipeline.writer.submit(TRACES, body(chat(1))).result(LIMIT_S) == Stored(2, 0)
        assert isinstance(pipeline.writer.submit(TRACES, b"\xff").exception(LIMIT_S), BadPayload)
        pipeline.drain()
        assert rows(pipeline, "select e2e_ms, route, model, output_tokens from v_requests") == [
            (100.0, "/chat", "m", 10)
        ]


def test_a_bad_body_is_refused_each_time_it_comes(pipeline: Pipeline) -> None:
    with held(pipeline.writer):
        twice = [pipeline.writer.submit(TRACES, b"\xff\xff\xff") for _ in range(2)]
    assert all(isinstance(w.exception(LIMIT_S), BadPayload) for w in twice)
    assert isinstance(
        pipeline.writer.submit(TRACES, b"\xff\xff\xff").exception(LIMIT_S), BadPayload
    )
    assert one(pipeline, "select count(*) from bodies") == 0


# --- repeats ---


def test_a_body_sent_again_is_acknowledged_and_counted_once(pipeline: Pipeline) -> None:
    data = plain_body(3)
    first, again = (pipeline.writer.submit(TRACES, data).result(LIMIT_S) for _ in range(2))
    assert (first, again) == (Stored(3, 0), Stored(0, 0, duplicate=True))
    assert one(pipeline, "select count(*) from spans") == 3
    assert pipeline.writer.counters.duplicates == 1


def test_two_equal_bodies_in_one_commit_are_counted_once(pipeline: Pipeline) -> None:
    data, points = plain_body(3), metrics_body("m")
    with held(pipeline.writer):
        waiting = [
            pipeline.writer.submit(signal, content)
            for _ in range(2)
            for signal, content in ((TRACES, data), (METRICS, points))
        ]
    assert [w.result(LIMIT_S).duplicate for w in waiting] == [False, False, True, True]
    assert (
        one(pipeline, "select count(*) from spans"),
        one(pipeline, "select count(*) from points"),
    ) == (3, 1)


def test_a_body_sent_again_after_a_restart_is_counted_once(tmp_path: Path) -> None:
    data, points = plain_body(3), metrics_body("m")
    for expected in (False, True, True):
        with opened(tmp_path / "t.db") as pipeline:
            assert pipeline.writer.submit(TRACES, data).result(LIMIT_S).duplicate is expected
            assert pipeline.writer.submit(METRICS, points).result(LIMIT_S).duplicate is expected
            assert (
                one(pipeline, "select count(*) from spans"),
                one(pipeline, "select count(*) from points"),
            ) == (3, 1)


def test_a_body_sent_again_after_a_leap_of_the_clock_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, now_ns = plain_body(3), time.time_ns
    with opened(tmp_path / "t.db") as pipeline:
        pipeline.writer.submit(TRACES, data).result(LIMIT_S)
        monkeypatch.setattr(time, "time_ns", lambda: now_ns() + 31 * 86_400 * 10**9)
        pipeline.writer.submit(TRACES, plain_body(1)).result(LIMIT_S)
        assert pipeline.writer.submit(TRACES, data).result(LIMIT_S).duplicate
        pipeline.between_rounds(lambda connection: None)  # hashes are read from the file again
        assert pipeline.writer.submit(TRACES, data).result(LIMIT_S).duplicate
    with opened(tmp_path / "t.db") as pipeline:
        assert pipeline.writer.submit(TRACES, data).result(LIMIT_S).duplicate
        assert one(pipeline, "select count(*) from spans") == 4


def test_equal_bytes_of_different_signals_are_different_bodies(pipeline: Pipeline) -> None:
    assert [
        pipeline.writer.submit(signal, b"").result(LIMIT_S).duplicate
        for signal in (TRACES, METRICS)
    ] == [False, False]


def test_a_span_that_came_in_two_bodies_is_one_row_of_the_view(pipeline: Pipeline) -> None:
    for more in ([span(1, 1)], [span(1, 1), span(1, 2)]):
        pipeline.writer.submit(TRACES, body(more)).result(LIMIT_S)
    assert (
        one(pipeline, "select count(*) from spans"),
        one(pipeline, "select count(*) from v_spans"),
    ) == (3, 2)


def test_a_body_that_was_not_stored_is_no_repeat_when_it_comes_again(pipeline: Pipeline) -> None:
    data = plain_body()
    pipeline.writer.call(
        lambda connection: connection.execute("alter table bodies rename to away")
    ).result(LIMIT_S)
    assert isinstance(pipeline.writer.submit(TRACES, data).exception(LIMIT_S), StoreUnavailable)
    pipeline.writer.call(
        lambda connection: connection.execute("alter table away rename to bodies")
    ).result(LIMIT_S)
    assert pipeline.writer.submit(TRACES, data).result(LIMIT_S) == Stored(1, 0)
    assert rows(pipeline, "select service from v_spans") == [
        ("shop",)
    ]  # its source row came with it, too


# --- a store that refuses ---


@pytest.mark.parametrize("table", ["spans", "sources", "batches", "points"])
def test_a_store_that_refuses_is_said_so_and_nothing_of_the_commit_is_kept(
    pipeline: Pipeline, table: str
) -> None:
    pipeline.writer.call(
        lambda connection: connection.execute(f"alter table {table} rename to away")
    ).result(LIMIT_S)
    with held(pipeline.writer):
        waiting = [
            pipeline.writer.submit(TRACES, plain_body()),
            pipeline.writer.submit(METRICS, metrics_body("m")),
        ]
    for w in waiting:
        error = w.exception(LIMIT_S)
        assert isinstance(error, StoreUnavailable)
        assert error.retry_after_s == 5
    pipeline.writer.call(
        lambda connection: connection.execute(f"alter table away rename to {table}")
    ).result(LIMIT_S)
    for kept in ("spans", "points", "bodies", "batches", "sources"):
        assert one(pipeline, f"select count(*) from {kept}") == 0, kept
    assert pipeline.writer.counters.failed_commits == 1
    assert pipeline.writer.submit(TRACES, plain_body()).result(LIMIT_S) == Stored(1, 0)
    assert pipeline.writer.waiting_bytes == 0


def test_a_bad_body_beside_a_refusing_store_still_hears_that_it_is_bad(pipeline: Pipeline) -> None:
    pipeline.writer.call(lambda connection: connection.execute("drop table spans cascade")).result(
        LIMIT_S
    )
    with held(pipeline.writer):
        bad, good = (
            pipeline.writer.submit(TRACES, b"\xff\xff\xff"),
            pipeline.writer.submit(TRACES, plain_body()),
        )
    assert isinstance(bad.exception(LIMIT_S), BadPayload)
    assert isinstance(good.exception(LIMIT_S), StoreUnavailable)


# --- the log ---


def log_bytes(pipeline: Pipeline) -> int:
    pipeline.writer.call(lambda _: None).result(
        LIMIT_S
    )  # what comes after the answers is done by then
    path = pipeline.store.path.with_name(pipeline.store.path.name + ".wal")
    return path.stat().st_size if path.exists() else 0


def test_a_long_log_moves_into_the_file_after_the_answers(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.writer.submit(TRACES, plain_body()).result(LIMIT_S)
    assert log_bytes(pipeline)
    monkeypatch.setattr(pipeline.store, "_long_log", log_bytes(pipeline) + 1)
    pipeline.writer.submit(TRACES, plain_body()).result(LIMIT_S)
    assert log_bytes(pipeline) == 0
    assert one(pipeline, "select count(*) from spans") == 2


def test_memory_of_the_file_is_given_back_with_each_checkpoint_under_load(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[bool] = []
    monkeypatch.setattr(pipeline.store, "settle", lambda: settled.append(True))
    monkeypatch.setattr(pipeline.writer, "rest", lambda: None)  # as if it never rested
    pipeline.writer.submit(TRACES, plain_body()).result(LIMIT_S)
    monkeypatch.setattr(pipeline.store, "_long_log", 1)
    pipeline.writer.submit(TRACES, plain_body()).result(LIMIT_S)
    assert log_bytes(pipeline) == 0
    assert settled


# --- jobs ---


def test_a_file_that_is_opened_anew_between_commits_holds_all_that_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "RENEW_ROWS", 10)
    renewals: list[bool] = []
    with opened(tmp_path / "t.db") as pipeline:
        renew = pipeline.store.renew
        monkeypatch.setattr(
            pipeline.store, "renew", lambda: renewals.append(renew()) or renewals[-1]
        )
        monkeypatch.setattr(pipeline.store, "_long_log", 1)
        for i in range(1, 31):
            assert pipeline.writer.submit(TRACES, plain_body()).result(LIMIT_S) == Stored(1, 0)
            with pipeline.store.reading() as con:  # the file is not opened anew meanwhile
                assert con.execute("select count(*) from spans").fetchall() == [(i,)]
    assert sum(renewals) in (2, 3), (
        "every 10 spans, or a little later where a question was under way"
    )


def test_a_file_that_cannot_be_opened_anew_refuses_senders_until_it_can(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "RENEW_ROWS", 1)
    store, reopened = pipeline.store, pipeline.store._reopened

    def taken() -> Store:
        raise StoreLocked("another process has it")

    monkeypatch.setattr(store, "_long_log", 1)
    monkeypatch.setattr(store, "_reopened", taken)
    pipeline.writer.submit(TRACES, plain_body()).result(LIMIT_S)
    assert isinstance(
        pipeline.writer.submit(TRACES, plain_body()).exception(LIMIT_S), StoreUnavailable
    )
    monkeypatch.setattr(store, "_reopened", reopened)
    assert isinstance(
        pipeline.writer.submit(TRACES, plain_body()).exception(LIMIT_S), StoreUnavailable | None
    )
    pipeline.writer.submit(TRACES, plain_body()).result(LIMIT_S)
    assert one(pipeline, "select count(*) from spans") >= 2


def test_a_job_runs_in_one_transaction_and_answers_after_its_commit(pipeline: Pipeline) -> None:
    def job(connection: duckdb.DuckDBPyConnection) -> str:
        connection.execute("insert into meta values ('a', '1')")
        connection.execute("insert into meta values ('b', '2')")
        return "done"

    assert pipeline.writer.call(job).result(LIMIT_S) == "done"
    assert rows(pipeline, "select value from meta where key in ('a', 'b') order by key") == [
        ("1",),
        ("2",),
    ]


def test_a_job_that_fails_leaves_nothing_and_its_caller_hears_why(pipeline: Pipeline) -> None:
    def job(connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute("insert into meta values ('a', '1')")
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        pipeline.writer.call(job).result(LIMIT_S)
    assert rows(pipeline, "select * from meta where key = 'a'") == []
    assert pipeline.writer.submit(TRACES, plain_body()).result(LIMIT_S) == Stored(1, 0)


# --- the queue ---


def test_the_queue_is_bounded_in_bytes_and_what_was_refused_is_not_queued(tmp_path: Path) -> None:
    data = [
        body([span(trace, i, name="n" * 200) for i in range(1, 1_000)]) for trace in range(1, 12)
    ]
    fits = (1 << 20) // len(data[0])
    with opened(tmp_path / "t.db", queue_mib=1) as pipeline:
        with held(pipeline.writer):
            waiting = [pipeline.writer.submit(TRACES, content) for content in data[:fits]]
            for content in data[fits:]:
                with pytest.raises(
                    QueueFull,
                    match=r"\d+ bytes wait to be stored, the limit is 1048576: retry later",
                ) as caught:
                    pipeline.writer.submit(TRACES, content)
                assert caught.value.retry_after_s >= 1
            assert pipeline.writer.waiting_bytes <= 1 << 20
        for w in waiting:
            w.result(LIMIT_S)
        assert (one(pipeline, "select count(*) from bodies"), pipeline.writer.waiting_bytes) == (
            fits,
            0,
        )
        assert pipeline.writer.submit(TRACES, data[-1]).result(LIMIT_S).items == 999


def test_senders_are_refused_while_waiting_traces_take_too_much_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "PENDING_BYTES", 1 << 19)
    with opened(tmp_path / "t.db", waiting_mib=1) as pipeline:
        pipeline.writer.submit(TRACES, body([span(trace, 1) for trace in (1, 2, 3)])).result(
            LIMIT_S
        )
        with pytest.raises(QueueFull, match="wait for assembly, the limit of waiting_mib is 2"):
            pipeline.writer.submit(TRACES, body([span(4, 1)]))
        assert not health.readiness(pipeline)[0]
        pipeline.drain()
        assert health.readiness(pipeline)[0]
        assert pipeline.writer.submit(TRACES, body([span(4, 1)])).result(LIMIT_S).items == 1


def test_a_burst_of_traces_of_one_span_is_taken_and_assembled_in_order(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db") as pipeline:
        for first in range(0, 36_000, 4_000):
            spans = [span(first + i, 1, kind=2) for i in range(4_000)]
            assert pipeline.writer.submit(TRACES, body(spans)).result(LIMIT_S).items == 4_000
        taken = pipeline.quiet.take(time.monotonic(), 0.0, 4_000)
        batches = [seen.first_batch for seen in taken.values()]
        assert batches == sorted(batches)
        assert max(batches) < pipeline.writer.last_batch
        pipeline.drain()
        assert one(pipeline, "select count(*) from requests") == 36_000


def test_a_body_larger_than_the_queue_is_taken_when_it_is_alone(tmp_path: Path) -> None:
    large = body([span(1, i, name="n" * 200) for i in range(1, 6_000)])
    assert len(large) > 1 << 20
    with opened(tmp_path / "t.db", queue_mib=1) as pipeline:
        assert pipeline.writer.submit(TRACES, large).result(LIMIT_S).items == 5_999


def test_bodies_from_many_threads_are_each_stored_once(pipeline: Pipeline) -> None:
    sent = [[plain_body() for _ in range(20)] for _ in range(8)]

    def send(bodies: list[bytes]) -> None:
        for data in bodies:
            pipeline.writer.submit(TRACES, data).result(LIMIT_S)

    threads = [threading.Thread(target=send, args=(bodies,)) for bodies in sent]
    for t in threads:
        t.start()
    for t in threads:
        t.join(LIMIT_S)
    assert one(pipeline, "select count(*) from spans") == 160
    # Every body stands in exactly one batch, and batches count what they hold.
    assert one(pipeline, "select sum(spans) from batches") == 160


# --- closing ---


def test_closing_answers_everything_that_is_queued_and_takes_nothing_more(tmp_path: Path) -> None:
    store = new_store(tmp_path / "t.db")
    writer = Writer(store, CollectorSettings(), Rules(salt=store.salt()), QuietTraces())
    with held(writer):
        waiting = [writer.submit(TRACES, plain_body()) for _ in range(30)]
        job = writer.call(lambda connection: connection.execute("select 42").fetchall())
        closing = threading.Thread(target=writer.close)
        closing.start()
    closing.join(LIMIT_S)
    assert all(w.done() and w.result() == Stored(1, 0) for w in waiting)
    assert job.result(0) == [(42,)]
    with pytest.raises(StoreUnavailable, match="shutting down"):
        writer.submit(TRACES, plain_body())
    with pytest.raises(StoreUnavailable, match="shutting down"):
        writer.call(lambda connection: None)
    assert store.connection.execute("select count(*) from spans").fetchall() == [(30,)]
    store.close()


def test_a_sender_that_gave_up_waiting_does_not_end_the_writer(pipeline: Pipeline) -> None:
    with held(pipeline.writer):
        gone = pipeline.writer.submit(TRACES, plain_body())
        patient = pipeline.writer.submit(TRACES, plain_body())
        gone.cancel()
        gone_job = pipeline.writer.call(lambda connection: 1)
        gone_job.cancel()
    assert patient.result(LIMIT_S) == Stored(1, 0)
    assert pipeline.writer.submit(TRACES, plain_body()).result(LIMIT_S) == Stored(1, 0)
    assert pipeline.writer.waiting_bytes == 0


def test_a_file_that_can_only_be_read_takes_no_telemetry_and_says_so(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db") as pipeline:
        pipeline.writer.submit(TRACES, plain_body()).result(LIMIT_S)
        pipeline.drain()
    connection = duckdb.connect(str(tmp_path / "t.db"), read_only=True)
    reading = Pipeline(
        FileStore(connection, tmp_path / "t.db", read_only=True),
        CollectorSettings(quiet_s=3600.0),
        PrivacySettings(),
        assemble,
    )
    error = reading.writer.submit(TRACES, plain_body()).exception(LIMIT_S)
    assert isinstance(error, StoreUnavailable)
    assert "read-only" in str(error)
    assert one(reading, "select count(*) from spans") == 1
    reading.close()


if sys.platform != "win32":

    @pytest.mark.parametrize(
        "small",
        [
            "store._long_log = 1_500_000",
            "store.connection.execute(\"set checkpoint_threshold = '1500KB'\")",
        ],
    )
    def test_a_disk_that_takes_no_more_is_a_refusal_and_with_new_room_the_same_process_goes_on(
        tmp_path: Path, small: str
    ) -> None:
        resource = pytest.importorskip("resource")
        code = f"""
import resource, signal, sys
from pathlib import Path
from overrun.collector.errors import StoreUnavailable
from overrun.collector.ingest.writer import TRACES
from tests.collector.conftest import body, one, opened, span
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path({str(tmp_path)!r})
def send(pipeline, trace):
    data = body([span(trace, i, name=f"{{trace}}.{{i}}." + "x" * 200) for i in range(1, 1_500)])
    return pipeline.writer.submit(TRACES, data).exception(30)
with opened(folder / "t.db") as pipeline:
    # A small threshold: the limit is met by the log first, and then by a checkpoint, after which DuckDB gives the database up.
    pipeline.{small}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = max(p.stat().st_size for p in folder.iterdir())
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1_000_000, hard))
    stored = refused = 0
    for trace in range(1, 200):
        error = send(pipeline, trace)
        assert error is None or isinstance(error, StoreUnavailable), error
        stored += error is None
        refused += error is not None
        if refused == 5:
            break
    assert refused == 5, "the limit was never reached"
    assert pipeline.writer.refusal
    assert one(pipeline, "select count(*) from spans") == stored * 1_499, "reading goes on"
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    for trace in range(300, 305):
        error = send(pipeline, trace)
        assert error is None, error
        stored += 1
    assert pipeline.writer.refusal is None
    assert one(pipeline, "select count(*) from spans") == stored * 1_499
    print(stored * 1_499)
"""
        assert resource is not None
        done = programs.fresh(code)
        assert done.returncode == 0, done.stderr[-2_000:]
        with opened(tmp_path / "t.db") as pipeline:
            assert one(pipeline, "select count(*) from spans") == int(done.stdout)
            assert pipeline.writer.submit(TRACES, plain_body()).result(LIMIT_S) == Stored(1, 0)
