"""How does one request look in a terminal? A waterfall of its spans with the critical path inked; a pure function from a Trace to text."""

from __future__ import annotations

from overrun.analysis.numbers.requests.request_trace import Trace, TraceSpan
from overrun.analysis.words.finding import printable, say_ms, say_ratio

# On the critical path, and not; they differ in shape, so that no colour is needed.
_INK, _FADED = "█", "·"
# A trace with more spans than this shows those on the path and the longest others.
MAX_ROWS = 60
_LABEL, _NUMBERS = 0.42, 24


def render(trace: Trace, width: int = 100) -> str:
    """The waterfall of a request, at most `width` columns wide (at least 60)."""
    width = max(width, 60)
    rows = _chosen(trace.spans)
    label = int((width - _NUMBERS) * _LABEL)
    bar = width - _NUMBERS - label
    scale = bar / max(trace.e2e_ms + trace.wait_user_ms, 1e-9)
    ttft = "TTFT not measured" if trace.ttft_ms is None else f"TTFT {say_ms(trace.ttft_ms)}"
    lines = [
        f"trace {trace.trace_id}  {printable(trace.service)}  {printable(trace.route) if trace.route else ''}",
        f"start {trace.start}  E2E {say_ms(trace.e2e_ms)}  {ttft}  {len(trace.spans)} spans",
        "critical path: "
        + ", ".join(
            f"{stage} {say_ms(ms)} ({say_ratio(round(ms / max(trace.e2e_ms, 1e-9), 2))})"
            for stage, ms in _largest(trace.stages)
        ),
        "",
        f"{'span':<{label}}{'':<{bar}}{'stage':>12}{'on path':>12}",
    ]
    lines += [_row(span, trace, label, bar, scale) for span in rows]
    if len(rows) < len(trace.spans):
        lines.append(f"{len(trace.spans) - len(rows)} shorter spans off the path are not shown")
    first_token = "" if trace.ttft_ms is None else "   ▏ first token"
    lines += [
        "",
        f"{_INK} on the critical path   {_FADED} running, but not on the critical path{first_token}",
    ]
    return "\n".join(lines)


def _chosen(spans: list[TraceSpan]) -> list[TraceSpan]:
    if len(spans) <= MAX_ROWS:
        return spans
    ranked = sorted(range(len(spans)), key=lambda i: (-spans[i].path_ms, -spans[i].duration_ms))
    return [spans[i] for i in sorted(ranked[:MAX_ROWS])]


def _largest(stages: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(stages.items(), key=lambda item: -item[1])[:5]


def _row(span: TraceSpan, trace: Trace, label: int, bar: int, scale: float) -> str:
    indent = "  " * min(span.depth, 8)
    name = _fit(f"{indent}{'! ' if span.error else ''}{printable(span.name)}", label - 1)
    cells = [" "] * bar
    inked = {
        i
        for p in trace.path
        if p.span_id == span.span_id
        for i in _cells(p.from_ms, p.to_ms, scale, bar)
    }
    for i in _cells(span.start_ms, span.start_ms + span.duration_ms, scale, bar):
        cells[i] = _FADED
    for i in inked:
        cells[i] = _INK
    if trace.ttft_ms is not None:
        at = min(int(trace.ttft_ms * scale), bar - 1)
        cells[at] = cells[at] if cells[at] == _INK else "▏"
    on_path = say_ms(span.path_ms) if span.path_ms > 0 else "-"
    return f"{name:<{label}}{''.join(cells)}{span.stage:>12}{on_path:>12}"


def _cells(start_ms: float, end_ms: float, scale: float, bar: int) -> range:
    """Columns that an interval covers: at least one if it lies in the picture."""
    first = int(start_ms * scale)
    last = max(first + 1, round(end_ms * scale))
    return range(max(first, 0), min(last, bar)) if first < bar else range(bar - 1, bar)


def _fit(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
