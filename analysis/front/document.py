"""What does an answer say? Lines, tables and lists as one typed document, built once by the module of its answer.

Each form only renders it: `text_layout.py` for a terminal, `page.py` as Markdown and HTML, `dashboard/ui.py` on a page. Names come from telemetry, which anybody
may have sent, so every form passes each text through `printable` and escapes what its readers would take for markup.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from overrun.analysis.words.finding import say_ms, say_ratio

# Characters of a sentence or a cell: longer ones are cut with dots.
LONGEST: Final = 2000


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of a table: milliseconds, a ratio 0..1, or a count; None where it is not known. `interval` are its bounds, `over` means over its limit."""

    value: float | None
    unit: Literal["ms", "ratio", "count"] = "ms"
    interval: tuple[float, float] | None = None
    over: bool = False


Cell: TypeAlias = str | Figure


def words(cell: Cell) -> str:
    """Return a cell as text: `52.5 s (52.1 s-52.7 s)`, `24.5 %`, `1,499`; a dash where nothing is known."""
    if isinstance(cell, str):
        return cell
    if cell.value is None:
        return "-"
    said = _number(cell.value, cell.unit)
    if cell.interval is None:
        return said
    return f"{said} ({_number(cell.interval[0], cell.unit)}-{_number(cell.interval[1], cell.unit)})"


def _number(value: float, unit: str) -> str:
    return (
        say_ms(value) if unit == "ms" else say_ratio(value) if unit == "ratio" else f"{value:,.0f}"
    )


@dataclass(frozen=True, slots=True)
class Line:
    """A statement behind its label, or one without: `parts` joined by `joint`, which a page lists where there are several. Without parts nothing is shown.

    On a terminal it begins after `indent` columns, further lines `hang` columns behind that, and of more than `most` lines the whole sentences that fit are kept.
    `copied` is a command, which is never wrapped.
    """

    parts: Sequence[str]
    label: str = ""
    joint: str = "; "
    indent: int = 0
    hang: int = 2
    most: int | None = None
    copied: bool = False

    @property
    def text(self) -> str:
        """The statement without its label."""
        return self.joint.join(part for part in self.parts if part)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under their columns' names; `title` stands in the place of the first name on a terminal, above the table on a page.

    `align` has `<` or `>` for each column, `least` the least widths of the first ones. Where a terminal is narrower than the table, the columns of `spare` go,
    first ones first; or `narrow` stands in its place; or the first column is wrapped (`wrap_first`). `note` says what the numbers are.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    align: str
    title: str = ""
    spare: Sequence[int] = ()
    least: Sequence[int] = ()
    narrow: Table | None = None
    wrap_first: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Items:
    """A list under its title: each entry is a statement and what belongs to it. On a terminal it begins after two columns, with a number or a dash where `mark`
    asks for one; the rest of it after `hang` more."""

    title: str
    entries: Sequence[tuple[str, Sequence[str]]]
    mark: Literal["1", "-", ""] = ""
    hang: int = 3


Block: TypeAlias = Line | Table | Items


@dataclass(frozen=True, slots=True)
class Document:
    """One answer: whose it is and how it stands (`name`, `status`, `scope`), its sentence, and groups of blocks, an empty line between them."""

    groups: Sequence[Sequence[Block]]
    name: str = ""
    status: str = ""
    scope: Sequence[str] = ()
    lead: str = ""
    tone: Literal["bad", "ok", "soft"] = "soft"
