"""How many lines may each room have? `budgets.toml` beside this file, which `python -m tests.house.budgets` lowers to what the rooms have now.

Lines of Python are counted as they stand, formatted; words are those of the Markdown that readers see.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
BUDGETS: Final = Path(__file__).parent / "budgets.toml"
PRODUCT: Final = ("collector", "analysis", "models", "dashboard", "overrun", "sample_traces")
# So much a room may shrink before its budget has to follow: a change of a few lines needs no second file.
SLACK: Final = 150
_HEAD: Final = """# Lines of Python of each room (formatted), and words for readers. They only fall: `python -m tests.house.budgets` lowers them.
# Rooms joined by a plus share a budget; a longer name counts its own files apart from the room around it. Targets: product 90,000 lines, tests 85,000, words 40,000.
"""


@dataclass(frozen=True)
class Row:
    """A room with its budget and what it has now."""

    part: str
    room: str
    budget: int
    now: int


def rows() -> list[Row]:
    """Every room of `budgets.toml` with what it has now."""
    told = tomllib.loads(BUDGETS.read_text())
    return [
        Row(part, room, budget, _now(part, room, told[part]))
        for part, rooms in told.items()
        for room, budget in rooms.items()
    ]


def lines(folders: Iterable[str]) -> int:
    """The lines of Python below these folders of the checkout."""
    return sum(_lines(path) for folder in folders for path in _files(folder))


def _now(part: str, room: str, rooms: dict[str, int]) -> int:
    if part == "words":
        return sum(len(path.read_text().split()) for path in _pages(room))
    own = room.split(" + ")
    inner = [
        f"{one}/"
        for other in rooms
        if other != room
        for one in other.split(" + ")
        if any(one.startswith(f"{mine}/") for mine in own)
    ]
    return sum(
        _lines(path)
        for mine in own
        for path in _files(mine)
        if not any(str(path.relative_to(ROOT)).startswith(name) for name in inner)
    )


def _files(room: str) -> list[Path]:
    """The Python files of a room; `overrun` has links to the other folders, which are not its own."""
    inside = ROOT / room
    deep = inside.glob("*.py") if room == "overrun" else inside.rglob("*.py")
    return [path for path in deep if "__pycache__" not in path.parts]


def _pages(room: str) -> list[Path]:
    path = ROOT / room
    return [path] if path.is_file() else sorted(path.rglob("*.md"))


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def main() -> None:
    """Lower each budget to what its room has now; none is raised."""
    parts: dict[str, list[str]] = {}
    for row in rows():
        parts.setdefault(row.part, []).append(f'"{row.room}" = {min(row.budget, row.now)}')
    text = "".join(f"\n[{part}]\n" + "\n".join(said) + "\n" for part, said in parts.items())
    BUDGETS.write_text(_HEAD + text)


if __name__ == "__main__":
    main()
