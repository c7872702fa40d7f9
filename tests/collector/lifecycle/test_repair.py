"""A damaged file is called what it is, and what can still be read of it is saved."""

import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from overrun.analysis.numbers.quality.store_checks import held
from overrun.cli import app
from overrun.collector.errors import StoreError, StoreLocked
from overrun.collector.ingest.writer import TRACES
from overrun.collector.lifecycle.repair import repair
from overrun.collector.store.database import open_store
from tests.collector.conftest import body, chat, opened, span
from tests.conftest import StartServer

BLOCK, FIRST_BLOCK = 65_536, 12_288


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 12,000 spans in four row groups, each with blocks of its own: one is made at the end of each process."""
    path = tmp_path_factory.mktemp("whole") / "whole.db"
    for first in (1, 4, 7, 10):
        with opened(path) as pipeline:
            for trace in range(first, first + 3):
                spans = [span(trace, n, name=f"{trace} {n}") for n in range(3, 1_001)]
                pipeline.writer.submit(TRACES, body([*chat(trace), *spans])).result(120)
            pipeline.drain()
    return path


@pytest.fixture
def whole(made_once: Path, tmp_path: Path) -> Path:
    """A copy of it, for one test."""
    return Path(shutil.copy(made_once, tmp_path))


def damaged(path: Path, at: int, name: str = "damaged.db") -> Path:
    copy = path.with_name(name)
    shutil.copy(path, copy)
    with copy.open("r+b") as file:
        file.seek(at)
        file.write(bytes(range(64)))
    return copy


@pytest.mark.parametrize("at", [40, 4_096 + 8])
def test_a_damaged_header_is_not_called_locked(whole: Path, at: int) -> None:
    with pytest.raises(StoreError, match=r"header of .* is damaged.*--repair NEW\.db") as found:
        open_store(damaged(whole, at), create=False)
    assert not isinstance(found.value, StoreLocked)


def test_a_file_that_was_cut_short_is_called_so(whole: Path) -> None:
    os.truncate(whole, whole.stat().st_size // 2)
    with pytest.raises(StoreError, match=r"has been cut short|is damaged"):
        open_store(whole, create=False)


def test_damage_of_any_block_is_named_and_the_rest_is_saved(whole: Path) -> None:
    with open_store(whole, create=False).reading() as con:
        [(all_spans,)] = con.execute("select count(*) from spans").fetchall()
        asked = "select seq, hash(s) from spans s order by seq"
        truth = dict(con.execute(asked).fetchall())
    saved_some = 0
    for number in range(0, (whole.stat().st_size - FIRST_BLOCK) // BLOCK, 3):
        broken = damaged(whole, FIRST_BLOCK + number * BLOCK + 2_000)
        out = whole.with_name(f"saved {number}.db")
        try:
            done = repair(broken, out)
        except StoreError as error:  # the list of tables itself
            assert "is damaged" in str(error)
            assert not out.exists()
            continue
        spans = next(t for t in done.tables if t.table == "spans")
        with open_store(out, create=False).reading() as con:
            found = dict(con.execute(asked).fetchall())
            assert found.items() <= truth.items()
            assert len(found) == spans.rows
            if spans.lost is not None:
                assert spans.rows + spans.lost == all_spans
            if spans.rows < all_spans and found:
                assert not held(con).whole
        saved_some += spans.lost not in (0, None) and spans.rows > 0
        out.unlink()
    assert saved_some


def test_the_command_says_what_was_saved(whole: Path, tmp_path: Path) -> None:
    cli, out = CliRunner(), tmp_path / "new.db"
    said = cli.invoke(app, ["doctor", "--db", str(whole), "--repair", str(out)])
    assert (said.exit_code, "everything could be read" in said.output) == (0, True)
    assert "spans: saved 12,000 rows, lost 0" in said.output
    with open_store(out, create=False).reading() as con:
        assert held(con).whole
    again = cli.invoke(app, ["doctor", "--db", str(whole), "--repair", str(out)])
    assert (again.exit_code, "exists already" in again.stderr) == (2, True)


def test_a_log_that_is_cut_or_damaged_is_said(
    tmp_path: Path, start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    import httpx

    server = start_server(tmp_path / "t.db")
    for trace in range(1, 6):
        httpx.post(
            f"{server.http}/v1/traces",
            content=body(chat(trace)),
            headers={"content-type": "application/x-protobuf"},
            trust_env=False,
            timeout=60,
        ).raise_for_status()
    server.kill()
    path, wal = tmp_path / "t.db", tmp_path / "t.db.wal"
    size = wal.stat().st_size
    for name in ("whole", "cut", "broken"):
        shutil.copy(path, tmp_path / f"{name}.db")
        shutil.copy(wal, tmp_path / f"{name}.db.wal")
    open_store(tmp_path / "whole.db", create=False).close()
    assert "ends within an entry" not in caplog.text
    os.truncate(tmp_path / "cut.db.wal", size - 30)
    open_store(tmp_path / "cut.db", create=False).close()
    assert "cut.db.wal ends within an entry" in caplog.text
    with (tmp_path / "broken.db.wal").open("r+b") as file:
        file.seek(size - 2_000)
        file.write(bytes(64))
    with pytest.raises(StoreError, match=r"the log .*broken\.db\.wal is damaged.*--repair"):
        open_store(tmp_path / "broken.db", create=False)
    done = repair(tmp_path / "broken.db", tmp_path / "out.db")
    spans = next(t.rows for t in done.tables if t.table == "spans")
    assert 0 < done.log_bytes_lost < 8_000
    assert 0 < spans < 10
