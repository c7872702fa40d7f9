"""What does an answer lose to privacy? Reports on the same recordings, stored whole, with unknown texts as they are, and with what vocabularies know alone.

python -m tests.benchmarks.privacy [--write] [--folder FOLDER_OF_RECORDINGS ...]
"""

from __future__ import annotations

import argparse
import json
import runpy
import shutil
import sys
import tempfile
from collections.abc import Iterator
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
    elif one != other:
        yield f"{path}: {str(one)[:80]} / {str(other)[:80]}"


def main() -> None:
    """Compare, and print every difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, action="append", default=[])
    results.add_write_flag(parser)
    chosen = parser.parse_args()
    counts = {"all": 0, "known": 0}
    compared = 0
    for folder in sorted(p for top in (*FOLDERS, *chosen.folder) for p in top.iterdir()):
        if not folder.is_dir() or folder.name.startswith("__"):
            continue
        whole = report(folder, "whole")
        if whole is None:
            continue
        compared += 1
        print(f"{compared} {folder.name}", file=sys.stderr, flush=True)
        for way in counts:
            found = list(different(whole, report(folder, way)))
            counts[way] += not found
            for line in found:
                print(f"{folder.name} ({way}){line}", flush=True)
    print(f"{compared} recordings, equal reports: {counts}")
    figures = [
        results.measured(
            f"reports equal to those on what was sent whole, attributes = {way!r}",
            equal,
            f"of {compared} recordings",
            script="python -m tests.benchmarks.privacy --write",
        )
        for way, equal in counts.items()
    ]
    if chosen.write:
        results.record("hardening", figures)


if __name__ == "__main__":
    main()
