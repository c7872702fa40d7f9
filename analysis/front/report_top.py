"""What is going on now? The traffic, the verdict, stages, latencies and instances on one screen, for `overrun top`."""

from __future__ import annotations

from typing import Final

from overrun.analysis.front import report_brief as brief
from overrun.analysis.front.document import Block, Line
from overrun.analysis.front.explanation_lines import explained
from overrun.analysis.front.report import Report, leading
from overrun.analysis.front.text_layout import cut, lines
from overrun.analysis.words.finding import say_count, say_rate, say_ratio

_MOST_STAGES: Final = 14
_MOST_INSTANCES: Final = 12


def render(report: Report, *, width: int = 80, colour: bool = False) -> str:
    """The screen as plain text of at most `width` (at least 72) columns; the most important lines stand first, since a low terminal cuts the rest.

    `colour` marks labels and what is over its limit with ANSI codes.
    """
    width = max(width, brief.WIDTHS[0])
    verdict = report.verdict
    said = {"WHY": verdict.why or "", "DO": verdict.mitigation or ""}
    found = leading(report)
    said = said if found is None else explained(found)
    groups: list[list[Block]] = [
        [
            brief.labelled(brief.LABELS[verdict.status], brief.headline(report), 2),
            *(brief.labelled(label, words, 2) for label, words in said.items()),
        ],
        [_traffic(report)],
        [brief.latency_table(report)],
        [brief.stages_table(report, _MOST_STAGES)],
        [brief.instances_table(report, _MOST_INSTANCES, width)],
    ]
    blocks = [[line for block in group for line in lines(block, width)] for group in groups]
    made = [cut(line, width) for block in blocks if block for line in ("", *block)][1:]
    return "\n".join(brief.painted(made, report) if colour else made)


def _traffic(report: Report) -> Line:
    """How much comes in, how much of it is good, how much fails."""
    window, good = report.window, report.goodput
    parts = [say_count(window.requests, "request")]
    if window.start is not None and window.end is not None and window.end > window.start:
        rate = window.requests / (window.end - window.start).total_seconds()
        parts[0] += f" ({say_rate(rate, '').replace(' /', '/')})"
    parts.append("goodput unknown" if good.ratio is None else f"goodput {say_ratio(good.ratio)}")
    if report.errors.ratio is not None:
        parts.append(f"{say_ratio(report.errors.ratio)} failed")
    down = sum(target.state == "down" for target in report.targets)
    if down:
        parts.append(f"{say_count(down, 'target')} down")
    return Line((", ".join(parts),), f"{'TRAFFIC':{brief.INDENT - 1}}", hang=brief.INDENT)
