"""Erasing a user or a tenant takes every trace that carries them, everything made from it, and in a file of its own every byte."""

from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from overrun.analysis.numbers.quality.store_checks import held
from overrun.cli import app
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import LOGS, TRACES
from overrun.collector.lifecycle.forget import Forgotten, forget, forget_in_file
from overrun.collector.normalise import log_records
from overrun.collector.normalise.log_records import Note
from tests.collector.conftest import T0_NS, body, chat, one, opened, rows, span, trace_id
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
    assert [p.name for p in tmp_path.iterdir()] == ["t.db"]
    with opened(path) as pipeline:
        assert left(pipeline)["requests"] == {2, 3}
        assert pipeline.writer.submit(TRACES, body(chat(4))).result(120).items == 2
        pipeline.drain()
        assert one(pipeline, "select count(*) from v_requests") == 3


def test_the_command_erases_from_a_file_and_through_a_server(
    tmp_path: Path, start_server: StartServer
) -> None:
    path = tmp_path / "t.db"
    with opened(path) as pipeline:
        fill(pipeline)
    cli = CliRunner()
    said = cli.invoke(app, ["forget", "--user", "ada@example.com", "--db", str(path)])
    assert (said.exit_code, said.output) == (0, "erased 1 trace: 2 spans, 1 request\n")
    for arguments in (
        ["--user", "a"],
        ["--user", "a", "--tenant", "b", "--db", "x"],
        ["--db", str(path)],
    ):
        assert cli.invoke(app, ["forget", *arguments]).exit_code == 2
    server = start_server(path)
    assert (
        cli.invoke(app, ["forget", "--tenant", "acme-marker", "--url", server.http]).output
        == "erased 1 trace: 2 spans, 1 request\n"
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
    assert server.stop() == 0
    with opened(path) as pipeline:
        assert left(pipeline)["spans"] == {3}
