"""How are words, tables and small pictures put on a page? HTML from values, every text from telemetry escaped; and the boxes for each state.

Route, model and service names come from the sender of telemetry: all text passes `text()`, which removes control characters and
bidirectional overrides and escapes markup. Streamlit's sanitizer stands behind it, not instead of it.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

import streamlit as st

from overrun.analysis.front.client import ClientError, Refused, TooOld, Unreachable
from overrun.analysis.front.document import Block, Cell, Figure, Items, Line, words
from overrun.analysis.words.finding import begun, printable
from overrun.dashboard import plot
from overrun.dashboard.theme import Theme, in_order, say_count, say_ms

_LONGEST_SENTENCE: Final = 2000
_ASK_AGAIN_S: Final = 3
# Columns that stand side by side on a phone.
_MOST_NARROW: Final = 3
# Hebrew, Arabic and their neighbours, with what joins the words of a name.
_LETTERS: Final = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc"
_BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=(?:%|ms|s|min|h|UTC)(?!\w))")
_RIGHT_TO_LEFT: Final = re.compile(f"[{_LETTERS}](?:[{_LETTERS} /._-]*[{_LETTERS}])?")
# What of a bar a letter of its label takes where a page is narrowest beside another column (7 of 560 pixels), and the room around it; the total stands
# beside the bar either way.
_LETTER: Final = 0.0125
_AROUND: Final = 0.025


def text(value: object, most: int = 80) -> str:
    """Return a text from anywhere as safe HTML of at most `most` characters."""
    return html.escape(isolated(printable(None if value is None else str(value), most)), quote=True)


def isolated(words: str) -> str:
    """Return words in which what is written from right to left stands for itself: the numbers beside a name keep their order."""
    return words if words.isascii() else _RIGHT_TO_LEFT.sub("\u2068\\g<0>\u2069", words)


def sentence(value: str) -> str:
    """Return a sentence of the report as safe HTML, however long."""
    return text(value, _LONGEST_SENTENCE)


def stated(words: str | None) -> str:
    """Return words of the API as a sentence of its own, safe HTML; empty without any."""
    return f"{begun(sentence(words))}." if words else ""


def whole(body: str) -> str:
    """Return HTML in which no line ends between a number and its unit."""
    return _BEFORE_UNIT.sub("\u00a0", body)


def put(body: str) -> None:
    """Place HTML that was made here on the page."""
    st.html(f'<div class="ov">{whole(body)}</div>')


def box(
    headline: str, paragraphs: Sequence[str], *, bad: bool = False, role: str = "status"
) -> str:
    """Return the headline box of a page; `headline` and `paragraphs` are safe HTML. `bad` is red and means over budget."""
    body = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs if paragraph)
    return f'<div class="ov-box{" ov-bad" if bad else ""}" role="{role}"><h1>{headline}</h1>{body}</div>'


def chip(stage: str, theme: Theme) -> str:
    """Return a stage's name on its colour."""
    return f'<span class="ov-chip" style="background:{theme.stage(stage)};color:{theme.on_stage(stage)}">{text(stage)}</span>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = "") -> str:
    """Return a table of safe HTML cells; the first column is left-aligned. On a phone each row of a wide one is a card, its cells under their column's name."""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    names = [cell.replace('"', "&quot;") for cell in head]
    body = "".join(
        "<tr>"
        + "".join(
            f'<td data-of="{name}">{cell}</td>' for name, cell in zip(names, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    wide = " ov-cards" if len(head) > _MOST_NARROW else ""
    return (
        f'<div class="ov-scroll{wide}"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
        + (f"<small>{caption}</small>" if caption else "")
    )


def local(start: datetime | None, end: datetime | None = None) -> str:
    """Return a place for a time (or a stretch) in the reader's own zone, which only the browser knows: the page's script (`anchors.SCRIPT`) fills it."""
    if start is None:
        return ""
    until = "" if end is None else f' data-to="{end.isoformat()}"'
    return f'<span class="ov-local" data-from="{start.isoformat()}"{until}></span>'


def copied(command: str) -> str:
    """Return a command with a button that copies it; the page's script (`anchors.SCRIPT`) does that."""
    return (
        f'<span class="ov-command"><code tabindex="0" role="group" aria-label="The command">{text(command, 1000)}</code>'
        f'<button type="button" class="ov-copy" aria-label="Copy the command">Copy</button></span>'
    )


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Return a list of questions and answers; answers are safe HTML, empty ones are left out."""
    body = "".join(f"<dt>{text(name)}</dt><dd>{answer}</dd>" for name, answer in pairs if answer)
    return f'<dl class="ov-facts">{body}</dl>' if body else ""


def blocks(groups: Iterable[Sequence[Block]]) -> str:
    """Return the lines, tables and lists of a document as safe HTML: what an answer says is built once, for every form."""
    return "".join(_block(block) for group in groups for block in group)


def _block(block: Block) -> str:
    if isinstance(block, Line):
        said = sentence(block.text) if block.text else ""
        if block.label:
            return facts([(block.label.strip().capitalize(), said)])
        return f"<p>{said}</p>" if said else ""
    title = f"<h2>{text(block.title.capitalize(), 200)}</h2>" if block.title else ""
    if isinstance(block, Items):
        listed = "".join(
            f"<li>{sentence(what)}{''.join(f'<br>{sentence(more)}' for more in rest)}</li>"
            for what, rest in block.entries
        )
        return f"{title}<ul>{listed}</ul>"
    # A column without a name is one that a screen reader cannot say.
    head = [text(name) if name else "note" if at else "what" for at, name in enumerate(block.head)]
    rows = [[_cell(cell) for cell in row] for row in block.rows]
    return title + table(head, rows, caption=sentence(block.note) if block.note else "")


def _cell(cell: Cell) -> str:
    bare = words(cell).strip()
    said = text(bare, 300) if bare else ""
    over = isinstance(cell, Figure) and cell.over
    return f'<span class="ov-over">▲ {said}</span>' if over else said


def strip(label: str, parts: dict[str, float], total: float, widest: float, theme: Theme) -> str:
    """Return one bar of stage times in ms, `widest` wide at 100 %; the total stands behind it."""
    cells = []
    for stage in in_order([name for name, value in parts.items() if value > 0.0]):
        share = parts[stage] / widest if widest > 0.0 else 0.0
        style = f"width:{100.0 * share:.3f}%;background:{theme.stage(stage)};color:{theme.on_stage(stage)}"
        title = f"{text(stage)} {say_ms(parts[stage])}"
        wide = share >= _AROUND + _LETTER * len(title)
        cells.append(
            f'<span class="{"" if wide else "ov-thin"}" style="{style}" title="{title}">{title if wide else ""}</span>'
        )
    spoken = ", ".join(
        f"{stage} {say_ms(parts[stage])}" for stage in in_order(list(parts)) if parts[stage] > 0.0
    )
    bar = f'<div class="ov-bar" role="img" aria-label="{text(f"{label}: {spoken}", 400)}">{"".join(cells)}</div>'
    return f'<div class="ov-strip"><span>{text(label)}</span>{bar}<span class="ov-end"><b>{say_ms(total)}</b></span></div>'


def limit_words(own_limits: int) -> str:
    """Return what a line at the limit is; requests that came with limits of their own are judged by those and not by it."""
    are = "is" if own_limits == 1 else "are"
    return (
        "limit"
        if not own_limits
        else f"the common limit ({say_count(own_limits, 'request')} {are} judged by their own limits)"
    )


def chart(spec: plot.Spec, key: str, **more: Any) -> None:
    """Draw a chart as it stands; `key` names it, and the picture that its button saves. `more` goes to Streamlit: alternative text, selection."""
    st.plotly_chart(plot.figure(spec), theme=None, config=plot.config(key), key=key, **more)


def spark(
    values: Sequence[float | None],
    theme: Theme,
    *,
    alt: str,
    limit: float | None = None,
    width: int = 168,
    height: int = 36,
) -> str:
    """Return a small line as an image; gaps where there is no value, a dashed line at the limit."""
    known = [value for value in values if value is not None]
    if not known:
        return '<small class="ov-muted">too few per step</small>'
    top = max([*known, limit or 0.0]) or 1.0
    step = (width - 4) / max(len(values) - 1, 1)
    runs: list[list[str]] = [[]]
    for i, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append(f"{2 + i * step:.1f},{height - 3 - (height - 6) * value / top:.1f}")
    ink = f'fill="none" stroke="{theme.accent}" stroke-width="1.6"'
    lines = [f'<polyline points="{" ".join(run)}" {ink}/>' for run in runs if len(run) > 1]
    lines += [
        f'<circle cx="{run[0].split(",")[0]}" cy="{run[0].split(",")[1]}" r="1.8" fill="{theme.accent}"/>'
        for run in runs
        if len(run) == 1
    ]
    if limit is not None:
        y = height - 3 - (height - 6) * limit / top
        lines.append(
            f'<line x1="0" x2="{width}" y1="{y:.1f}" y2="{y:.1f}" stroke="{theme.muted}" stroke-width="1" stroke-dasharray="4 3"/>'
        )
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">{"".join(lines)}</svg>'
    source = base64.b64encode(svg.encode()).decode()
    return f'<img src="data:image/svg+xml;base64,{source}" width="{width}" height="{height}" alt="{text(alt, 300)}">'


@contextmanager
def errors_as_boxes(answers: Callable[[], bool]) -> Iterator[None]:
    """Show what the server refuses, or that there is none, as a sentence with its remedy; `answers` tells whether there is one again."""
    try:
        yield
    except ClientError as error:
        gone = isinstance(error, Unreachable)
        when = (
            f"every {_ASK_AGAIN_S} s and updates by itself"
            if gone
            else "again when you change a filter or reload the page"
        )
        put(box(_headline(error), [stated(str(error)), f"This page checks {when}."], role="alert"))
        if gone:
            st.fragment(_until_back, run_every=_ASK_AGAIN_S, key="back")(answers)


def _until_back(answers: Callable[[], bool]) -> None:
    if answers():
        st.rerun(scope="app")


def _headline(error: ClientError) -> str:
    if isinstance(error, Unreachable):
        return "The server cannot be reached"
    if isinstance(error, TooOld):
        return "The server and this dashboard are of different versions"
    return (
        "The server refuses this question"
        if isinstance(error, Refused) and error.status < 500
        else "The server failed at this question"
    )
