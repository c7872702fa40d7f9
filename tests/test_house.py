"""The house: what is shipped, what is imported when, and what must not stand in any file."""

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

from tests import programs
from tests.conftest import ROOT

PACKAGES = ("collector", "analysis", "models", "dashboard", "sample_traces")
# What only tests, benchmarks and whoever records a sample need.
LEFT_OUT = ("sample_traces/simulator/", "sample_traces/simulate.py", "sample_traces/record.py")


def _build(tree: Path, out: Path, target: str) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out)],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    [made] = (
        path for path in out.iterdir() if path.suffix == (".whl" if target == "wheel" else ".gz")
    )
    return made


def _content(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.CRC for entry in archive.infolist()}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is built from."""
    tree = tmp_path_factory.mktemp("tree")
    for name in (*PACKAGES, "overrun", "tests", "docs"):
        shutil.copytree(
            ROOT / name,
            tree / name,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__", "data", "screenshots"),
        )
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, tree / path.name)
    return tree


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Names and checksums of the files in a wheel built from a copy of the tree, without an index."""
    return _content(_build(tree, tmp_path_factory.mktemp("wheel"), "wheel"))


def test_the_wheel_holds_every_query_marker_and_recording(wheel: dict[str, int]) -> None:
    files = [
        p.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for p in (ROOT / package).rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    ]
    left_out = {name for name in files if name.startswith(LEFT_OUT)}
    assert {name for name in files if f"overrun/{name}" not in wheel} == left_out
    assert {f"overrun/{package}/py.typed" for package in PACKAGES} | {
        "overrun/py.typed",
        "overrun/cli.py",
        "overrun/commands.toml",
        "overrun/__main__.py",
    } <= wheel.keys()
    assert sum(name.endswith(".sql") for name in wheel) >= 12
    assert sum(name.endswith(".pb.zst") for name in wheel) >= 40


def test_the_wheel_holds_nothing_else(wheel: dict[str, int]) -> None:
    assert {
        name.split("/")[0] for name in wheel if not name.split("/")[0].endswith(".dist-info")
    } == {"overrun"}


def test_a_wheel_made_from_the_source_archive_is_the_same(
    tree: Path, wheel: dict[str, int], tmp_path: Path
) -> None:
    with tarfile.open(_build(tree, tmp_path / "sdist", "sdist")) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    [unpacked] = (tmp_path / "unpacked").iterdir()
    assert _content(_build(unpacked, tmp_path / "wheel", "wheel")) == wheel


def test_every_package_is_listed_and_linked() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    found = {p.parent.name for p in ROOT.glob("*/__init__.py")} - {"tests", "overrun"}
    targets = settings["hatch"]["build"]["targets"]
    modules = {f"overrun/{p.name}" for p in (ROOT / "overrun").iterdir() if p.is_file()}
    assert found == set(PACKAGES)
    assert set(targets["wheel"]["only-include"]) == found | modules
    assert found | modules <= set(targets["sdist"]["only-include"])
    assert targets["wheel"]["sources"] == {name: f"overrun/{name}" for name in PACKAGES}
    assert {
        p.name: p.readlink().as_posix() for p in (ROOT / "overrun").iterdir() if p.is_symlink()
    } == {name: f"../{name}" for name in PACKAGES}
    assert set(settings["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]) == found


def test_the_front_door_loads_nothing_heavy() -> None:
    heavy = {"duckdb", "numba", "streamlit", "pyarrow", "polars", "numpy", "grpc", "xgboost"}
    heavy |= {"plotly", "starlette"}
    code = f"import sys, overrun.cli; print(*sorted({heavy!r} & set(sys.modules)))"
    done = programs.fresh(code)
    assert (done.returncode, done.stdout.strip()) == (0, "")


def test_the_collector_needs_neither_analysis_nor_the_extras() -> None:
    code = (
        "import sys, overrun.collector.ingest.pipeline, overrun.collector.receive.otlp_http, overrun.collector.receive.otlp_grpc;"
        " import overrun.collector.sources.importer;"
        " print(*sorted({'overrun.analysis', 'overrun.models', 'overrun.dashboard', 'streamlit', 'plotly', 'xgboost', 'sklearn'} & set(sys.modules)))"
    )
    done = programs.fresh(code)
    assert (done.returncode, done.stdout.strip()) == (0, "")


# First-party imports that stand inside functions, outside the command line, because a command would wait for them (module -> what it imports there).
# `analysis/front/commands.py` is loaded by every command: 0.2 s of CPU as it is, 1.0 s with stores, assembly, rules and what-ifs on top, which a command that
# asks a server never needs (`python -X importtime`, 2 cores, 2026-11-26).
LATE_IMPORTS = {
    # The types of assembly load OTLP's schema, which a command that asks a server has no need of.
    "analysis/contrast/read.py": {"overrun.analysis.assembly.assemble"},
    "analysis/front/commands.py": {
        "overrun.analysis.assembly.assemble",
        "overrun.analysis.diagnosis.simulated_gains",
        "overrun.analysis.front",
        "overrun.analysis.front.client",
        "overrun.analysis.front.ledger",
        "overrun.analysis.front.questions",
        "overrun.analysis.front.whatif_answer",
        "overrun.analysis.whatif",
        "overrun.collector.ingest.pipeline",
        "overrun.collector.lifecycle.forget",
        "overrun.collector.normalise.stages",
        "overrun.collector.store.database",
        "overrun.collector.store.unassembled",
    },
}


def test_only_listed_imports_stand_inside_functions() -> None:
    found: dict[str, set[str]] = {}
    for package in ("collector", "analysis", "models", "dashboard"):
        for path in (ROOT / package).rglob("*.py"):
            for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                    for name in _imported(function):
                        if name.split(".")[0] == "overrun":
                            found.setdefault(path.relative_to(ROOT).as_posix(), set()).add(name)
    assert found == LATE_IMPORTS


def _imported(function: ast.AST) -> set[str]:
    """The modules whose imports stand in a function."""
    found: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports in functions and for type checkers count: a circle that is hidden is one all the same."""
    graph = grimp.build_graph("overrun", cache_dir=None)
    sorter = TopologicalSorter(
        {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    )
    sorter.prepare()  # raises CycleError with the circle


def _tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [p for p in (ROOT / name for name in done.stdout.split("\0") if name) if p.is_file()]


# Spelled in pieces, so that this file does not hold what it looks for.
FORBIDDEN = {
    "a path of somebody's machine": re.compile(
        r"(?<![\w.\-])/(?:"
        + "|".join(("ho" + "me", "Us" + "ers", "wo" + "rk", "ro" + "ot"))
        + r")/[\w.\-]+"
    ),
    "the address of a package index": re.compile(
        r"(?:--(?:extra-)?index-url|index_url\s*=|https?://[\w.\-]*(?:artifactory|nexus|devpi)[\w.\-]*/)"
    ),
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
        found += [
            f"{path.relative_to(ROOT)}: {hit.group(0)}" for hit in FORBIDDEN[what].finditer(text)
        ]
    assert found == []
