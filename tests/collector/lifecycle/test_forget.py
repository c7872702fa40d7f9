"""Erasing a user or a tenant takes every trace that carries them, everything made from it, and in a file of its own every byte."""

import shutil
from contextlib import nullcontext
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from overrun.analysis.numbers.quality.store_checks import held
from overrun.cli import app
from overrun.collector.errors import StoreError
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import LOGS, METRICS, TRACES
from overrun.collector.lifecycle.forget import Forgotten, forget, forget_in_file
from overrun.collector.normalise import log_records
from overrun.collector.normalise.log_records import Note
from overrun.collector.store.database import open_store
from tests.collector.conftest import (
    T0_NS,
    body,
    chat,
    full_disk,
    one,
    opened,
    rows,
    span,
    trace_id,
)
from tests.collector.normalise.test_points import gauge
from tests.collector.normalise.test_points import request as points
from tests.conftest import StartServer

TABLES = ("spans", "quarantine", "span_events", "span_links", "span_notes", "requests", "llm_calls")


def fill(pipeline: Pipeline) -> None:
    """Requests of two users of two tenants, with something in every table for the first."""
    for trace, user, tenant in (
        (1, "ada@example.com", "acme-marker"),
        (2, "bob@example.com", "acme-marker"),
        (3, "bob@example.com", "other-marker"),
    ):
        root, call = chat(trace)
        root.attributes.extend(
            span(
                1,
                1,
                attributes={
                    "user.id": user,
                    "tenant.id": tenant,
                    "app.label": f"note-of-{user.partition('@')[0]}",
                },
            ).attributes
        )
        call.events.add(name="e")
        call.links.add(trace_id=b"t" * 16, span_id=b"s" * 8)
        odd = span(trace, 9)
        odd.end_time_unix_nano = 0
        pipeline.writer.submit(TRACES, body([root, call, odd])).result(120)
        note = Note(int.from_bytes(trace_id(trace)[:8]), trace, 2, T0_NS, "stop")
        pipeline.writer.submit(LOGS, log_records.pack([note])).result(120)
    pipeline.drain()


def left(pipeline: Pipeline) -> dict[str, set[int]]:
    return {
        t: {int(n) for (n,) in rows(pipeline, f"select distinct trace_lo from {t}")} for t in TABLES
    }


@pytest.mark.parametrize(
    ("whom", "stays"),
    [
        ({"user": "ada@example.com"}, {2, 3}),
        ({"user": "bob@example.com"}, {1}),
        ({"tenant": "acme-marker"}, {3}),
        ({"tenant": "nobody"}, {1, 2, 3}),
    ],
)
def test_every_trace_of_a_user_or_tenant_goes_and_no_other(
    pipeline: Pipeline, whom: dict[str, str], stays: set[int]
) -> None:
    fill(pipeline)
    done = pipeline.writer.call(lambda c: forget(c, pipeline.store.salt(), **whom)).result(120)
    gone = 3 - len(stays)
    assert done == Forgotten(traces=gone, spans=2 * gone, requests=gone)
    assert left(pipeline) == dict.fromkeys(TABLES, stays)
    assert (
        one(pipeline, "select count(*) from span_values where seq not in (select seq from spans)")
        == 0
    )
    with pipeline.store.reading() as con:
        assert held(con).whole, "what was erased is not taken for lost"


def test_the_minutes_of_a_tenant_go_too(pipeline: Pipeline) -> None:
    row = "select 1 as minute_ns, 's' as service, t as tenant, 'chat' as workload, 1 as requests, 0 as errors from (values ('acme-marker'), ('other')) v(t)"
    pipeline.writer.call(lambda c: c.execute(f"insert into rollup_counts by name {row}")).result(
        120
    )
    pipeline.writer.call(lambda c: forget(c, pipeline.store.salt(), tenant="acme-marker")).result(
        120
    )
    assert rows(pipeline, "select tenant from rollup_counts") == [("other",)]


def test_a_tenant_whose_name_is_an_address_is_stored_as_a_hash_and_found_by_its_name(
    pipeline: Pipeline,
) -> None:
    mail = "ann@example.com"
    root = span(1, 1, attributes={"tenant.id": mail, "http.route": "/chat"})
    pipeline.writer.submit(TRACES, body([root, span(2, 2)])).result(30)
    pipeline.drain()
    [(kept,)] = rows(pipeline, "select distinct tenant from spans where tenant is not null")
    assert kept.startswith("[text: 15 characters, ")
    done = pipeline.between_rounds(lambda c: forget(c, pipeline.store.salt(), tenant=mail))
    assert done.spans == 1
    assert one(pipeline, "select count(*) from spans") == 1


def test_a_user_may_be_named_by_the_hash_that_the_views_show(pipeline: Pipeline) -> None:
    fill(pipeline)
    shown = one(
        pipeline, f"select user_hash from v_requests where trace_id = '{trace_id(1).hex()}'"
    )
    assert (
        pipeline.writer.call(lambda c: forget(c, pipeline.store.salt(), user=shown))
        .result(120)
        .traces
        == 1
    )


def test_no_byte_of_it_stays_in_a_file_and_the_rest_works_on(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with opened(path) as pipeline:
        fill(pipeline)
    assert b"note-of-ada" in path.read_bytes()
    assert forget_in_file(path, user="ada@example.com").traces == 1
    content = b"".join(p.read_bytes() for p in tmp_path.iterdir())
    assert (b"note-of-ada" in content, b"note-of-bob" in content) == (False, True)
    assert {p.name for p in tmp_path.iterdir()} == {"t.db", "t.db.audit.jsonl"}
    with opened(path) as pipeline:
        assert left(pipeline)["requests"] == {2, 3}
        assert pipeline.writer.submit(TRACES, body(chat(4))).result(120).items == 2
        pipeline.drain()
        assert one(pipeline, "select count(*) from v_requests") == 3


def test_on_a_full_disk_erasing_reports_how_far_it_came_and_ends_next_time(tmp_path: Path) -> None:
    """The log, the checkpoint and the copy meet the limit one after the other."""
    whole = tmp_path / "whole.db"
    with opened(whole) as pipeline:
        fill(pipeline)
    size = whole.stat().st_size
    seen = []
    for most in (0, 4_096, size // 4, size):
        folder = tmp_path / str(most)
        folder.mkdir()
        path = Path(shutil.copy(whole, folder / "t.db"))
        erased = pytest.raises(StoreError) if most < size else nullcontext()
        with full_disk(most), erased as failed:
            forget_in_file(path, user="ada@example.com")
        assert not list(folder.glob("*.rewritten*"))
        seen.append(str(failed.value) if failed is not None else "")
        with opened(path) as pipeline:
            stays = left(pipeline)
        assert set(stays["requests"]) == ({1, 2, 3} if "nothing was erased" in seen[-1] else {2, 3})
        assert forget_in_file(path, user="ada@example.com").found_bytes == 0
        assert b"note-of-ada" not in b"".join(p.read_bytes() for p in folder.iterdir())
    assert [text.partition(" ")[0] for text in seen] == ["nothing", "the", "the", ""]
    assert all("Make room" in text for text in seen[:3])


def test_the_command_erases_from_a_file_and_through_a_server(
    tmp_path: Path, start_server: StartServer
) -> None:
    path = tmp_path / "t.db"
    with opened(path) as pipeline:
        fill(pipeline)
    cli = CliRunner()
    said = cli.invoke(app, ["store", "forget", "--user", "ada@example.com", "--db", str(path)])
    erased = "erased 1 trace: 2 spans, 1 request\n"
    searched = "searched for the name afterwards: found in 0 rows of the tables"
    exported = "files of `overrun store export --folder` are replaced by its next round, except for hours of which retention has deleted a part: erase there yourself\n"
    assert (said.exit_code, said.output) == (
        0,
        f"{erased}{searched} and in 0 places of the file's bytes\n{exported}",
    )
    for arguments in (
        ["--user", "a"],
        ["--user", "a", "--tenant", "b", "--db", "x"],
        ["--db", str(path)],
    ):
        assert cli.invoke(app, ["store", "forget", *arguments]).exit_code == 2
    server = start_server(path)
    assert (
        cli.invoke(app, ["store", "forget", "--tenant", "acme-marker", "--url", server.http]).output
        == f"{erased}{searched}\n{exported}"
    )
    asked = {"url": f"{server.http}/v1/forget", "trust_env": False, "verify": False}
    json = "application/json"
    for content, media, status in (
        (b'{"user":"a"}', "text/plain", 415),
        (b"{}", json, 400),
        (b'{"user":"a","tenant":"b"}', json, 400),
    ):
        assert (
            httpx.post(**asked, content=content, headers={"content-type": media}).status_code
            == status
        )  # type: ignore[arg-type]
    got = httpx.get(**asked)  # type: ignore[arg-type]
    assert (got.status_code, got.headers["allow"]) == (405, "POST")
    assert server.stop() == 0
    with opened(path) as pipeline:
        assert left(pipeline)["spans"] == {3}


def named_everywhere(path: Path) -> None:
    """A store in which a tenant's name stands in spans, sources, shapes (a route), metric points and rollups, beside another tenant's."""
    with opened(path) as pipeline:
        for trace, tenant in ((1, "acme-marker"), (2, "other-marker")):
            root = span(
                trace,
                1,
                kind=2,
                attributes={
                    "tenant.id": tenant,
                    "http.route": f"/{tenant}/chat",
                    f"{tenant}.key": 1,
                },
            )
            root.events.add(name=f"event {tenant}")
            resource = {"service.name": f"shop-{tenant}", "tenant.id": tenant}
            pipeline.writer.submit(TRACES, body([root], resource)).result(120)
            sent = points(gauge("vllm:num_requests_waiting", 1.0, team=tenant))
            pipeline.writer.submit(METRICS, sent).result(120)
        pipeline.drain()
        row = "select 1 as minute_ns, 's' as service, 'acme-marker' as tenant, 'chat' as workload, 1 as requests, 0 as errors"
        pipeline.writer.call(lambda c: c.execute(f"insert into rollup_counts by name {row}"))


def test_no_table_keeps_the_name(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    named_everywhere(path)
    done = forget_in_file(path, tenant="acme-marker")
    assert (done.traces, done.spans, done.points) == (1, 1, 1)
    assert (done.found_rows, done.found_bytes) == (0, 0)
    assert b"acme-marker" not in b"".join(p.read_bytes() for p in tmp_path.iterdir())
    with opened(path) as pipeline:
        assert one(pipeline, "select count(*) from sources") == 2  # of spans, of points
        assert one(pipeline, "select count(*) from shapes") == 1
        assert one(pipeline, "select sum(points) from batches") == 1
        with pipeline.store.reading() as con:
            assert held(con).whole


def test_what_still_holds_the_name_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with opened(path) as pipeline:
        pipeline.writer.submit(
            TRACES, body([span(1, 1, attributes={"x.y": "acme-marker"})])
        ).result(120)
    assert forget_in_file(path, tenant="acme-marker").found_rows == 1


def test_a_running_server_forgets_what_waits_in_memory_too(pipeline: Pipeline) -> None:
    both = {"service.name": "acme-marker"}
    root = chat(1)[0]
    root.attributes.extend(span(1, 1, attributes={"tenant.id": "acme-marker"}).attributes)
    pipeline.writer.submit(TRACES, body([root], both)).result(120)
    salt = pipeline.store.salt()
    done = pipeline.between_rounds(lambda c: forget(c, salt, tenant="acme-marker"))
    assert (done.traces, done.requests) == (1, 0)
    pipeline.drain()
    assert one(pipeline, "select count(*) from requests") == 0
    # The same source and shape come again: they are stored again, once.
    pipeline.writer.submit(TRACES, body([span(2, 1), chat(3)[0]], both)).result(120)
    pipeline.drain()
    assert rows(pipeline, "select service from v_spans") == [("acme-marker",)] * 2
    assert one(pipeline, "select count(*) from sources") == 1


def test_a_link_is_followed_and_mode_is_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "real" / "t.db", tmp_path / "link.db"
    with opened(real) as pipeline:
        fill(pipeline)
    real.chmod(0o640)
    link.symlink_to(real)
    assert forget_in_file(link, user="ada@example.com").traces == 1
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert b"note-of-ada" not in real.read_bytes()


def test_a_server_may_have_deleted_rows_whose_bytes_stay(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with opened(path) as pipeline:
        fill(pipeline)
        salt = pipeline.store.salt()
        pipeline.between_rounds(lambda c: forget(c, salt, user="ada@example.com"))
    done = forget_in_file(path, user="ada@example.com")
    assert (done.traces, done.found_bytes) == (0, 0)
    assert b"note-of-ada" not in path.read_bytes()


def test_what_a_killed_process_left_is_removed_at_start(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with opened(path) as pipeline:
        fill(pipeline)
    (tmp_path / "t.db.tmp").mkdir()
    left_behind = [
        "t.db.rewritten",
        "t.db.rewritten.wal",
        "t.db.export-x1",
        "t.db.tmp/duckdb_temp_0",
    ]
    others = ["t2.db.rewritten", "t.db.mine"]
    for name in left_behind + others:
        (tmp_path / name).write_bytes(b"acme")
    with opened(path):
        assert not [name for name in left_behind if (tmp_path / name).exists()]
    assert all((tmp_path / name).exists() for name in others)


def test_a_new_file_is_for_its_user_alone(tmp_path: Path) -> None:
    open_store(tmp_path / "t.db", create=True).close()
    assert (tmp_path / "t.db").stat().st_mode & 0o777 == 0o600
