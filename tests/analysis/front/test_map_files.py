"""A map that is proposed for a file reads it, says what is in doubt, and a map that makes nothing of use is refused."""

import json
from pathlib import Path

import pytest

from overrun.analysis.front import map_files
from overrun.analysis.front.file_import import import_files
from overrun.collector.config import Settings, load
from overrun.collector.errors import BadPayload, ConfigError, ImportFailed
from overrun.collector.sources import forms

ROWS = [
    {
        "call_id": f"a{at}",
        "begun": f"2026-09-21T14:13:{at:02}Z",
        "took": 2_300,
        "llm's \"own\"": {"model": "m"},
        "usage": {"prompt_tokens": 800, "completion_tokens": 90},
        "http_status": 500 if at == 1 else 200,
    }
    for at in range(5)
]  # fmt: skip


def settings_of(folder: Path) -> Settings:
    return load(flags={"collector.db": str(folder / "t.db")})


def test_a_proposed_map_reads_the_file_that_it_is_for(tmp_path: Path) -> None:
    file, own = tmp_path / "own.json", tmp_path / "own.sql"
    file.write_text(json.dumps({"meta": {"x": 1}, "items": ROWS}))
    proposed = map_files.propose(file, settings_of(tmp_path))
    assert "the unit of took is not known and is taken to be ms" in proposed
    assert "begun is taken to be the begin" in proposed
    assert proposed.count("start=2026-09-21T14:13:0") == 3
    own.write_text(proposed)
    checked = map_files.check(file, own)
    assert "5 rows" in checked
    assert "statuses 4 x 200, 1 x 500" in checked
    assert "2,300.000 ms, failed" in checked
    told = import_files(
        [file], settings_of(tmp_path), url=None, progress=lambda *_: None, map_file=own
    )
    assert "5 calls of models (1 failed, 0 with a first token, 5 with tokens)" in told
    assert "read as own (by the map own)" in told


def test_a_file_of_a_known_form_is_named_with_the_map_that_reads_it(tmp_path: Path) -> None:
    for path in forms.FOLDER.glob("*.sample.*"):
        proposed = map_files.propose(path, settings_of(tmp_path))
        name = path.name.partition(".")[0]
        form = next(one for one in forms.catalogue() if one.name == name)
        assert form.title in proposed
        if form.sql:
            assert forms.parse(name, proposed).sql == form.sql


def test_a_file_of_lines_gets_a_map_to_fill_in(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(
        "\x1b[31m2026-09-21 14:13:20 POST /v1/chat/completions 200 took 12 ms\n"
    )
    proposed = map_files.propose(tmp_path / "a.log", settings_of(tmp_path))
    assert "\x1b" not in proposed
    (tmp_path / "a.sql").write_text(proposed)
    assert "chat at 1789999999.988 s, 12.000 ms" not in proposed
    assert "12.000 ms" in map_files.check(tmp_path / "a.log", tmp_path / "a.sql")


@pytest.mark.parametrize(
    ("sql", "error", "words"),
    [
        ("select 1 as wrong from f", BadPayload, "no column 'wrong'"),
        ("select row->>'$.nothing' as \"start\", 1 as duration_ms from f", ImportFailed, "start is no moment"),
        ("drop table f", BadPayload, "one SELECT"),
        ("", ConfigError, "no SELECT"),
        ("select list_sum(range(1000000000)) as metric, 1 as time, 1 as value", BadPayload, "Out of Memory|too much memory"),
    ],
)  # fmt: skip
def test_a_map_that_makes_nothing_is_refused_in_words(
    sql: str, error: type[Exception], words: str, tmp_path: Path
) -> None:
    (tmp_path / "own.json").write_text(json.dumps(ROWS))
    (tmp_path / "own.sql").write_text(sql)
    with pytest.raises(error, match=words):
        map_files.check(tmp_path / "own.json", tmp_path / "own.sql")


def test_forms_of_ones_own_are_tried_with_the_others(tmp_path: Path) -> None:
    own = tmp_path / "forms"
    own.mkdir()
    (own / "ours.sql").write_text(
        '-- title = "calls of our gateway"\n-- needs = ["items.call_id", "items.begun"]\n'
        "select e->>'$.begun' as \"start\", (e->>'$.took')::double as duration_ms, 'chat' as operation from (select unnest(row->'$.items[*]') as e from f)"
    )
    (tmp_path / "own.json").write_text(json.dumps({"items": ROWS}))
    (tmp_path / "overrun.toml").write_text(f'[forms]\nfolder = "{own}"\n')
    settings = load(tmp_path / "overrun.toml", flags={"collector.db": str(tmp_path / "t.db")})
    told = import_files([tmp_path / "own.json"], settings, url=None, progress=lambda *_: None)
    assert "own.json: read as calls of our gateway (it has items.call_id, items.begun)" in told


def test_a_folder_of_forms_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "overrun.toml").write_text('[forms]\nfolder = "nowhere"\n')
    with pytest.raises(ConfigError, match=r"\[forms\] folder: there is no folder nowhere"):
        map_files.propose(tmp_path / "x", load(tmp_path / "overrun.toml"))
