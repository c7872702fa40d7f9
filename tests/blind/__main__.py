"""How good are the answers to a folder of incidents? Imports each input, asks for the report as anybody would, and judges it by its truth.

python -m tests.blind FOLDER                               # print the scores; --said prints the answers too
python -m tests.blind FOLDER --round NAME --write          # keep them as the first look at this round, once and for ever
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from overrun.analysis.front import commands
from overrun.analysis.front import question_table as table
from overrun.analysis.front.asked import Asked, Source
from overrun.analysis.front.file_import import import_files
from overrun.analysis.words.encoding import encode
from overrun.collector.config import load
from tests.benchmarks.results import FOLDER as RESULTS
from tests.benchmarks.results import measured, record
from tests.blind import score


def main(arguments: list[str]) -> int:
    """Score a folder of incidents; returns 2 where a first look of this name is kept already."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path, help="a folder of incidents, or one incident")
    parser.add_argument("--round", default="", help="the name of the round that is kept")
    parser.add_argument("--write", action="store_true", help="keep the counts as the first look")
    parser.add_argument("--said", action="store_true", help="print what was said of each")
    parser.add_argument("--no-limit", action="store_true", help="ask without the limit")
    asked = parser.parse_args(arguments)
    what = f"Blind round {asked.round}: incidents whose cause or regularity is right"
    if asked.write and any(row["what"] == what for row in json.loads(_kept().read_text())):
        print(f"{what}: is kept already, and a first look is never changed", file=sys.stderr)
        return 2
    folders = [path.parent for path in sorted(asked.folder.rglob("truth.toml"))]
    scores = [_scored(folder, limited=not asked.no_limit) for folder in folders]
    if asked.said:
        for one in scores:
            print(json.dumps(msgspec.to_builtins(one.said), indent=1, ensure_ascii=False))
    print(score.table(scores))
    if asked.write:
        _keep(what, scores)
    return 0


def _scored(folder: Path, *, limited: bool) -> score.Score:
    truth = score.read_truth(folder)
    report = answer(folder, truth.slo if limited else "")
    return score.score(folder.name, truth, score.said(report))


def answer(folder: Path, slo: str) -> dict[str, Any]:
    """The report's JSON about the input of a folder."""
    with tempfile.TemporaryDirectory(prefix="overrun-blind-") as work:
        settings = load(flags={"collector.db": f"{work}/store.db"})
        paths = _laid_out(folder, Path(work))
        import_files(paths, settings, url=None, progress=lambda at, total: None)
        source = Source(settings, Path(settings.collector.db))
        asked = Asked.read(table.REPORT, {"slo": slo or None}, source)
        made = commands.here(Path(settings.collector.db), asked, {})
    report: dict[str, Any] = json.loads(encode(made))
    return report


def _laid_out(folder: Path, work: Path) -> list[Path]:
    """The input's files; archives of pages are unpacked with the times of their files."""
    paths = []
    for path in sorted(folder.iterdir()):
        if path.name.endswith(".tar.xz"):
            with tarfile.open(path) as packed:
                packed.extractall(work / "pages", filter="data")
            paths.append(work / "pages")
        elif path.name.startswith("traces.json"):
            paths.append(_unpacked(path, work))
    return paths


def _unpacked(path: Path, work: Path) -> Path:
    if path.suffix != ".xz":
        return path
    to = work / path.stem
    with to.open("wb") as out:
        subprocess.run(["xz", "-dc", path], stdout=out, check=True)
    return to


def _kept() -> Path:
    return RESULTS / "first_look.json"


def _keep(what: str, scores: list[score.Score]) -> None:
    count = score.counts(scores)
    right = count.get("cause right", 0)
    more: dict[str, int | float | str] = {
        name: value for name, value in count.items() if name not in ("incidents", "cause right")
    }
    conditions = "incidents rebuilt from public reports, each truth written before the first run: "
    names = ", ".join(one.incident for one in scores)
    figure = measured(
        what,
        right,
        of=len(scores),
        more=more,
        conditions=conditions + names,
        script="tests/blind",
        page=False,
    )
    record("first_look", [figure])


if __name__ == "__main__":
    if shutil.which("xz") is None:
        sys.exit("xz is missing: apt-get install xz-utils")
    sys.exit(main(sys.argv[1:]))
