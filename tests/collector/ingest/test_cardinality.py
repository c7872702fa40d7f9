"""Floods of new sources, services, keys, routes and label sets, over ten simulated minutes: tables are bounded, what is put together is counted, and what expires
takes with it what nothing else refers to."""

from pathlib import Path

import pytest

from overrun.analysis.numbers.quality.store_checks import cuts, said_of_cuts
from overrun.collector.config import RetentionSettings
from overrun.collector.ingest import cardinality
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import METRICS, TRACES
from overrun.collector.lifecycle.retention import DAY_NS, Retention
from overrun.collector.store.layout import OTHER
from tests.collector.conftest import body, one, opened, rows, span
from tests.collector.lifecycle.test_retention import Believed, backdate
from tests.collector.normalise.test_points import gauge, request

MINUTES, EACH, SOURCES, SHAPES = 10, 40, 60, 80


@pytest.fixture
def limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline with small limits and a clock that a test moves by `limited.minute`."""
    now = [0.0]
    for name, most in (("NEW_SOURCES", SOURCES), ("NEW_SHAPES", SHAPES)):
        monkeypatch.setattr(f"overrun.collector.ingest.writer.{name}", most)
    allowance = cardinality.Allowance
    monkeypatch.setattr(
        "overrun.collector.ingest.writer.Allowance", lambda most: allowance(most, lambda: now[0])
    )
    with opened(tmp_path / "t.db") as pipeline:
        pipeline.minute = lambda: now.__setitem__(0, now[0] + 60.0)  # type: ignore[attr-defined]
        yield pipeline


def flood(pipeline: Pipeline, minute: int) -> None:
    """Each of so many spans and points has names that no other has."""
    sent = b""
    for i in range(EACH):
        n = minute * EACH + i
        told = {f"key{n}": "a", "http.route": f"/r{n}", "tenant.id": f"t{n}"}
        resource = {"service.name": f"s{n}", "service.instance.id": f"pod{n}"}
        sent += body([span(n + 1, 1, attributes=told)], resource)  # one request, as they follow
    pipeline.writer.submit(TRACES, sent).result(240)
    labels = [gauge("vllm:num_requests_waiting", 1.0, pod=f"{minute}-{i}") for i in range(EACH)]
    pipeline.writer.submit(METRICS, request(*labels)).result(240)


def test_ten_minutes_of_new_names_leave_bounded_tables(limited: Pipeline) -> None:
    normal = body([span(100_000, 1, attributes={"plan": "gold"})], {"service.name": "shop"})
    limited.writer.submit(TRACES, normal).result(240)
    for minute in range(MINUTES):
        flood(limited, minute)
        limited.minute()  # type: ignore[attr-defined]
    assert one(limited, "select count(*) from spans") == MINUTES * EACH + 1
    # Beside the allowed ones: one source for all services that are too many, and a shape of it for each kind of span.
    assert one(limited, "select count(*) from sources") <= SOURCES + 2
    assert one(limited, "select count(*) from shapes") <= SHAPES + 5
    assert one(limited, f"select count(*) from v_spans where service = '{OTHER}'") > 200
    assert limited.writer.tally.value("cut", what="sources") > 200
    assert limited.writer.tally.value("cut", what="shapes") > 200
    # What was known before goes on as it was.
    again = body([span(100_001, 1, attributes={"plan": "gold"})], {"service.name": "shop"})
    limited.writer.submit(TRACES, again).result(240)
    kept = rows(limited, "select service, attributes['plan'] from v_spans where service = 'shop'")
    assert kept == [("shop", "gold")] * 2
    # A new pod of a known service keeps its service.
    pod = body([span(100_002, 1)], {"service.name": "shop", "service.instance.id": "new"})
    limited.writer.submit(TRACES, pod).result(240)
    assert one(limited, "select count(*) from v_spans where service = 'shop'") == 3
    for _ in range(MINUTES):
        limited.minute()  # type: ignore[attr-defined]
    late = body([span(100_003, 1)], {"service.name": "late"})
    limited.writer.submit(TRACES, late).result(240)
    assert one(limited, "select count(*) from v_spans where service = 'late'") == 1


def test_what_was_cut_is_in_the_file_and_doctor_says_so(limited: Pipeline) -> None:
    for minute in range(4):
        flood(limited, minute)
    settings = RetentionSettings(max_age_days=0.0, db_max_size="0")
    kept = Retention(limited.store, limited.writer, settings, Believed())
    for _ in range(2):
        kept.round(1_800_000_000 * 10**9)
    with limited.store.reading() as cursor:
        found = cuts(cursor)
    assert {cut.what: cut.items for cut in found} == {
        "sources": limited.writer.tally.value("cut", what="sources"),
        "shapes": limited.writer.tally.value("cut", what="shapes"),
    }
    assert "spans that lost their attributes" in said_of_cuts(found)
    assert "2027-01-15" in found[0].last


def test_what_expired_telemetry_alone_referred_to_goes_with_it(pipeline: Pipeline) -> None:
    for n in (1, 2):
        sent = body([span(n, 1, attributes={f"key{n}": "a"})], {"service.name": f"s{n}"})
        pipeline.writer.submit(TRACES, sent).result(240)
    pipeline.drain()
    backdate(pipeline, 1, days=40)
    settings = RetentionSettings(max_age_days=30.0, db_max_size="0")
    Retention(pipeline.store, pipeline.writer, settings, Believed()).round(
        one(pipeline, "select max(received_ns) from batches")
    )
    assert rows(pipeline, "select service from sources") == [("s2",)]
    assert rows(pipeline, "select keys from shapes") == [(["key2"],)]
    # Both are known again when they come again, once.
    for n in (1, 2):
        sent = body([span(n, 2, attributes={f"key{n}": "a"})], {"service.name": f"s{n}"})
        pipeline.writer.submit(TRACES, sent).result(240)
    assert rows(pipeline, "select service from sources order by all") == [("s1",), ("s2",)]
    assert one(pipeline, "select count(*) from v_spans where service = 's1'") == 1


def test_hashes_of_bodies_go_after_a_day_and_the_telemetry_stays(pipeline: Pipeline) -> None:
    pipeline.writer.submit(TRACES, body([span(1, 1)])).result(240)
    pipeline.drain()
    newest = one(pipeline, "select max(received_ns) from batches")
    settings = RetentionSettings(max_age_days=30.0, db_max_size="0")
    Retention(pipeline.store, pipeline.writer, settings, Believed()).round(newest + 2 * DAY_NS)
    assert one(pipeline, "select count(*) from bodies") == 0
    assert one(pipeline, "select count(*) from spans") == 1
