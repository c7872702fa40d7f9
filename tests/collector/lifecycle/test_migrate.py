"""A file of an earlier build becomes one of this build, with everything that it held; what cannot be migrated is left as it was."""

from pathlib import Path

import duckdb
import pytest
import zstandard

from overrun.collector.errors import StoreError, StoreLocked, StoreMissing, StoreVersion
from overrun.collector.ingest.writer import TRACES
from overrun.collector.lifecycle import migrate as migration
from overrun.collector.lifecycle.migrate import migrate
from overrun.collector.store import database
from overrun.collector.store.database import SCHEMA_VERSION, open_store, steps
from tests.collector.conftest import body, chat, one, opened, rows, trace_id
from tests.conftest import StartServer

# Written by the builds that had these schemas: two requests, three batches, one gauge.
EARLIER = sorted((Path(__file__).parents[1] / "data").glob("schema_*.db.zst"))


@pytest.fixture(params=EARLIER, ids=lambda p: p.name)
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "t.db"
    path.write_bytes(zstandard.ZstdDecompressor().decompress(request.param.read_bytes(), max_output_size=1 << 26))
    return path


def layout(path: Path) -> list[tuple[object, ...]]:
    """Every column of every table and view."""
    opened_ = open_store(path, create=True)
    try:
        found = opened_.connection.execute("select table_name, column_name, data_type, is_nullable from duckdb_columns() order by all").fetchall()
        return [*found, *opened_.connection.execute("select function_name from duckdb_functions() where not internal order by all").fetchall()]
    finally:
        opened_.close()


def test_steps_are_numbered_without_a_gap_up_to_this_version() -> None:
    assert list(steps()) == list(range(1, SCHEMA_VERSION + 1))
    assert len(EARLIER) == SCHEMA_VERSION - 1, "keep a file written by the build before the schema changed in tests/collector/data"


def test_an_earlier_file_is_refused_until_it_is_migrated_and_then_has_everything(earlier: Path) -> None:
    with pytest.raises(StoreVersion, match="overrun migrate"):
        open_store(earlier, create=False)
    before, after = migrate(earlier)
    assert (before < after, after) == (True, SCHEMA_VERSION)
    with opened(earlier) as pipeline:
        assert rows(pipeline, "select trace_id, e2e_ms from v_requests order by start") == [(trace_id(1).hex(), 100.0), (trace_id(2).hex(), 100.0)]
        assert rows(pipeline, "select indicator, value from v_metric_points") == [("queue_depth", 3.0)]
        assert pipeline.writer.submit(TRACES, body(chat(3))).result(120).items == 2
        pipeline.drain()
        assert one(pipeline, "select count(*) from v_requests") == 3
        assert pipeline.writer.submit(TRACES, body([*chat(1), *chat(2, start_ms=500)])).result(120).items in (0, 4)


def test_a_migrated_file_is_laid_out_like_a_new_one(earlier: Path, tmp_path: Path) -> None:
    migrate(earlier)
    assert layout(earlier) == layout(tmp_path / "new.db")


def test_migrating_twice_does_nothing_the_second_time(earlier: Path) -> None:
    migrate(earlier)
    content = earlier.read_bytes()
    assert migrate(earlier) == (SCHEMA_VERSION, SCHEMA_VERSION)
    assert earlier.read_bytes() == content


def test_a_step_that_fails_leaves_the_file_as_it_was(earlier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with duckdb.connect(str(earlier)) as connection:
        before = connection.execute("select table_name, column_name from duckdb_columns() order by all").fetchall()
    monkeypatch.setattr(migration, "steps", lambda: {**steps(), SCHEMA_VERSION + 1: "create table half (a int); select no_such_function()"})
    with pytest.raises(StoreError, match=r"could not be migrated and is as it was: .*no_such_function"):
        migrate(earlier)
    with duckdb.connect(str(earlier)) as connection:
        assert connection.execute("select table_name, column_name from duckdb_columns() order by all").fetchall() == before
        assert int(database.version_of(connection, earlier)) < SCHEMA_VERSION


def test_what_cannot_be_migrated_is_said(tmp_path: Path, start_server: StartServer) -> None:
    path = tmp_path / "t.db"
    with pytest.raises(StoreMissing, match="no database at"):
        migrate(path)
    start_server(path)
    with pytest.raises(StoreLocked, match="--url http"):
        migrate(path)


def test_a_file_of_a_later_build_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    open_store(path, create=True).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute("update meta set value = '999' where key = 'schema_version'")
    with pytest.raises(StoreVersion, match="use a newer Overrun"):
        migrate(path)
