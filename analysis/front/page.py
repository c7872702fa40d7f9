"""How is a document written as a file? Markdown for tickets and chats, and one self-contained HTML page that opens without a network.

Every text is escaped: Markdown shows no link, image or raw HTML that came in with telemetry, and the page loads nothing and runs nothing.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Final

from overrun.analysis.front.document import (
    LONGEST,
    Block,
    Document,
    Figure,
    Items,
    Line,
    words,
)
from overrun.analysis.words.finding import printable

_STYLE: Final = """
:root{color-scheme:light dark;--ink:#1a1a1a;--soft:#5c5c5c;--line:#d9d9d9;--bad:#b3261e;--ok:#1b6e3a}
@media(prefers-color-scheme:dark){:root{--ink:#ececec;--soft:#a8a8a8;--line:#3d3d3d;--bad:#ff8a80;--ok:#7bd69a}body{background:#161616}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);max-width:62rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.1rem;letter-spacing:.04em}h2{font-size:1rem;margin:2rem 0 .5rem}.lead{font-size:1.25rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}td,th{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:right}
.left{text-align:left}small,.soft{color:var(--soft)}.bad{color:var(--bad)}.ok{color:var(--ok)}.wide{overflow-x:auto}
@media print{body{margin:0;max-width:none}}
"""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


def to_markdown(document: Document) -> str:
    """Return a document as GitHub-flavoured Markdown, ending in a newline."""
    scope = f" ({_md(', '.join(document.scope))})" if document.scope else ""
    parts = [
        f"## {_md(document.status)}{scope}" if document.status else "",
        _md(document.lead),
    ]
    parts += [_markdown(block) for group in document.groups for block in group]
    return "\n\n".join(part for part in parts if part) + "\n"


def _markdown(block: Block) -> str:
    if isinstance(block, Line):
        if not block.text:
            return ""
        if block.copied:
            return f"{_md(block.label)} `{printable(block.text, LONGEST).replace('`', '')}`".strip()
        said = [_md(part) for part in block.parts if part]
        label = f"**{_md(block.label.strip())}**" if block.label.strip() else ""
        if len(said) == 1:
            return f"{label} {said[0]}".strip()
        return f"{label}\n\n".lstrip() + "\n".join(f"- {one}" for one in said)
    title = f"### {_md(_titled(block.title))}\n\n" if block.title else ""
    if isinstance(block, Items):
        entries = [
            f"{f'{number}.' if block.mark == '1' else '-'} {_md(text)}"
            + "".join(f"\n   - {_md(more)}" for more in rest)
            for number, (text, rest) in enumerate(block.entries, 1)
        ]
        return title + "\n".join(entries)
    rows = [[*block.head], *([words(cell).strip() for cell in row] for row in block.rows)]
    said = [f"| {' | '.join(_md(cell) for cell in row)} |" for row in rows]
    said.insert(1, "|" + "".join("---|" if side == "<" else "---:|" for side in block.align))
    return title + "\n".join(said) + (f"\n\n{_md(block.note)}" if block.note else "")


def to_html(document: Document) -> str:
    """Return a document as one HTML page without scripts, links to other hosts or external styles."""
    scope = _esc(", ".join(document.scope)) if document.scope else ""
    parts = [
        f"<h1><span class={document.tone}>{_esc(document.status)}</span> <small>{scope}</small></h1>",
        f"<p class=lead>{_esc(document.lead)}</p>" if document.lead else "",
        *(_html(block) for group in document.groups for block in group),
    ]
    title = _esc(f"Overrun: {document.status.lower()}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><title>{title}</title><style>{_STYLE}</style></head>\n<body>\n'
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def _html(block: Block) -> str:
    if isinstance(block, Line):
        said = [_esc(part) for part in block.parts if part]
        label = f"<b>{_esc(block.label.strip())}</b> " if block.label.strip() else ""
        if block.copied:
            return f"<p>{label}<code>{_esc(block.text)}</code></p>" if block.text else ""
        if len(said) < 2:
            return f"<p>{label}{said[0]}</p>" if said else ""
        return f"<div>{label}{_listed(said)}</div>"
    title = f"<h2>{_esc(_titled(block.title))}</h2>" if block.title else ""
    if isinstance(block, Items):
        return title + "".join(
            f"<p><b>{_esc(text)}</b></p>{_listed([_esc(more) for more in rest]) if rest else ''}"
            for text, rest in block.entries
        )
    head = "".join(
        f"<th{_left(side)}>{_esc(name) if name else ''}</th>"
        for name, side in zip(block.head, block.align, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row, block.align))}</tr>" for row in block.rows)
    note = f"<p class=soft>{_esc(block.note)}</p>" if block.note else ""
    return f"{title}<div class=wide><table><tr>{head}</tr>{body}</table></div>{note}"


def _listed(said: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{one}</li>' for one in said)}</ul>"


def _cell(cell: str | Figure, side: str) -> str:
    over = isinstance(cell, Figure) and cell.over
    text = words(cell)
    indent = "&emsp;" * ((len(text) - len(text.lstrip())) // 2)
    kinds = [*(["left"] if side == "<" else []), *(["bad"] if over else [])]
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    return f"<td{kind}>{indent}{_esc(text) if text.strip() else ''}</td>"


def _left(side: str) -> str:
    return " class=left" if side == "<" else ""


def _titled(title: str) -> str:
    """A terminal's title as a heading: `EARLY WARNING` becomes `Early warning`."""
    first, *rest = title.split(" ")
    small = [word.lower() if word.isupper() and len(word) > 3 else word for word in rest]
    return " ".join([first.capitalize(), *small])


def _esc(text: str) -> str:
    return html.escape(printable(text, LONGEST))


def _md(text: str) -> str:
    """Text that Markdown shows as it is: no links, no images, no raw HTML, no table breaks."""
    kept = printable(text, LONGEST) if text.strip() else ""
    kept = "".join(f"\\{char}" if char in "\\`*_|#!~" else char for char in kept)
    return kept.replace("<", "&lt;").replace(">", "&gt;").replace("://", "&#58;//")
