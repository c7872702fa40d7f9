"""The documents: the index lists each of them, and their links lead somewhere."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import ROOT

DOCS = ROOT / "docs"
DEVELOPING = (DOCS / "DEVELOPING.md").read_text(encoding="utf-8")
PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "README.md", ROOT / "CHANGELOG.md"]


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
