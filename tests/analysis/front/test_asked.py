"""What is asked goes together or is refused in one place, and a file is read once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from overrun.analysis.front import file_commands
from overrun.analysis.front import question_table as table
from overrun.analysis.front.asked import Asked, Source, refuse_form, refuse_place, source_of
from overrun.analysis.words.errors import AnalysisError
from overrun.collector.config import Settings, load
from overrun.collector.errors import StoreMissing
from overrun.sample_traces.replay import RECORDINGS_PATH

RECORDING = RECORDINGS_PATH / "vllm-joined"
NO_SETTINGS = Source(Settings())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sinse": "1h"}, "unknown parameter 'sinse': nearest known is 'since'"),
        ({"limit": 0}, "limit '0' is not a whole number from 1 to 1000"),
        ({"min_ms": True, "limit": None, "slo": {}}, "slo must be a text or a number, not {}"),
        ({"sort": "quee"}, "nearest known is 'queue'"),
    ],
)
def test_a_name_or_value_that_cannot_be_asked_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(AnalysisError, match=said):
        Asked.read(table.REQUESTS, given, NO_SETTINGS)


def test_names_and_numbers_may_be_written_as_the_caller_writes_them() -> None:
    asked = Asked.read(table.REQUESTS, {"from_": "-2h", "min-ms": 1.5, "limit": 3.0}, NO_SETTINGS)
    assert asked.texts == {"from": "-2h", "min_ms": "1.5", "limit": "3"}
    assert asked.but(limit="4").texts["limit"] == "4"


def test_a_form_and_a_source_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    refuse_form(table.REPORT, "markdown")
    with pytest.raises(AnalysisError, match="'yaml' is not known: use text or json"):
        refuse_form(table.FACTS, "yaml")
    with pytest.raises(AnalysisError, match="both given"):
        refuse_place(tmp_path / "a.db", "http://127.0.0.1:1")
    url, tool = "http://127.0.0.1:1", "prometheus:http://127.0.0.1:1"
    for named, more, said in (
        ([str(RECORDING)], {"url": url}, "more than one of SOURCE"),
        ([str(RECORDING), tool], {}, "were given together"),
        ([url, url], {}, "were given together"),
        ([url], {"match": "a"}, "--match narrows"),
        ([str(tmp_path / "nothing")], {}, "there is nothing at"),
    ):
        with pytest.raises(AnalysisError, match=said):
            source_of(named, Settings(), **more)
    with pytest.raises(StoreMissing):
        refuse_place(tmp_path / "a.db", None)


def test_a_source_is_known_by_what_stands_there(tmp_path: Path) -> None:
    store = tmp_path / "x.db"
    store.write_bytes(b"12345678DUCK and more")
    kept = Path("kept.db")
    made = source_of(["tempo:http://t:1", "http://p:9090"], Settings(), db=kept, match="{}")
    assert ([one.kind for one in made.remote], made.db) == (["tempo", "prometheus"], kept)
    assert made.flags() == " tempo:http://t:1 http://p:9090 --match '{}'"
    of_store, of_files, of_server = (
        source_of([name], Settings()) for name in (str(store), str(RECORDING), "http://h:4318")
    )
    assert (of_store.db, of_store.is_stored) == (store, True)
    assert (of_files.files, of_files.is_stored) == ([RECORDING], False)
    assert (of_server.url, of_server.is_stored) == ("http://h:4318", True)


@pytest.mark.parametrize("name", ["vllm-joined", "semconv-genai-openai"])
def test_a_file_is_read_once_however_often_it_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    opened: Counter[str] = Counter()
    plain = Path.open

    def counting(path: Path, *args: Any, **more: Any) -> Any:
        opened[path.name] += 1
        return plain(path, *args, **more)

    monkeypatch.setattr(Path, "open", counting)
    files = sorted((RECORDINGS_PATH / name).glob("*.pb.zst"))
    source = Source(load(None, environment={}), files=files)
    assert '"requests":' in file_commands.answer(Asked.read(table.REPORT, {}, source))
    assert [opened[file.name] for file in files] == [1] * len(files) != []
