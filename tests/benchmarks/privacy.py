"""What does an answer lose to privacy? Reports on the same recordings, stored whole, with unknown texts as they are, and with what vocabularies know alone.

python -m tests.benchmarks.privacy --seconds 240    # again and again, until none is left; then with --write
"""

from __future__ import annotations

import argparse
import json
import math
import runpy
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from typer.testing import CliRunner

from overrun.cli import app
from tests.benchmarks import results

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = (ROOT / "sample_traces" / "recordings", ROOT / "tests" / "corpus")
WAYS: Final = {
    "whole": {"OVERRUN_STORE_TEXT": "true"},
    "all": {"OVERRUN_ATTRIBUTES": "all"},
    "known": {"OVERRUN_ATTRIBUTES": "known"},
}


def report(folder: Path, way: str) -> Any:
    """The report on all that stands in a folder, as JSON; None where nothing can be imported."""
    with tempfile.TemporaryDirectory() as work:
        copied = Path(work) / "in"
        shutil.copytree(folder, copied)
        if (copied / "make.py").exists():
            runpy.run_path(str(copied / "make.py"))["make"](copied)
        db = str(Path(work) / "t.db")
        told = CliRunner().invoke(app, ["import", str(copied), "--db", db], env=WAYS[way])
        if told.exit_code:
            return None
        asked = CliRunner().invoke(app, ["report", "--db", db, "--output", "json"], env=WAYS[way])
        return json.loads(asked.stdout) if asked.stdout.startswith("{") else None


def different(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Where two reports differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            yield from different(one.get(key), other.get(key), f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for i, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from different(left, right, f"{path}[{i}]")
    elif isinstance(one, float) and isinstance(other, float):
        if not math.isclose(one, other, rel_tol=1e-9):  # sums depend on the order of rows
            yield f"{path}: {one} / {other}"
    elif one != other:
        yield f"{path}: {str(one)[:80]} / {str(other)[:80]}"


def recordings(more: Sequence[Path]) -> list[Path]:
    """The folders that are compared."""
    found = sorted(p for top in (*FOLDERS, *more) for p in top.iterdir())
    return [p for p in found if p.is_dir() and not p.name.startswith("__")]


def compared(folder: Path) -> dict[str, list[str]] | None:
    """Where the report of each way differs from that on what was sent whole; None where nothing can be imported."""
    whole = report(folder, "whole")
    if whole is None:
        return None
    return {way: list(different(whole, report(folder, way))) for way in ("all", "known")}


def figures(found: Mapping[str, dict[str, list[str]]]) -> list[results.Figure]:
    """How many reports are equal, by the names of the recordings."""
    return [
        results.measured(
            f"Reports equal to those on what was sent whole, attributes = {way!r}",
            sum(not ways[way] for ways in found.values()),
            f"of {len(found)} recordings",
            script="python -m tests.benchmarks.privacy --write",
        )
        for way in ("all", "known")
    ]


def main() -> None:
    """Compare until the time has gone; what was compared before is kept in a file and not compared again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, action="append", default=[])
    parser.add_argument("--kept", type=Path, default=Path(tempfile.gettempdir()) / "privacy.json")
    parser.add_argument("--seconds", type=float, default=240.0, help="no recording is begun later")
    results.add_write_flag(parser)
    chosen = parser.parse_args()
    kept: dict[str, Any] = json.loads(chosen.kept.read_text()) if chosen.kept.exists() else {}
    until = time.monotonic() + chosen.seconds
    left = [p for p in recordings(chosen.folder) if str(p) not in kept]
    for folder in left:
        if time.monotonic() > until:
            break
        kept[str(folder)] = compared(folder)
        chosen.kept.write_text(json.dumps(kept))
    found = {name: ways for name, ways in kept.items() if ways is not None}
    for name, ways in found.items():
        for way, lines in ways.items():
            for line in lines:
                print(f"{Path(name).name} ({way}){line}")
    missing = sum(str(p) not in kept for p in left)
    print(f"{len(found)} recordings compared, {missing} left: call it again")
    for figure in figures(found):
        print(f"{figure.what}: {figure.value} {figure.unit}")
    if chosen.write and not missing:
        results.record("hardening", figures(found))


if __name__ == "__main__":
    main()
