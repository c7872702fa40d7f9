"""Where are the measured figures kept? In docs/results, one JSON file an area.

A bench script that is called with `--write` records its headline figures here. A figure replaces
the earlier one with the same `what`. `results_page.py` makes docs/BENCHMARKS.md from the files.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "results"

Number = int | float


class Figure(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One measured figure, with all that is needed to measure it again.

    `value` is a number, or the lowest and highest of several runs. `of` makes it a count: 36 of 37.
    `more` holds further numbers of the same row, such as the P90 of an error whose median is the value.
    `page` is false for details that docs/BENCHMARKS.md leaves out.
    """

    what: str
    value: Number | tuple[Number, Number]
    unit: str = ""
    of: int | None = None
    more: dict[str, Number | str] = {}
    target: str = ""
    date: str
    build: str = ""
    conditions: str = ""
    script: str
    note: str = ""
    cited_by: tuple[str, ...] = ()
    page: bool = True


def add_write_flag(parser: argparse.ArgumentParser) -> None:
    """Give a bench script its `--write`."""
    parser.add_argument(
        "--write", action="store_true", help="record the headline figures in docs/results"
    )


def measured(
    what: str,
    value: Number | tuple[Number, Number],
    unit: str = "",
    *,
    script: str,
    conditions: str = "",
    of: int | None = None,
    more: Mapping[str, Number | str] | None = None,
    page: bool = True,
) -> Figure:
    """A figure of this run: date, build and machine are filled in."""
    return Figure(
        what=what,
        value=value,
        unit=unit,
        of=of,
        more=dict(more or {}),
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M}",
        build=_build(),
        conditions="; ".join(part for part in (conditions, _machine()) if part),
        script=script,
        page=page,
    )


def record(area: str, figures: Sequence[Figure], folder: Path = FOLDER) -> None:
    """Put figures into the file of an area, each in place of the one with the same `what`.

    What the file says about a figure that no run can know stays: its target, who cites it, and
    whether the page shows it. A note belongs to the old measurement and goes.
    """
    known = {figure.what: figure for figure in read(area, folder)}
    for new in figures:
        old = known.get(new.what)
        if old is not None:
            kept = {"target": old.target, "cited_by": old.cited_by, "page": old.page}
            new = msgspec.structs.replace(new, **kept)
        known[new.what] = new
    write(area, list(known.values()), folder)


def read(area: str, folder: Path = FOLDER) -> list[Figure]:
    """The figures of an area; none where it has no file yet."""
    path = folder / f"{area}.json"
    return msgspec.json.decode(path.read_bytes(), type=list[Figure]) if path.exists() else []


def write(area: str, figures: Sequence[Figure], folder: Path = FOLDER) -> None:
    """Write the whole file of an area. ValueError: two figures have the same `what`."""
    names = [figure.what for figure in figures]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(
            f"{area}: each figure needs its own `what`; these stand twice: {sorted(twice)}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join("  " + msgspec.json.encode(figure).decode() for figure in figures)
    (folder / f"{area}.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def _build() -> str:
    """The commit that is checked out; marked where files other than documents differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
    return git("rev-parse", "--short", "HEAD") + ("-dirty" if changed else "")


def _machine() -> str:
    load = os.getloadavg()[0]
    cores = f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}"
    return f"{cores}, Python {platform.python_version()}, duckdb {version('duckdb')}"
