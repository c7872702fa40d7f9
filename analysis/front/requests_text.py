"""Which requests took longest, in a terminal? One line a request, with the id that `overrun report --trace` draws."""

from __future__ import annotations

from typing import Final

from overrun.analysis.front.text_layout import cut, fitted
from overrun.analysis.numbers.requests.request_list import RequestList, RequestRow
from overrun.analysis.words.finding import printable, say_count, say_ms

_HEAD: Final = ("START", "E2E", "TTFT", "MOST TIME", "", "TRACE", "ROUTE", "MODEL", "ERROR")
_ALIGN: Final = "<>><><<<<"
# What goes first where the terminal is narrow: the columns of model, route and first token. Beside an error the stage goes too.
_SPARE: Final = (7, 6, 2)
_CELL: Final = 24


def render(found: RequestList, width: int = 100, source: str = "") -> str:
    """The list as a table of at most `width` columns, and the command that draws one of its requests; `source` names where they are (`--db FILE`)."""
    if not found.rows:
        return "No such request is stored in this window: widen --since, or leave a filter out."
    by_stage = found.sort if found.sort in found.rows[0].stages else None
    days = {row.start.date() for row in found.rows}
    form = "%H:%M:%S" if len(days) == 1 else "%d %b %H:%M:%S"
    rows = [_HEAD, *(_cells(row, by_stage, form) for row in found.rows)]
    if by_stage:
        rows[0] = (*_HEAD[:3], "STAGE", *_HEAD[4:])
    failed = any(row[-1] for row in rows[1:])
    align, spare = (_ALIGN, (*_SPARE, 4, 3)) if failed else (_ALIGN[:-1], _SPARE)
    rows = [row[: len(align)] for row in rows]
    shown = f"{len(found.rows):,} of {say_count(found.total, 'request')}"
    return "\n".join(
        [
            f"{shown}, by {found.sort}, {'newest' if found.sort in ('start', 'errors') else 'largest'} first, "
            + (f"{found.rows[0].start:%d %b %Y} UTC" if len(days) == 1 else "UTC"),
            "",
            *(cut(line, width) for line in fitted(rows, align, width, spare)),
            "",
            f"SEE  overrun report --trace {found.rows[0].trace_id}{source}",
        ]
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
