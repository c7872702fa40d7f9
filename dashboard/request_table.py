"""Which requests are listed? A table of HTML whose rows are links: each click is one step of the history, and the chosen row is marked.

Streamlit's table would be 270 kB of program more, a canvas that no link can point into, and does not know which row another control chose.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Final
from urllib.parse import urlencode

from overrun.analysis.numbers.requests.request_list import RequestList, RequestRow
from overrun.dashboard import ui
from overrun.dashboard.theme import in_order, say_ms

# A name that is longer is cut, and stands whole in its tooltip.
_NAME: Final = 40
Stages = Callable[[RequestRow], Mapping[str, float]]


def render(
    listed: RequestList,
    stages_of: Stages,
    *,
    kept: Mapping[str, str],
    chosen: str | None,
    label: str,
) -> str:
    """Return the requests as safe HTML, those first that the server put first; `chosen` is the trace id of the marked row.

    `kept` are parameters of the address, beside the filters, that stay when another request is chosen.
    """
    if not listed.rows:
        return ""
    slowest = max(row.e2e_ms for row in listed.rows) or 1.0
    widest = max(sum(stages_of(row).values()) for row in listed.rows) or 1.0
    columns = _columns(stages_of, slowest, widest)
    shown = [name for name, cell in columns.items() if any(cell(row)[1] for row in listed.rows)]
    wide = "".join(
        f'<th scope="col" class="{_WHERE.get(name, "")}"><button type="button">{name}</button></th>'
        for name in shown
    )
    days = len({row.start.astimezone(UTC).date() for row in listed.rows}) > 1
    first = chosen or listed.rows[0].trace_id
    body = []
    for row in listed.rows:
        current = row.trace_id == first
        address = ui.text(f"/traces?{urlencode({**kept, 'trace': row.trace_id})}", 2000)
        start = row.start.astimezone(UTC)
        clock = f"{start:{'%m-%d ' if days else ''}%H:%M:%S}.{start.microsecond // 1000:03d}"
        cells = "".join(
            f'<td class="{_WHERE.get(name, "")}" data-v="{value}"{style}>{shown_as}</td>'
            for name in shown
            for value, shown_as, style in (columns[name](row),)
        )
        body.append(
            f'<tr{" aria-current=true" if current else ""}><td data-v="{start.timestamp():.3f}"><a class="ov-go" href="{address}" '
            f'tabindex="{0 if current else -1}" aria-label="Request of {clock} UTC, E2E {say_ms(row.e2e_ms)}">{clock}</a></td>{cells}</tr>'
        )
    return (
        f'<div class="ov-scroll ov-list" role="region" aria-label="{ui.text(label, 200)}"><table><thead><tr><th scope="col">'
        f'<button type="button">start (UTC)</button></th>{wide}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
        "<small>Click a row to see its spans, a column's name to sort the listed requests by it; by keyboard ↑ ↓ and Enter.</small>"
    )


# Left out on a phone, or set to the left.
_WHERE: Final = {
    **dict.fromkeys(("tokens out", "service", "route", "model", "trace id"), "ov-hide"),
    "stages": "ov-hide ov-mini",
    "E2E": "ov-level",
    "TTFT": "ov-level",
}
Cell = tuple[str, str, str]


def _columns(
    stages_of: Stages, slowest: float, widest: float
) -> dict[str, Callable[[RequestRow], Cell]]:
    """For each column what a row sorts by, what it shows as safe HTML, and the cell's style."""

    def time(value: float | None) -> Cell:
        if value is None:
            return "-1", "", ""
        return f"{value:.3f}", say_ms(value), f' style="--w:{100.0 * value / slowest:.1f}%"'

    def most(row: RequestRow) -> Cell:
        stages = stages_of(row)
        stage = max(stages, key=stages.__getitem__, default=None)
        if stage is None:
            return "0", "", ""
        return f"{stages[stage]:.3f}", f"{ui.text(stage)} {say_ms(stages[stage])}", ""

    def bar(row: RequestRow) -> Cell:
        stages = stages_of(row)
        parts = "".join(
            f'<i class="ov-s-{stage.replace("_", "-")}" style="width:{100.0 * stages[stage] / widest:.1f}%"></i>'
            for stage in in_order(list(stages))
            if stages[stage] > 0.005 * widest
        )
        spoken = ", ".join(
            f"{stage} {say_ms(stages[stage])}"
            for stage in in_order(list(stages))
            if stages[stage] > 0.0
        )
        shown = (
            f'<span class="ov-bar" title="{ui.text(spoken, 300)}">{parts}</span>' if parts else ""
        )
        return f"{sum(stages.values()):.3f}", shown, ""

    def name(value: str | None) -> Cell:
        if not value:
            return "", "", ""
        whole = ui.text(value, 300)
        cut = ui.text(value, _NAME)
        return whole, cut, f' title="{whole}"' if len(value) > _NAME else ""

    def status(row: RequestRow) -> Cell:
        words = "ok" if row.status == "ok" else f"✗ {ui.text(row.error_type or 'error', _NAME)}"
        return words, words, ""

    return {
        "E2E": lambda row: time(row.e2e_ms),
        "TTFT": lambda row: time(row.ttft_ms),
        "slowest stage": most,
        "stages": bar,
        "tokens out": lambda row: (
            str(row.output_tokens or 0),
            "" if row.output_tokens is None else f"{row.output_tokens:,}",
            "",
        ),
        "service": lambda row: name(row.service),
        "route": lambda row: name(row.route),
        "model": lambda row: name(row.model),
        "status": status,
        "trace id": lambda row: (row.trace_id, row.trace_id[:8], f' title="{row.trace_id}"'),
    }
