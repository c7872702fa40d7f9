"""Which requests took longest, in a terminal? One line a request, with the id that `overrun report --trace` draws."""

from __future__ import annotations

from typing import Final

from overrun.analysis.front.document import Document, Line, Table
from overrun.analysis.numbers.requests.request_list import RequestList, RequestRow
from overrun.analysis.words.finding import printable, say_count, say_ms

_HEAD: Final = ("START", "E2E", "TTFT", "MOST TIME", "", "TRACE", "ROUTE", "MODEL", "ERROR")
_ALIGN: Final = "<>><><<<<"
# What goes first where the terminal is narrow: the columns of model, route and first token. Beside an error the stage goes too.
_SPARE: Final = (7, 6, 2)
_CELL: Final = 24


def document(found: RequestList, source: str = "") -> Document:
    """Return the list of requests."""
    if not found.rows:
        return Document(
            [],
            lead="No such request is stored in this window: widen --since, or leave a filter out.",
        )
    by_stage = found.sort if found.sort in found.rows[0].stages else None
    one_day = len({row.start.date() for row in found.rows}) == 1
    rows = [
        _cells(row, by_stage, "%H:%M:%S" if one_day else "%d %b %H:%M:%S") for row in found.rows
    ]
    failed = any(row[-1] for row in rows)
    align, spare = (_ALIGN, (*_SPARE, 4, 3)) if failed else (_ALIGN[:-1], _SPARE)
    head = (*_HEAD[:3], "STAGE" if by_stage else _HEAD[3], *_HEAD[4:])
    shown = f"{len(found.rows):,} of {say_count(found.total, 'request')}"
    order = "newest" if found.sort in ("start", "errors") else "largest"
    day = f"{found.rows[0].start:%d %b %Y} " if one_day else ""
    table = Table(head[: len(align)], [row[: len(align)] for row in rows], align, spare=spare)
    see = f"overrun report --trace {found.rows[0].trace_id}{source}"
    return Document(
        [[table], [Line((see,), "SEE ", copied=True)]],
        lead=f"{shown}, by {found.sort}, {order} first, {day}UTC",
    )


def _cells(row: RequestRow, by_stage: str | None, form: str) -> tuple[str, ...]:
    stage = by_stage or row.slowest_stage
    return (
        row.start.strftime(form),
        say_ms(row.e2e_ms),
        "-" if row.ttft_ms is None else say_ms(row.ttft_ms),
        stage or "-",
        say_ms(row.stages.get(stage, 0.0)) if stage else "",
        row.trace_id,
        printable(row.route, _CELL) if row.route else "-",
        printable(row.model, _CELL) if row.model else "-",
        printable(row.error_type or row.status, _CELL) if row.status != "ok" else "",
    )
