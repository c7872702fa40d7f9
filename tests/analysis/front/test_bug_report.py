"""`overrun admin bug-report`: a folder that the corpus runs, which shows what was reported and nothing of who sent it."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import zstandard
from typer.testing import CliRunner

from overrun.cli import app
from overrun.sample_traces.replay import RECORDINGS_PATH
from tests.conftest import StartServer
from tests.corpus.runner import Case


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def contents(folder: Path) -> str:
    packed = (folder / "input.jsonl.zst").read_bytes()
    return zstandard.ZstdDecompressor().decompressobj().decompress(packed).decode()


@pytest.mark.parametrize("name", ["vllm-joined", "langfuse"])
def test_a_packed_recording_is_a_case_that_shows_the_same(
    name: str, tmp_path: Path, start_server: StartServer
) -> None:
    out = tmp_path / "case"
    done = run("bug-report", RECORDINGS_PATH / name, "--out", out, "--slo", "e2e:500")
    assert done.exit_code == 0, done.output
    assert "shows the same report as the original" in done.output, done.output
    held = tomllib.loads((out / "case.toml").read_text())
    assert held["step"][1]["run"] == ["report", "--slo", "e2e:500", "--output", "json"]
    work = tmp_path / "work"
    work.mkdir()
    Case(out, work, start_server).run()
    assert run("bug-report", RECORDINGS_PATH / name, "--out", out).exit_code == 2


def test_one_trace_of_a_database_is_packed_without_its_names(tmp_path: Path) -> None:
    db, out = tmp_path / "o.db", tmp_path / "case"
    assert run("import", RECORDINGS_PATH / "vllm-joined", "--db", db).exit_code == 0
    import duckdb

    con = duckdb.connect(str(db), read_only=True)
    [[trace, service]] = con.execute(
        "select trace_id, service from v_requests order by start limit 1"
    ).fetchall()
    con.close()
    done = run("bug-report", "--db", db, "--trace", trace, "--out", out)
    assert done.exit_code == 0, done.output
    text = contents(out)
    assert trace not in text
    assert service not in text
    assert '"gen_ai.usage.output_tokens"' in text
    assert tomllib.loads((out / "case.toml").read_text())["step"][2:] == []


def test_nothing_to_pack_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    assert run("bug-report", tmp_path / "x.json", "--out", tmp_path / "c").exit_code == 2
    assert not (tmp_path / "c").exists()
