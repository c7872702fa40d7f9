"""How are lines laid out for a terminal? Tables and wrapped texts of a given width, with harmless characters alone."""

import re
import textwrap
from collections.abc import Sequence

from overrun.analysis.words.finding import printable


def table(rows: list[tuple[str, ...]], align: str) -> list[str]:
    """Return rows of cells as lines with aligned columns; `align` has one of `<` and `>` per column."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(align))]
    lines = []
    for row in rows:
        cells = [
            f"{cell:{side}{size}}" for cell, side, size in zip(row, align, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def fitted(rows: list[tuple[str, ...]], align: str, width: int, spare: Sequence[int]) -> list[str]:
    """Return `table`, without as many of the columns in `spare` (the first ones first) as it takes to keep to `width`."""
    for dropped in range(len(spare) + 1):
        kept = [at for at in range(len(align)) if at not in spare[:dropped]]
        lines = table(
            [tuple(row[at] for at in kept) for row in rows], "".join(align[at] for at in kept)
        )
        if max(map(len, lines)) <= width:
            break
    return lines


def wrap(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Return a text as harmless lines of at most `width` columns; a number stays on one line with its unit."""
    if not text:
        return []
    # textwrap does not break at no-break spaces.
    # The settings file's tables keep their brackets.
    shown = re.sub(
        r"\((metrics|attributes|stages|scrape)\) in overrun\.toml",
        r"[\1] in overrun.toml",
        printable(text, 2000),
    )
    whole = re.sub(r"(?<=\d) (?=(?:ms|s|min)\b|%)", "\N{NO-BREAK SPACE}", shown)
    lines = textwrap.wrap(
        whole, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def within(text: str, width: int) -> str:
    """Return a text with its longer lines wrapped to `width` columns. What would not be the same then is kept: coloured lines, and commands to be copied."""
    lines = []
    for line in text.split("\n"):
        if len(line) <= width or "\x1b" in line or re.search(r"(^|  )overrun [a-z]", line):
            lines.append(line)
            continue
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        lines += textwrap.wrap(
            line,
            max(width, 40),
            subsequent_indent=indent,
            break_on_hyphens=False,
            break_long_words=False,
        )
    return "\n".join(lines)


def cut(line: str, width: int) -> str:
    """Return a line of at most `width` columns; what was cut is shown by dots."""
    return line if len(line) <= width else line[: width - 3] + "..."
