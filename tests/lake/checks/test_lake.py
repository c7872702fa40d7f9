"""A lake over a real PostgreSQL: what is acknowledged is stored once, assembled once, and answers as a file does."""

import json
import math
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from overrun.analysis.assembly.assemble import assemble
from overrun.analysis.front.question_table import ENTRIES
from overrun.analysis.front.questions import Prepared
from overrun.analysis.words.encoding import encode
from overrun.collector.config import PrivacySettings, Settings
from overrun.collector.ingest import lake_pipeline
from overrun.collector.ingest.lake_pipeline import LakePipeline
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import TRACES
from overrun.collector.lifecycle.lake_maintenance import maintain
from overrun.collector.receive.health import metric_lines
from overrun.collector.store.database import open_store
from tests.benchmarks import payload
from tests.lake.checks.opened import QUIET, expire_lease, opened, rows
from tests.lake.postgres import Postgres
from tests.lake.processes import Lake, post, send
from tests.waiting import until

# What a report counts; its findings hold resampled intervals.
_COUNTED = ("window", "latency", "goodput", "stages", "errors", "retries", "checklist")


@pytest.fixture(scope="module")
def sent() -> payload.Payload:
    """Some 200 requests."""
    return payload.make(2_000, end_ns=time.time_ns(), spans_per_body=64)


@pytest.fixture(scope="module")
def lake(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    made = Lake(postgres, "shared", tmp_path_factory.mktemp("lake"))
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def lasting_leases(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A lease of this process ends when a test says so, however slow the machine is, and with the test."""
    monkeypatch.setattr(lake_pipeline, "LEASE_S", 3_600.0)
    yield
    expire_lease(lake)


@pytest.fixture(scope="module")
def reader(lake: Lake) -> Iterator[LakePipeline]:
    with opened(lake) as made:
        yield made


def alike(one: object, other: object) -> bool:
    """Whether two answers are equal but for the last digits of numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other


def test_kill_9_of_any_process_loses_and_doubles_nothing(
    lake: Lake, reader: LakePipeline, sent: payload.Payload
) -> None:
    collectors = [lake.start("collector"), lake.start("collector")]
    assembler = lake.start("assembler")
    chance = random.Random(1)

    def one(at: int) -> None:
        send(collectors, sent.bodies[at].data, at)

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(one, at) for at in range(len(sent.bodies))]
        time.sleep(chance.uniform(0.2, 0.8))
        collectors[0].kill()
        collectors[0] = lake.start("collector")
        assembler.kill()
        for future in done:
            future.result()
    spans = sum(body.spans for body in sent.bodies)
    stored = "select count(*), count(distinct (trace_hi, trace_lo, span_id)) from spans"
    assert rows(reader, stored) == [(spans, spans)]
    # The same body at two collectors at once: both answer that it is stored.
    again = payload.make(10, end_ns=time.time_ns(), seed=5).bodies[0]
    ready = threading.Barrier(2)

    def twice(at: int) -> int:
        ready.wait()
        return post(collectors[at].http, again.data)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(twice, range(2))) == [200, 200]
    assert rows(reader, stored) == [(spans + again.spans,) * 2]
    assert any(line.startswith("overrun_db_bytes ") for line in metric_lines(reader))
    lake.stop()
    expire_lease(lake)
    _same_as_a_file(reader, [*(body.data for body in sent.bodies), again.data])


def _same_as_a_file(of: LakePipeline, bodies: list[bytes]) -> None:
    """A lake's requests and calls are those of a file's store that got the same bodies, and so are its answers. In memory: this DuckDB writes no file of ours."""
    store = open_store(Path(":memory:"), create=True)
    salt = {"salt": of.store.salt().hex()}
    store.connection.execute("update meta set value = $salt where key = 'salt'", salt)
    file = Pipeline(store, QUIET, PrivacySettings(), assemble)
    for future in [file.writer.submit(TRACES, body) for body in bodies]:
        future.result()
    file.drain()

    # This process goes on at the mark of the killed assembler.
    def assembled() -> bool:
        of._round()
        return len({tuple(rows(one, "select count(*) from v_llm_calls")) for one in (of, file)}) < 2

    until(assembled)
    for view in ("v_requests", "v_llm_calls", "v_spans"):
        columns = "* exclude (row_key)" if view == "v_requests" else "*"
        query = f"select {columns} from {view} order by all"
        assert rows(of, query) == rows(file, query), view
    now, settings = datetime.now(UTC), Settings()
    # Rows come in another order: sums differ by their last digits, and what is resampled by more.
    for path in ("report", "series", "heatmap", "requests", "stages"):
        asked = Prepared.read(ENTRIES[path], {"since": "1h"}, settings, now=now)
        lake, alone = (json.loads(encode(asked.answer(one.store.reading))) for one in (of, file))
        for part in _COUNTED if path == "report" else lake.keys() | alone.keys():
            assert alike(lake[part], alone[part]), (path, part)
    file.close()


def test_a_process_that_has_lost_its_lease_changes_nothing(
    lake: Lake, reader: LakePipeline
) -> None:
    with opened(lake) as first, opened(lake) as second:
        body = payload.make(20, end_ns=time.time_ns(), seed=7).bodies[0].data
        before = rows(reader, "select count(*) from v_requests")
        until(first._holds)
        assert first.writer.submit(TRACES, body).result().items
        first._read_on()
        assert not second._holds()
        expire_lease(lake)
        assert second._holds()
        assert not first._assemble_due(0.0)  # it does not know yet, and PostgreSQL refuses it
        assert rows(reader, "select count(*) from v_requests") == before
        second._read_on()
        assert second._assemble_due(0.0)
        found = rows(reader, "select count(*), count(distinct trace_id) from v_requests")
        assert found[0][0] == found[0][1] > before[0][0]
        assert not first._holds()


def test_late_spans_put_a_newer_row_in_the_place_of_a_request(
    lake: Lake, reader: LakePipeline, tmp_path: Path
) -> None:
    bodies = [
        part.data
        for part in payload.make(60, end_ns=time.time_ns(), seed=11, spans_per_body=25).bodies
    ]
    with opened(lake) as one:
        for body in bodies:
            one.writer.submit(TRACES, body).result()
            until(one._holds)
            one._read_on()
            one._assemble_due(0.0)
        [(kept, traces)] = rows(reader, "select count(*), count(distinct trace_id) from v_requests")
        assert kept == traces
        [(hidden,)] = rows(reader, "select count(*) from superseded")
        assert hidden > 0


def test_who_takes_over_replaces_what_was_assembled_beyond_the_mark(
    lake: Lake, reader: LakePipeline
) -> None:
    sent = payload.make(60, end_ns=time.time_ns(), seed=19, spans_per_body=25).bodies
    with opened(lake) as first, opened(lake) as second:
        first.writer.submit(TRACES, sent[0].data).result()
        until(first._holds)
        first._read_on()
        waiting = dict(
            first.quiet.take(time.monotonic(), 0.0, 1)
        )  # one trace waits, and keeps the mark where it is
        first.quiet.done({})
        assert len(waiting) == 1
        some = first.quiet.take(time.monotonic(), 0.0, 1_000)
        for key in waiting:
            some.pop(key)
        assert not first._assemble_all(some)
        for body in sent[1:]:
            second.writer.submit(TRACES, body.data).result()
        expire_lease(lake)
        assert second._holds()
        while second._read_on():
            pass
        while second._assemble_due(0.0):
            pass
        for view in ("v_requests", "v_llm_calls"):
            key = "trace_id" if view == "v_requests" else "(trace_id, span_id)"
            [(kept, distinct)] = rows(reader, f"select count(*), count(distinct {key}) from {view}")
            assert kept == distinct > 0


def test_maintenance_takes_nothing_that_is_still_to_be_assembled(
    lake: Lake, reader: LakePipeline
) -> None:
    sent = payload.make(60, end_ns=time.time_ns(), seed=17, spans_per_body=25)
    files = "select sum(file_count) from ducklake_table_info('lake')"
    with opened(lake) as one:
        for body in sent.bodies:
            one.writer.submit(TRACES, body.data).result()
        [(before,)] = rows(reader, "select count(*) from v_requests")
        [(many,)] = rows(reader, files)
        done = maintain(one.lake, kept_s=0.0)
        assert done.merged_files > 0
        assert done.deleted_files > 0
        assert rows(reader, files)[0][0] < many
        until(one._holds)
        one._read_on()
        while one._assemble_due(0.0):
            pass
        assert rows(reader, "select count(*) from v_requests") == [(before + sent.traces,)]


def test_postgresql_that_crashes_keeps_senders_waiting_and_loses_nothing(
    lake: Lake, reader: LakePipeline, postgres: Postgres
) -> None:
    with opened(lake) as one:
        body = payload.make(10, end_ns=time.time_ns(), seed=13).bodies[0]
        [(before,)] = rows(reader, "select count(*) from spans")
        postgres.stop_hard()
        waiting = one.writer.submit(TRACES, body.data)
        time.sleep(1.0)
        assert not waiting.done()
        postgres.start()
        assert waiting.result(30).items == body.spans
        assert one.writer.submit(TRACES, body.data).result(30).duplicate
        with opened(lake) as other:
            assert rows(other, "select count(*) from spans") == [(before + body.spans,)]
