"""The house: what is shipped, what is imported when, and what must not stand in any file."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGES = ("collector", "analysis", "models", "dashboard", "sample_traces")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in a wheel built from a copy of the tree, without an index."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    for name in (*PACKAGES, "overrun.py", "pyproject.toml", "README.md", "LICENSE"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            tree.mkdir(exist_ok=True)
            shutil.copy(source, tree / name)
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "out")],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    [made] = (folder / "out").glob("*.whl")
    with zipfile.ZipFile(made) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_every_query_marker_and_recording(wheel: set[str]) -> None:
    wanted = [p for package in PACKAGES for p in (ROOT / package).rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    missing = {str(p.relative_to(ROOT)) for p in wanted} - wheel
    assert not missing
    assert {f"{package}/py.typed" for package in PACKAGES} <= wheel
    assert sum(name.endswith(".sql") for name in wheel) >= 12
    assert sum(name.endswith(".pb.zst") for name in wheel) >= 40
    assert "overrun.py" in wheel


def test_the_wheel_holds_nothing_else(wheel: set[str]) -> None:
    assert {name.split("/")[0] for name in wheel if not name.split("/")[0].endswith(".dist-info")} == {*PACKAGES, "overrun.py"}


def test_every_top_level_package_is_listed() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = {p.parent.name for p in ROOT.glob("*/__init__.py")} - {"tests"}
    listed = set(settings["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"])
    assert listed == {*PACKAGES, "overrun.py"}
    assert found == set(PACKAGES)
    assert found <= set(settings["tool"]["importlinter"]["root_packages"])


def test_the_front_door_loads_nothing_heavy() -> None:
    heavy = {"duckdb", "numba", "streamlit", "pyarrow", "polars", "numpy", "grpc", "xgboost", "plotly", "starlette"}
    code = f"import sys, overrun; print(*sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60)
    assert done.stdout.strip() == ""


def test_the_collector_needs_neither_analysis_nor_the_extras() -> None:
    code = (
        "import sys, collector.pipeline, collector.otlp_http, collector.otlp_grpc, collector.importer;"
        " print(*sorted({'analysis', 'models', 'dashboard', 'streamlit', 'plotly', 'xgboost', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60)
    assert done.stdout.strip() == ""


def _tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return [p for p in (ROOT / name for name in done.stdout.split("\0") if name) if p.is_file()]


# Spelled in pieces, so that this file does not hold what it looks for.
FORBIDDEN = {
    "a path of somebody's machine": re.compile(r"(?<![\w.\-])/(?:" + "|".join(("ho" + "me", "Us" + "ers", "wo" + "rk", "ro" + "ot")) + r")/[\w.\-]+"),
    "the address of a package index": re.compile(r"(?:--(?:extra-)?index-url|index_url\s*=|https?://[\w.\-]*(?:artifactory|nexus|devpi)[\w.\-]*/)"),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what: str) -> None:
    found = []
    for path in _tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # recordings, databases, pictures
        if "/data/" in path.as_posix():
            continue  # other people's published numbers
        found += [f"{path.relative_to(ROOT)}: {hit.group(0)}" for hit in FORBIDDEN[what].finditer(text)]
    assert found == []
