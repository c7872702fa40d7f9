"""A file is moved into a lake whole, once, and beside what the lake has; `status` and `verify` show what is there."""

import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from overrun.analysis.assembly.assemble import assemble
from overrun.cli import app
from overrun.collector.config import PrivacySettings
from overrun.collector.errors import StoreError
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import TRACES
from overrun.collector.lifecycle import move_out
from overrun.collector.lifecycle.lake_status import compact, status, verify
from overrun.collector.lifecycle.move_in import read_parts
from overrun.collector.lifecycle.move_out import write_parts
from overrun.collector.store.database import open_store
from tests.benchmarks import payload
from tests.lake.checks.opened import QUIET, opened, rows
from tests.lake.postgres import Postgres
from tests.lake.processes import Lake


def test_a_file_is_moved_into_a_lake_whole_and_once(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(move_out, "PART_ROWS", 300)
    # In memory: this DuckDB writes no file of ours.
    file = Pipeline(open_store(Path(":memory:"), create=True), QUIET, PrivacySettings(), assemble)
    sent = payload.make(512, end_ns=time.time_ns(), spans_per_body=128, seed=3).bodies
    for body in sent:
        file.writer.submit(TRACES, body.data).result()
    file.drain()
    parts = tmp_path / "parts"
    whole = write_parts(file.store, parts)
    assert whole.parts > 2
    lake = Lake(postgres, "moved", tmp_path)
    with opened(lake) as one:
        # The lake has telemetry of its own, and collectors that go on.
        own = payload.make(100, end_ns=time.time_ns() - 3_600 * 10**9, seed=4).bodies[0]
        one.writer.submit(TRACES, own.data).result()
        (parts / "000001" / "part.json").rename(tmp_path / "part.json")
        with pytest.raises(StoreError, match="does not hold a whole file"):
            read_parts(parts, one.lake)
        assert write_parts(file.store, parts) == whole  # it goes on where it was interrupted
        done = read_parts(parts, one.lake)
        assert done.new_parts == whole.parts
        again = read_parts(parts, one.lake)
        assert (again.new_parts, again.rows) == (0, done.rows)
        # A body that the file had stored is known.
        assert one.writer.submit(TRACES, sent[0].data).result().duplicate
        one.writer.submit(TRACES, payload.make(64, end_ns=time.time_ns(), seed=5).bodies[0].data).result()  # fmt: skip
        assert all(check.wrong == 0 for check in verify(one.lake))
        query = "select * exclude (row_key) from v_requests order by all"
        assert rows(one, query) == rows(file, query)
        before = {table.name: table.files for table in status(one.lake).tables}
        compact(one.lake)
        after = status(one.lake)
        assert {table.name: table.files for table in after.tables}["spans"] < before["spans"]
        said = CliRunner().invoke(app, ["lake", "verify", "--store", lake.address])
        assert said.exit_code == 0, said.output
        assert "ok" in said.output
        path, _ = one.lake.catalog.files()[0]
        (tmp_path / "data" / path).unlink()
        assert verify(one.lake)[0].wrong == 1
    file.close()


def test_a_wrong_address_or_folder_makes_no_lake(postgres: Postgres, tmp_path: Path) -> None:
    lake = Lake(postgres, "nowhere", tmp_path)
    for words in (["lake", "status"], ["lake", "verify"], ["lake", "compact"], ["forget", "--user", "u"]):  # fmt: skip
        said = CliRunner().invoke(app, [*words, "--store", lake.address])
        assert (said.exit_code, "has no lake" in said.output) == (2, True), said.output
    said = CliRunner().invoke(app, ["migrate", str(tmp_path / "typo"), "--into", lake.address])
    assert "does not hold a whole file" in said.output
    said = CliRunner().invoke(app, ["lake", "status", "--store", lake.address])
    assert "has no lake" in said.output


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ((), "give --db FILE or FOLDER"),
        (("--db", "x.db", "--into", "ducklake:postgresql://h/d?data=/f"), "--into FOLDER"),
        (("--db", "x.db", "--into", " "), "--into is blank"),
        (("parts", "--into", "elsewhere"), "use ducklake:postgresql://"),
    ],
)
def test_a_move_that_cannot_be_says_what_to_give(given: tuple[str, ...], remedy: str) -> None:
    said = CliRunner().invoke(app, ["migrate", *given])
    assert said.exit_code == 2
    assert remedy in said.output
