"""The documents: the index lists each of them, and their links lead somewhere."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from overrun import cli, manual
from overrun.analysis.front import file_commands, report_brief
from overrun.analysis.front import question_table as table
from overrun.analysis.front.asked import Asked, source_of
from overrun.analysis.front.report import from_json
from overrun.collector.config import load
from overrun.sample_traces.replay import RECORDINGS_PATH
from tests.conftest import ROOT

DOCS = ROOT / "docs"
DEVELOPING = (DOCS / "DEVELOPING.md").read_text(encoding="utf-8")
PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "README.md", ROOT / "CHANGELOG.md"]


README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = [block.strip().splitlines() for block in README.split("```")[1::2]]
TYPED = [line for block in BLOCKS[2:] for line in block if line.startswith("overrun ")]


def test_the_readme_shows_what_the_demo_prints_now() -> None:
    command, *shown = BLOCKS[0]
    assert command.startswith("$ overrun demo")
    source = source_of([str(RECORDINGS_PATH / "vllm-spans")], load(None, environment={}))
    asked = Asked.read(table.REPORT, {"slo": "ttft:1000"}, source)
    report = from_json(file_commands.answer(asked).encode())
    assert report_brief.summary(report, width=80).splitlines() == shown


@pytest.mark.parametrize("line", TYPED)
def test_each_line_of_the_readme_can_be_typed(line: str) -> None:
    words = shlex.split(line)[1:]
    group = typer.main.get_command(cli.app)
    context = group.make_context("overrun", [], resilient_parsing=True)
    command = group.get_command(context, words[0])
    assert command is not None
    command.make_context(words[0], words[1:], parent=context)


def test_the_doors_of_the_readme_answer(tmp_path: Path) -> None:
    """Each source that a line names gets a twin here: a recording for a load test, and nothing that listens."""
    run = {"ttft_p99:1000": 0, "ttft:1000 e2el:5000": 1, "http://127.0.0.1": 2}
    for line in TYPED:
        if line.startswith("overrun serve"):
            continue
        words = shlex.split(line.replace("load-test/", str(RECORDINGS_PATH / "vllm-spans")))
        words = [re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:1", word) for word in words]
        done = CliRunner().invoke(cli.app, words[1:])
        wanted = next(code for part, code in reversed(run.items()) if part in line)
        assert done.exit_code == wanted, (line, done.output)


def test_exit_codes_are_documented_in_one_table() -> None:
    page = (DOCS / "OPERATIONS.md").read_text(encoding="utf-8")
    for code, meaning in manual.CODES:
        assert f"| {code} | {meaning} |" in page


def test_the_index_lists_every_document() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert {path.name for path in DOCS.glob("*.md")} - {"README.md"} <= set(
        re.findall(r"\((\w+\.md)\)", index)
    )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8"))
    assert [
        target for target in targets if "://" not in target and not (path.parent / target).exists()
    ] == []


def test_the_site_is_built_and_no_link_of_it_is_broken(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    pages = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.html")}
    assert "max_body_items" in pages["SETTINGS.html"]
    assert "/api/v1/report" in pages["API.html"]
    assert "first token" in pages["COLUMNS.html"]
    loaded = re.findall(r'(?:src|<link[^>]*href)="(https?:[^"]+)"', "".join(pages.values()))
    assert loaded == []  # no font, script or picture of another host


def test_every_file_that_developing_names_exists() -> None:
    named = set(re.findall(r"(?<![\w./])(?:[\w.]+/)*\w+\.py\b", DEVELOPING))
    assert len(named) > 40
    files = [
        path.relative_to(ROOT).as_posix()
        for folder in (
            "collector",
            "analysis",
            "models",
            "dashboard",
            "sample_traces",
            "overrun",
            "tests",
        )
        for path in (ROOT / folder).rglob("*.py")
    ]
    assert [
        name for name in sorted(named) if not any(f"/{f}".endswith(f"/{name}") for f in files)
    ] == []


@pytest.mark.parametrize(
    "package", ["overrun.analysis", "overrun.analysis.numbers", "overrun.collector"]
)
def test_the_picture_of_the_rooms_is_the_one_that_contracts_hold(package: str) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    [layers] = [c["layers"] for c in contracts if c.get("containers") == [package]]
    rooms = [room for layer in layers for room in layer.split(" | ")]
    folder = ROOT.joinpath(*package.split(".")[1:])
    picture = DEVELOPING.split("```")[1]
    if package == "overrun.collector":
        picture = picture.split("\ncollector/\n")[1]
    else:
        picture = picture.split("\ncollector/\n")[0].split("\nanalysis/\n")[1]
    drawn = re.findall(r"(?<= )(\w+)/ ", picture)
    assert [room for room in drawn if room in rooms] == [
        room for room in rooms if (folder / room).is_dir()
    ]
