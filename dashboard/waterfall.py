"""How does one request look? Its spans as rows of HTML bars: the critical path inked, everything else faded, the first token as a line through all.

HTML and not a figure: it is as wide as the page (a phone too), it scrolls, it is read aloud row by row, and 10,000 spans cost what the shown
rows cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from overrun.analysis.numbers.requests.request_trace import PathPiece, Trace, TraceSpan
from overrun.dashboard import ui
from overrun.dashboard.theme import Theme, say_ms, say_tick, ticks

# A trace with more spans shows those on the path, those that failed and the longest others; the rest is a line per parent.
MOST_ROWS: Final = 120
PAGE_ROWS: Final = 200
_DEEPEST: Final = 12
# How far up a parent is looked for: traces that are deeper than this are chains, and chains may lead back to themselves.
_DEEPEST_FOLD: Final = 64
_NAME_LENGTH: Final = 60
# A gap between a client's span and the engine's below a thousandth of the request is a line of nothing.
_LEAST_GAP: Final = 0.001
# A smaller part of the request is not nothing.
_LEAST_SHARE: Final = 0.005
_INDENT_PX: Final = 11
# What page.js does with a waterfall, as buttons and keys.
_TOOLS: Final = (
    '<div class="ov-tools"><input type="search" class="ov-find" placeholder="Find a span" aria-label="Find a span by any of its words; Enter goes to the next">'
    '<small class="ov-found" role="status"></small><button type="button" data-do="fold" aria-pressed="false">Critical path only</button>'
    '<button type="button" data-do="in" aria-label="Zoom in">+</button><button type="button" data-do="out" aria-label="Zoom out">−</button>'
    '<button type="button" data-do="left" aria-label="Earlier">‹</button><button type="button" data-do="right" aria-label="Later">›</button>'
    '<button type="button" data-do="all">Whole request</button><small class="ov-shown" role="status"></small>'
    '<small class="ov-keys">keys: + − zoom, ← → move, 0 whole, / find, f critical path, n p next and previous request</small></div>'
)
# Pieces of the path that are a pixel of a wide screen apart, or less, are drawn as one.
_LEAST_APART: Final = 0.0007


@dataclass(frozen=True, slots=True)
class Row:
    """A span, or `hidden` spans under one parent that are not drawn (`span` is then the parent)."""

    span: TraceSpan
    hidden: int = 0
    longest_ms: float = 0.0


def main_rows(spans: Sequence[TraceSpan], most: int = MOST_ROWS) -> list[Row]:
    """Return the rows to draw, in the order of a tree: all spans, or of many the ones that matter, their parents, and a count of the others."""
    if len(spans) <= most:
        return [Row(span) for span in spans]
    at = {span.span_id: i for i, span in enumerate(spans)}
    ranked = sorted(
        range(len(spans)),
        key=lambda i: (-spans[i].path_ms, not spans[i].error, -spans[i].duration_ms),
    )
    kept: set[int] = set()
    for i in ranked:
        chain = [i]
        while (
            (up := at.get(spans[chain[-1]].parent_span_id or "")) is not None
            and up not in chain
            and up not in kept
            and len(chain) < _DEEPEST_FOLD
        ):
            chain.append(up)
        kept.update(chain if len(kept) + len(chain) <= most else chain[:1])
        if len(kept) >= most:
            break
    hidden: dict[int | None, list[float]] = {}
    for i, span in enumerate(spans):
        if i not in kept:
            hidden.setdefault(_drawn_above(i, spans, at, kept), []).append(span.duration_ms)
    rows: list[Row] = []
    for i in sorted(kept):
        rows.append(Row(spans[i]))
        if folded := hidden.get(i):
            rows.append(Row(spans[i], len(folded), max(folded)))
    if rest := hidden.get(None):
        rows.append(Row(spans[min(kept)], len(rest), max(rest)))
    return rows


def _drawn_above(
    i: int, spans: Sequence[TraceSpan], at: Mapping[str, int], kept: set[int]
) -> int | None:
    """The nearest parent that is drawn, None where none of the next ones is."""
    up: int | None = i
    for _ in range(_DEEPEST_FOLD):
        up = at.get(spans[up].parent_span_id or "") if up is not None else None
        if up is None or up in kept:
            return up
    return None


def render(
    trace: Trace,
    rows: Sequence[Row],
    theme: Theme,
    typical: Sequence[tuple[str, float]] = (),
    upto: str = "",
) -> str:
    """Return the rows as safe HTML with an axis in time since the request's start.

    `typical` are stages (name, ms) of a typical request, in order, which stand above as ghost bars; `upto` says where they end.
    """
    total = max(
        trace.e2e_ms + trace.wait_user_ms,
        *(span.start_ms + span.duration_ms for span in trace.spans),
        1e-6,
    )
    pieces: dict[str, list[PathPiece]] = {}
    for piece in trace.path:
        pieces.setdefault(piece.span_id, []).append(piece)
    engines = {
        span.parent_span_id: span
        for span in trace.spans
        if span.role == "engine" and span.parent_span_id
    }
    token = (
        ""
        if trace.ttft_ms is None
        else f'<i class="ov-token" style="--l:{_at(trace.ttft_ms, total)}"></i>'
    )
    body = [_ghost(typical, upto, total, theme)] if typical else []
    parents = {row.span.parent_span_id for row in rows if not row.hidden}
    for row in rows:
        if row.hidden:
            body.append(_folded(row, token))
            continue
        below = row.span.span_id in parents
        drawn = _row(row.span, pieces.get(row.span.span_id, []), trace, total, theme, token)
        body.append(_line(row.span.depth, _fold(row.span) + drawn if below else drawn))
        if row.span.role == "llm" and (engine := engines.get(row.span.span_id)) is not None:
            body.append(_gap(row.span, engine, total, token))
    marks = "".join(
        f'<i style="--l:{_at(mark, total)}">{say_tick(mark)}</i>'
        for mark in ticks(total)
        if mark <= 0.97 * total
    )
    first = "" if trace.ttft_ms is None else _first_token(trace.ttft_ms, total)
    return (
        f'<figure class="ov-trace" data-total="{total:.6g}" aria-label="{words(trace)}">{_TOOLS}'
        f'<div class="ov-row ov-axis"><span></span><div class="ov-lane">{marks}{first}</div></div>'
        f'<div class="ov-rows" tabindex="0" role="group" aria-label="Spans">{"".join(body)}</div></figure>'
    )


def _line(depth: int, body: str) -> str:
    """A row with its depth, by which the page's script folds what is below it."""
    return f'<div class="ov-line" data-depth="{depth}">{body}</div>' if body else ""


def _fold(span: TraceSpan) -> str:
    name = ui.text(span.name, _NAME_LENGTH)
    return (
        f'<button type="button" class="ov-fold" aria-expanded="true" style="left:{min(span.depth, _DEEPEST) * _INDENT_PX}px" '
        f'aria-label="Spans below {name}">▾</button>'
    )


def words(trace: Trace) -> str:
    """The waterfall's description for those who do not see it, as safe text."""
    parts = ", ".join(
        f"{stage} {say_ms(ms)}"
        for stage, ms in sorted(trace.stages.items(), key=lambda part: -part[1])
    )
    return ui.text(
        f"Waterfall of {len(trace.spans)} spans, {say_ms(trace.e2e_ms)} end to end; critical path: {parts}",
        500,
    )


def gap_ms(client: TraceSpan, engine: TraceSpan) -> tuple[float, float]:
    """Return the time between the client's span and the engine's, before and after it, in ms (0 where they overlap)."""
    before = engine.start_ms - client.start_ms
    after = client.start_ms + client.duration_ms - engine.start_ms - engine.duration_ms
    return max(before, 0.0), max(after, 0.0)


def until(pieces: Sequence[PathPiece], end_ms: float) -> dict[str, float]:
    """Return the milliseconds of each stage on the critical path before a time."""
    found: dict[str, float] = {}
    for piece in pieces:
        if piece.from_ms < end_ms:
            found[piece.stage] = (
                found.get(piece.stage, 0.0) + min(piece.to_ms, end_ms) - piece.from_ms
            )
    return found


@dataclass(slots=True)
class Run:
    """Pieces of the critical path that stand so close that they are drawn as one: of its length, `path_ms` are theirs."""

    stage: str
    from_ms: float
    to_ms: float
    path_ms: float
    pieces: int = 1


def runs(pieces: Sequence[PathPiece], least_ms: float) -> list[Run]:
    """Return pieces of one span, in the order of time, with those less than `least_ms` apart as one: a parent of 10,000 spans has as many of them."""
    out: list[Run] = []
    for piece in pieces:
        length = piece.to_ms - piece.from_ms
        if out and out[-1].stage == piece.stage and piece.from_ms - out[-1].to_ms < least_ms:
            out[-1].to_ms, out[-1].path_ms, out[-1].pieces = (
                piece.to_ms,
                out[-1].path_ms + length,
                out[-1].pieces + 1,
            )
        else:
            out.append(Run(piece.stage, piece.from_ms, piece.to_ms, length))
    return out


def _ink(run: Run, total: float, theme: Theme) -> str:
    length = run.to_ms - run.from_ms
    # As dark as the part of it that is on the path.
    faint = (
        f";opacity:{max(run.path_ms / length, 0.3):.2f}"
        if run.pieces > 1 and run.path_ms < 0.99 * length
        else ""
    )
    many = f" in {run.pieces:,} pieces" if run.pieces > 1 else ""
    return (
        f'<i class="ov-ink" style="{_span(run.from_ms, length, total)};background:{theme.stage(run.stage)}{faint}" '
        f'title="{ui.text(run.stage)} on the critical path, {say_ms(run.path_ms)}{many}"></i>'
    )


def _row(
    span: TraceSpan,
    pieces: Sequence[PathPiece],
    trace: Trace,
    total: float,
    theme: Theme,
    token: str,
) -> str:
    bars = [
        f'<i class="ov-off" style="{_span(span.start_ms, span.duration_ms, total)};background:{theme.stage(span.stage)}"></i>'
    ]
    bars += [_ink(run, total, theme) for run in runs(pieces, _LEAST_APART * total)]
    share = _share(span.path_ms / trace.e2e_ms) if span.path_ms > 0.0 and trace.e2e_ms > 0.0 else ""
    name = ui.text(span.name, _NAME_LENGTH)
    shown = f"<b>{name}</b>" if span.path_ms > 0.0 else name
    return (
        f'<details class="ov-span"><summary class="ov-row"><span class="ov-name" style="padding-left:{min(span.depth, _DEEPEST) * _INDENT_PX}px" title="{name}">'
        f'{"✗ " if span.error else ""}{shown}</span><div class="ov-lane">{"".join(bars)}{token}'
        f"{_label(span.start_ms, span.duration_ms, total, say_ms(span.duration_ms) + share)}</div></summary>{_panel(span)}</details>"
    )


def _ghost(parts: Sequence[tuple[str, float]], upto: str, total: float, theme: Theme) -> str:
    """A typical request in the same scale, stage behind stage."""
    bars, begun = [], 0.0
    for stage, ms in parts:
        bars.append(
            f'<i class="ov-ghost" style="{_span(begun, ms, total)};border-color:{theme.stage(stage)}" title="{ui.text(stage)} {say_ms(ms)}"></i>'
        )
        begun += ms
    return (
        f'<div class="ov-line" data-depth="0"><div class="ov-row"><span class="ov-name ov-muted">typical request{ui.text(upto) if upto else ""}</span>'
        f'<div class="ov-lane">{"".join(bars)}{_label(0.0, begun, total, say_ms(begun))}</div></div></div>'
    )


def _share(ratio: float) -> str:
    return f" · {100.0 * ratio:.0f} %" if ratio >= _LEAST_SHARE else " · &lt; 1 %"


def _first_token(ttft_ms: float, total: float) -> str:
    words = f"first token {say_ms(ttft_ms)}"
    if ttft_ms < 0.7 * total:
        return f'<b style="--l:{_at(ttft_ms, total)}">{words}</b>'
    return f'<b class="ov-left" style="--l:{_at(ttft_ms, total)}">{words}</b>'


def _gap(client: TraceSpan, engine: TraceSpan, total: float, token: str) -> str:
    before, after = gap_ms(client, engine)
    if before + after < _LEAST_GAP * total:
        return ""
    said = f"{say_ms(before)} before and {say_ms(after)} after the engine's span"
    bars = "".join(
        f'<i class="ov-gap" style="{_span(start, length, total)}"></i>'
        for start, length in (
            (client.start_ms, before),
            (engine.start_ms + engine.duration_ms, after),
        )
        if length > 0.0
    )
    end = client.start_ms + client.duration_ms
    return _line(
        client.depth + 1,
        f'<div class="ov-row"><span class="ov-name ov-muted" style="padding-left:{min(client.depth + 1, _DEEPEST) * _INDENT_PX}px" title="{said}">'
        f'gap client ↔ engine</span><div class="ov-lane">{bars}{token}{_label(end, 0.0, total, say_ms(before + after))}</div></div>',
    )


def _folded(row: Row, token: str) -> str:
    return _line(
        row.span.depth + 1,
        f'<div class="ov-row"><span class="ov-name ov-muted" style="padding-left:{min(row.span.depth + 1, _DEEPEST) * _INDENT_PX}px">'
        f'+ {row.hidden:,} more</span><div class="ov-lane">{token}<em>folded, the longest {say_ms(row.longest_ms)}</em></div></div>',
    )


def _label(start: float, length: float, total: float, said: str) -> str:
    # Behind the bar where there is room, else in front of it.
    end = 100.0 * (start + length) / total
    if end < 80.0:
        return f'<em style="--l:{end:.2f}">{said}</em>'
    if start < 0.25 * total:
        return f'<em class="ov-inside">{said}</em>'
    return f'<em class="ov-before" style="--l:{100.0 * start / total:.2f}">{said}</em>'


def _span(start: float, length: float, total: float) -> str:
    return f"--l:{_at(start, total)};--w:{max(100.0 * length / total, 0.0):.3f}"


def _at(ms: float, total: float) -> str:
    """Where a time lies in the lane, in per cent without the sign: the style sheet moves it by the part that is looked at."""
    return f"{100.0 * min(max(ms / total, 0.0), 1.0):.3f}"


def _panel(span: TraceSpan) -> str:
    """What is known of a span, below its row once that is opened."""
    facts: Mapping[str, object] = {
        "span": span.name,
        "service": span.service,
        "instance": span.instance,
        "host": span.host,
        "error": span.error_type,
        "stage": span.stage,
        "starts at": say_ms(span.start_ms),
        "takes": say_ms(span.duration_ms),
        "on the critical path": say_ms(span.path_ms) if span.path_ms > 0.0 else None,
        "model": span.model,
        "tokens in": span.input_tokens,
        "tokens out": span.output_tokens,
        "first token after": say_ms(span.ttft_ms) if span.ttft_ms is not None else None,
        "span id": span.span_id,
        "note": ", ".join(
            [
                *(["parent inferred"] if span.inferred_parent else []),
                *(["clock shifted"] if span.clock_shifted else []),
                *(["failed"] if span.error else []),
            ]
        )
        or None,
    }
    own = " · ".join(
        f"{name} <strong>{ui.text(value, 200)}</strong>"
        for name, value in facts.items()
        if value is not None
    )
    others = " · ".join(
        f"{ui.text(name)} <strong>{ui.text(value, 300)}</strong>"
        for name, value in sorted(span.attributes.items())
    )
    return f"<p>{own}{'<br>' if others else ''}{others}</p>"
