"""A lake over a real object store: what is too old goes, who is erased is in no file, and connections that are refused lose nothing."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from overrun.collector.config import RetentionSettings
from overrun.collector.errors import StoreUnavailable
from overrun.collector.ingest import lake_pipeline
from overrun.collector.ingest.lake_pipeline import LakePipeline
from overrun.collector.ingest.writer import METRICS, TRACES
from overrun.collector.lifecycle import rollups
from overrun.collector.lifecycle.lake_forget import forget_in_lake
from overrun.collector.lifecycle.lake_maintenance import fold, maintain
from overrun.collector.lifecycle.lake_retention import LakeRetention
from tests.benchmarks import payload
from tests.collector.conftest import MS, T0_NS, body, chat, span
from tests.collector.normalise.test_points import gauge
from tests.collector.normalise.test_points import request as points
from tests.lake.checks.opened import catalog_of, expire_lease, opened, rows
from tests.lake.object_store import BUCKET, ObjectStore, Proxy
from tests.lake.postgres import Postgres
from tests.lake.processes import Lake
from tests.waiting import until

_TENANT, _USER = "zz-erased-tenant", "ada-erased@example.com"


@pytest.fixture(scope="module")
def objects() -> Iterator[ObjectStore]:
    made = ObjectStore()
    yield made
    made.close()


@pytest.fixture(scope="module")
def proxy(objects: ObjectStore) -> Iterator[Proxy]:
    made = Proxy(objects.port)
    yield made
    made.close()


@pytest.fixture(scope="module")
def lake(
    postgres: Postgres,
    objects: ObjectStore,
    proxy: Proxy,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Lake]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in objects.environment(proxy.port).items():
            patch.setenv(name, value)
        patch.setattr(lake_pipeline, "LEASE_S", 3_600.0)
        folder = tmp_path_factory.mktemp("objects")
        yield Lake(postgres, "lifecycle", folder, f"s3://{BUCKET}/lifecycle")


@pytest.fixture(scope="module")
def one(lake: Lake) -> Iterator[LakePipeline]:
    with opened(lake) as made:
        yield made
    expire_lease(lake)


def sent(n: int, seed: int) -> list[payload.Body]:
    return payload.make(n, end_ns=time.time_ns(), seed=seed, spans_per_body=128).bodies


def assemble_all(one: LakePipeline) -> None:
    until(one._holds)
    while one._read_on():
        pass
    while one._assemble_due(0.0):
        pass
    one._read_on()
    one._move_mark()


def in_files(objects: ObjectStore, name: str) -> list[str]:
    """The objects with a row that holds this text."""
    found = []
    for path in objects.objects("lifecycle"):
        with objects.files().open_input_file(path) as held:
            Path("part.parquet").write_bytes(held.read())
        rows_with = duckdb.execute(
            "select count(*) from 'part.parquet' t where contains(t::varchar, $name)",
            {"name": name},
        )
        if rows_with.fetchall() != [(0,)]:
            found.append(path)
    return found


def in_catalog(lake: Lake, name: str) -> list[str]:
    """The tables of PostgreSQL with a row that holds this text."""
    with catalog_of(lake) as con:
        tables = con.execute("select tablename from pg_tables where schemaname = 'public'")
        return [
            table
            for (table,) in tables.fetchall()
            if con.execute(
                f"select 1 from {table} t where t::text like %s", [f"%{name}%"]
            ).fetchall()
        ]


def test_connections_that_are_refused_lose_and_double_nothing(
    one: LakePipeline, proxy: Proxy
) -> None:
    bodies = sent(384, seed=1)
    proxy.refused = 0.3
    try:
        stored = [one.writer.submit(TRACES, b.data).result(60).items for b in bodies]
    finally:
        proxy.refused = 0.0
    assert proxy.refusals > 0
    assert stored == [b.spans for b in bodies]
    [found] = rows(one, "select count(*), count(distinct (trace_hi, trace_lo, span_id)) from spans")  # fmt: skip
    assert found == (sum(stored),) * 2


def test_what_is_too_old_goes_while_collectors_store(one: LakePipeline, lake: Lake) -> None:
    with opened(lake) as other:
        for old in sent(256, seed=2):
            one.writer.submit(TRACES, old.data).result()
        assemble_all(one)
        [(through,)] = rows(one, "select max(batch) from batches")
        time.sleep(0.1)
        age = RetentionSettings(max_age_days=0.01 / 86_400)
        new, stored = sent(512, seed=3), list[int]()

        def send() -> None:
            stored.extend(other.writer.submit(TRACES, b.data).result().items for b in new)

        sender = threading.Thread(target=send)
        sender.start()
        until(lambda: len(stored) > 0)
        done = LakeRetention(one.lake, one.writer, age).round(time.time_ns())
        sender.join()
        assert done.spans > 0
        assert stored == [b.spans for b in new]  # nobody was refused
        assert rows(one, f"select count(*) from batches where batch <= {through}") == [(0,)]
        assert rows(one, f"select count(*) from requests where batch <= {through}") == [(0,)]
        assert rows(one, "select sum(spans) - (select count(*) from spans) from batches") == [(0,)]
        # A collector does not rely on shapes and sources that went.
        for again in sent(64, seed=4):
            one.writer.submit(TRACES, again.data).result()
        assert rows(one, "select count(*) from v_spans where service is null or stage is null") == [
            (0,)
        ]


def test_who_is_erased_is_in_no_file(one: LakePipeline, lake: Lake, objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for trace, user, tenant in ((1, _USER, _TENANT), (2, "bob@example.com", "other"), (3, _USER, _TENANT)):  # fmt: skip
        root, call = chat(trace, start_ms=(time.time_ns() - T0_NS) // MS)
        named = {"user.id": user, "tenant.id": tenant, "app.label": f"of {tenant}"}
        root.attributes.extend(span(1, 1, attributes=named).attributes)
        one.writer.submit(TRACES, body([root, call], {"team": tenant})).result()
        if trace == 2:
            assemble_all(one)
    one.writer.submit(METRICS, points(gauge("queue", 1.0, customer=_TENANT))).result()
    # The third trace is in the memory of the assembler when it is erased.
    one._read_on()
    [(before,)] = rows(one, "select count(*) from v_requests")
    done = forget_in_lake(one.lake, tenant=_TENANT)
    assert (done.traces, done.requests, done.points, done.found_rows) == (2, 1, 1, 0)
    assemble_all(one)
    assert rows(one, f"select count(*) from v_requests where tenant = '{_TENANT}'") == [(1,)]
    maintain(one.lake, kept_s=0.0)
    assert rows(one, f"select count(*) from v_requests where tenant = '{_TENANT}'") == [(0,)]
    assert rows(one, "select count(*) from v_requests") == [(before - 1,)]
    assemble_all(one)
    assert maintain(one.lake, kept_s=0.0, orphaned_s=0.0).ended_erasings == 1
    assert not in_files(objects, _TENANT)
    assert not in_catalog(lake, _TENANT)
    assert in_files(objects, "other")
    assert rows(one, "select count(*) from v_requests where tenant = 'other'") == [(1,)]


def test_minutes_are_folded_once_by_whoever_maintains(
    one: LakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollups, "OPEN_NS", 0)
    early = chat(9, start_ms=(time.time_ns() - T0_NS) // MS - 120_000)
    one.writer.submit(TRACES, body(early)).result()
    assemble_all(one)
    folded = "select coalesce(sum(requests), 0) from v_rollup_counts"
    old = "select count(*) from v_requests where start < date_trunc('minute', now()) and complete and llm_calls > 0"  # fmt: skip
    for _ in range(2):
        fold(one.lake)
    assert rows(one, folded) == rows(one, old) != [(0,)]


def test_only_the_holder_of_a_lease_notes_what_it_has_sent(one: LakePipeline, lake: Lake) -> None:
    catalog = one.lake.catalog
    first = catalog.claim("first", 30.0, "alerts")
    assert first is not None
    catalog.set_note("alerts", "open: 1", "alerts", first.epoch)
    assert catalog.claim("second", 30.0, "alerts") is None
    expire_lease(lake)
    second = catalog.claim("second", 30.0, "alerts")
    assert second is not None
    with pytest.raises(StoreUnavailable, match="another process"):
        catalog.set_note("alerts", "open: 2", "alerts", first.epoch)
    assert catalog.note("alerts") == "open: 1"
