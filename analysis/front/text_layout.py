"""How is a document laid out for a terminal? Tables and wrapped texts of a given width, with harmless characters alone."""

import re
import textwrap
from collections.abc import Sequence
from typing import Final

from overrun.analysis.front.document import LONGEST, Block, Cell, Document, Items, Table, words
from overrun.analysis.words.finding import printable

# The least width of a column that is wrapped where its table is wider than the terminal, and the most lines of a name.
_LEAST: Final = 22
_NAME_LINES: Final = 4


def render(document: Document, width: int = 100) -> str:
    """Return a document as lines of at most `width` columns; commands stay whole."""
    head = _head(document, width)
    groups = [[*head, *wrap(document.lead, width)]]
    groups += [
        [line for block in group for line in lines(block, width)] for group in document.groups
    ]
    return "\n".join(line for group in groups if group for line in ("", *group))[1:]


def _head(document: Document, width: int) -> list[str]:
    """What the answer is about; its last part stands on a line of its own where the terminal is narrow."""
    if not document.name:
        return []
    head, scope = f"{document.name}  {document.status}", ", ".join(document.scope)
    whole = f"{head}  {scope}".rstrip()
    if len(whole) <= width or len(document.scope) < 2:
        return [cut(whole, width)]
    first = ", ".join(document.scope[:-1])
    return [cut(f"{head}  {first},", width), f"{'':{len(document.name) + 2}}{document.scope[-1]}"]


def lines(block: Block, width: int) -> list[str]:
    """Return one block as lines of at most `width` columns."""
    if isinstance(block, Table):
        return [*grid(block, width), *wrap(block.note, width, "  ", "  ")]
    if isinstance(block, Items):
        return [block.title] * bool(block.title) + [
            line
            for number, entry in enumerate(block.entries, 1)
            for line in _entry(_mark(block, number), entry, " " * block.hang, width)
        ]
    label = f"{block.label} " if block.label else ""
    if block.copied:
        return [f"{label}{block.text}"]
    rest = " " * (block.indent + block.hang)
    made = wrap(block.text, width, " " * block.indent + label, rest)
    return made if block.most is None else _shortened(made, block.most, width, rest)


def _mark(block: Items, number: int) -> str:
    return {"1": f"{number}. ", "-": "- ", "": ""}[block.mark]


def _entry(mark: str, entry: tuple[str, Sequence[str]], hang: str, width: int) -> list[str]:
    inner = f"  {hang}"
    return wrap(f"{mark}{entry[0]}", width, "  ", inner) + [
        line for more in entry[1] for line in wrap(more, width, inner, inner)
    ]


def _shortened(made: list[str], most: int, width: int, rest: str) -> list[str]:
    """Of more than `most` lines the whole sentences that fit, and one more line if the first sentence needs it."""
    if len(made) <= most:
        return made
    for end in (most, most + 1):
        kept = " ".join(line[len(rest) :] for line in made[:end]) + " "
        if ". " in kept:
            return wrap(kept[: kept.rindex(". ") + 1], width, made[0][: len(rest)], rest)
    return [*made[:most], f"{rest}..."]


def grid(table: Table, width: int) -> list[str]:
    """Return a table as lines with aligned columns that fit into `width`, as far as its columns allow it."""
    if not table.rows and not table.title:
        return []
    for dropped in range(len(table.spare) + 1):
        kept = [at for at in range(len(table.align)) if at not in table.spare[:dropped]]
        made = _aligned(table, kept)
        if table.wrap_first and (over := max(map(len, made)) - width) > 0:
            made = _aligned(table, kept, over)
        if max(map(len, made)) <= width:
            return made
    if table.narrow is not None:
        return grid(table.narrow, width)
    return [cut(line, width) for line in made]


def _aligned(table: Table, kept: Sequence[int], over: int = 0) -> list[str]:
    """The kept columns, each as wide as its widest cell; the first one narrower by `over` columns."""
    rows = [[_cell(row[at]) for at in kept] for row in (_names(table), *table.rows)]
    least = dict(enumerate(table.least))
    sizes = [max(least.get(at, 0), *(len(row[k]) for row in rows)) for k, at in enumerate(kept)]
    sizes[0] = min(sizes[0], max(_LEAST, sizes[0] - over)) if over else sizes[0]
    made = []
    for row in rows:
        hang = " " * (len(row[0]) - len(row[0].lstrip()) + 2)
        room = cut(row[0], _NAME_LINES * sizes[0])
        row[0], *more = textwrap.wrap(room, sizes[0], subsequent_indent=hang) or [""]
        sides = (table.align[at] for at in kept)
        cells = [f"{cell:{side}{size}}" for cell, side, size in zip(row, sides, sizes, strict=True)]
        made += ["  ".join(cells).rstrip(), *more]
    return made


def _names(table: Table) -> list[str]:
    return [table.title or table.head[0], *table.head[1:]]


def _cell(cell: Cell) -> str:
    """A cell as harmless text, indented as its row is."""
    said = words(cell)
    bare = said.strip()
    return said[: len(said) - len(said.lstrip())] + printable(bare, LONGEST) if bare else ""


def wrap(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Return a text as harmless lines of at most `width` columns; a number stays on one line with its unit."""
    if not text:
        return []
    # textwrap does not break at no-break spaces.
    # The settings file's tables keep their brackets.
    shown = re.sub(
        r"\((metrics|attributes|stages|scrape)\) in overrun\.toml",
        r"[\1] in overrun.toml",
        printable(text, LONGEST),
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
