"""A file of an earlier build becomes one of this build, with everything that it held; what cannot be migrated is left as it was."""

from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
import zstandard

from overrun.analysis.numbers.quality.store_checks import held, said_of, store_checks
from overrun.analysis.numbers.window import Window
from overrun.collector.errors import StoreError, StoreLocked, StoreMissing, StoreVersion
from overrun.collector.ingest.writer import TRACES
from overrun.collector.lifecycle import migrate as migration
from overrun.collector.lifecycle.migrate import Migrated, migrate
from overrun.collector.store import database
from overrun.collector.store.answers import BY_EXECUTE
from overrun.collector.store.database import SCHEMA_VERSION, open_store, steps
from tests.collector.conftest import body, chat, one, opened, rows, trace_id
from tests.conftest import StartServer

# Written by the builds that had these schemas: two requests, three batches, one gauge.
EARLIER = sorted((Path(__file__).parents[1] / "data").glob("schema_*.db.zst"))


@pytest.fixture(params=EARLIER, ids=lambda p: p.name)
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if BY_EXECUTE:
        pytest.skip("DuckDB 1.5 reads no file that DuckDB 2 has written, as these are")
    path = tmp_path / "t.db"
    path.write_bytes(
        zstandard.ZstdDecompressor().decompress(request.param.read_bytes(), max_output_size=1 << 26)
    )
    return path


def layout(path: Path) -> list[tuple[object, ...]]:
    """Every column of every table and view."""
    opened_ = open_store(path, create=True)
    try:
        found = opened_.connection.execute(
            "select table_name, column_name, data_type, is_nullable from duckdb_columns() order by all"
        ).fetchall()
        return [
            *found,
            *opened_.connection.execute(
                "select function_name from duckdb_functions() where not internal order by all"
            ).fetchall(),
        ]
    finally:
        opened_.close()


def test_steps_are_numbered_without_a_gap_up_to_this_version() -> None:
    assert list(steps()) == list(range(1, SCHEMA_VERSION + 1))
    assert len(EARLIER) == SCHEMA_VERSION - 1, (
        "keep a file written by the build before the schema changed in tests/collector/data"
    )


def test_an_earlier_file_is_refused_until_it_is_migrated_and_then_has_everything(
    earlier: Path,
) -> None:
    with pytest.raises(StoreVersion, match="overrun store migrate"):
        open_store(earlier, create=False)
    done = migrate(earlier)
    assert (done.before < done.after, done.after, done.incomplete_commits) == (
        True,
        SCHEMA_VERSION,
        0,
    )
    with opened(earlier) as pipeline:
        assert rows(pipeline, "select trace_id, e2e_ms from v_requests order by start") == [
            (trace_id(1).hex(), 100.0),
            (trace_id(2).hex(), 100.0),
        ]
        assert rows(pipeline, "select indicator, value from v_metric_points") == [
            ("queue_depth", 3.0)
        ]
        assert pipeline.writer.submit(TRACES, body(chat(3))).result(120).items == 2
        pipeline.drain()
        assert one(pipeline, "select count(*) from v_requests") == 3
        assert pipeline.writer.submit(TRACES, body([*chat(1), *chat(2, start_ms=500)])).result(
            120
        ).items in (0, 4)


def test_a_migrated_file_is_laid_out_like_a_new_one(earlier: Path, tmp_path: Path) -> None:
    migrate(earlier)
    assert layout(earlier) == layout(tmp_path / "new.db")


def test_migrating_twice_does_nothing_the_second_time(earlier: Path) -> None:
    migrate(earlier)
    content = earlier.read_bytes()
    assert migrate(earlier) == Migrated(SCHEMA_VERSION, SCHEMA_VERSION)
    assert earlier.read_bytes() == content


def test_a_step_that_fails_leaves_the_file_as_it_was(
    earlier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with duckdb.connect(str(earlier)) as connection:
        before = connection.execute(
            "select table_name, column_name from duckdb_columns() order by all"
        ).fetchall()
    monkeypatch.setattr(
        migration,
        "steps",
        lambda: {
            **steps(),
            SCHEMA_VERSION + 1: "create table half (a int); select no_such_function()",
        },
    )
    with pytest.raises(
        StoreError, match=r"could not be migrated and is unchanged: .*no_such_function"
    ):
        migrate(earlier)
    with duckdb.connect(str(earlier)) as connection:
        assert (
            connection.execute(
                "select table_name, column_name from duckdb_columns() order by all"
            ).fetchall()
            == before
        )
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


# --- what a version before 0.1.0 lost ---


def damaged(path: Path) -> None:
    """The file of the build before, with the second commit's rows gone and copies of the first one's in their place."""
    [packed] = [p for p in EARLIER if p.name == "schema_9.db.zst"]
    content = zstandard.ZstdDecompressor().decompress(packed.read_bytes(), max_output_size=1 << 26)
    path.write_bytes(content)
    with duckdb.connect(str(path)) as connection:
        for table in ("spans", "span_values"):
            connection.execute(f"delete from {table} where seq >> 24 = 2")
            connection.execute(f"insert into {table} select * from {table} where seq >> 24 = 1")


def test_a_file_that_lacks_acknowledged_spans_is_marked_and_its_copies_go(tmp_path: Path) -> None:
    damaged(tmp_path / "t.db")
    done = migrate(tmp_path / "t.db")
    assert (done.incomplete_commits, done.missing_spans) == (2, 2)
    with opened(tmp_path / "t.db") as pipeline:
        assert rows(
            pipeline, "select batch, missing, misplaced from v_incomplete_commits order by batch"
        ) == [(1, 0, 2), (2, 2, 0)]
        assert one(pipeline, "select count(*) from spans") == 2
        assert pipeline.writer.submit(TRACES, body(chat(2, start_ms=500))).result(120).items == 2, (
            "what was lost may come again"
        )
        with pipeline.store.reading() as con:
            found = held(con)
            assert (found.lost_before, found.lost, found.copies, found.whole) == (2, 0, 0, False)
            assert "2 acknowledged spans lost by a version before 0.1.0" in said_of(found)
            [check] = store_checks(con, Window())
            assert (check.check, check.status) == ("incomplete_commits", "fail")
            assert not store_checks(con, Window(end=datetime(2026, 1, 1, tzinfo=UTC))), (
                "nothing of that time is missing"
            )


def test_what_was_erased_before_is_not_taken_for_lost(tmp_path: Path) -> None:
    damaged(tmp_path / "t.db")
    with duckdb.connect(str(tmp_path / "t.db")) as connection:
        connection.execute(
            "delete from spans where rowid in (select max(rowid) from spans group by seq)"
        )  # the copies
        connection.execute("delete from spans where seq in (select max(seq) from spans)")
    assert migrate(tmp_path / "t.db").incomplete_commits == 0
    with opened(tmp_path / "t.db") as pipeline, pipeline.store.reading() as con:
        assert held(con).whole


def test_rows_that_go_missing_from_now_on_are_found(tmp_path: Path) -> None:
    with opened(tmp_path / "t.db") as pipeline:
        pipeline.writer.submit(TRACES, body([*chat(1), *chat(2)])).result(120)
        with pipeline.store.reading() as con:
            assert (
                said_of(held(con))
                == "the file holds every span that was acknowledged: 4 spans of 1 commit"
            )
        pipeline.writer.call(
            lambda connection: connection.execute("delete from spans where rowid = 3")
        ).result(120)
        pipeline.writer.call(
            lambda connection: connection.execute("insert into spans from spans where rowid = 0")
        ).result(120)
        with pipeline.store.reading() as con:
            found = held(con)
            assert (found.lost, found.copies, found.spans) == (1, 1, 4)
