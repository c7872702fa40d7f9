"""Which traces of a file are not assembled yet, and that a question about the file assembles them first, or starts no ingest where there are none."""

import threading
from pathlib import Path

import pytest

from overrun.analysis.front import commands
from overrun.analysis.front import question_table as table
from overrun.analysis.front.asked import Asked, Source
from overrun.analysis.front.file_import import take_in
from overrun.collector.config import Settings, load
from overrun.collector.ingest.pipeline import Pipeline
from overrun.collector.ingest.writer import Writer
from overrun.collector.process.steady_clock import SteadyClock
from overrun.collector.store.database import open_store, set_meta
from overrun.collector.store.unassembled import unassembled
from overrun.sample_traces.replay import RECORDINGS_PATH


@pytest.fixture
def held(tmp_path: Path) -> tuple[Path, Settings]:
    """A file with 20 requests, all assembled, and its settings."""
    settings = load(None, environment={}, flags={"collector.db": str(tmp_path / "t.db")})
    recording = RECORDINGS_PATH / "vllm-joined"
    take_in([recording], settings, url=None, progress=lambda at, total: None)
    return tmp_path / "t.db", settings


def requests_of(db: Path, settings: Settings) -> int:
    asked = Asked.read(table.REPORT, {}, Source(settings, db))
    made = commands.here(db, asked, {"with_findings": False})
    return made.window.requests


def test_a_file_with_nothing_to_assemble_is_asked_without_ingest(
    held: tuple[Path, Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    db, settings = held
    store = open_store(db, create=False)
    assert unassembled(store).num_rows == 0
    store.close()

    def no(*_: object, **__: object) -> None:
        raise AssertionError("an ingest was started")

    for what in (Pipeline, Writer, SteadyClock):
        monkeypatch.setattr(what, "__init__", no)
    before = set(threading.enumerate())
    assert requests_of(db, settings) == 20
    started = set(threading.enumerate()) - before
    assert not [one for one in started if one.name.startswith("overrun-")]


def test_what_an_ended_process_left_is_assembled_before_the_answer(
    held: tuple[Path, Settings],
) -> None:
    db, settings = held
    store = open_store(db, create=False)
    store.connection.execute("delete from requests")
    set_meta(store.connection, "assembled_through", "0")
    found = unassembled(store)
    assert found.num_rows >= 20
    assert found.column("start_ns").null_count == 0
    store.close()
    assert requests_of(db, settings) == 20
    store = open_store(db, create=False)
    assert unassembled(store).num_rows == 0
    store.close()
