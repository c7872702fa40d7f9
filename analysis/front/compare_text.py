"""The comparison of two windows for a terminal: one screen, the sentence first, every figure with its interval."""

from overrun.analysis.front.document import Block, Cell, Document, Figure, Line, Table
from overrun.analysis.numbers.comparison.compare import Comparison, QuantileChange, Side
from overrun.analysis.words.finding import say_count, say_ms, say_ratio
from overrun.analysis.words.times import rfc3339

_MOST_STAGES = 6
_MOST_COHORTS = 5


def document(found: Comparison) -> Document:
    """Return what a comparison says: both windows, every quantile, the stages that moved, what came and went."""
    alike = ", ".join(found.adjusted_for) or f"mix ({found.reasons.get('mix', 'not adjusted')})"
    return Document(
        [
            [_side("before", found.before), _side("after", found.after)],
            [
                quantiles(found),
                Line(("* more than chance over all comparisons, and at least 5 %",), indent=2),
                Line(
                    (
                        f"same traffic: the change that remains if the first window is reweighted to the second one's {alike}",
                    ),
                    indent=2,
                ),
            ],
            _stages(found),
            _came_and_went(found),
        ],
        name="COMPARE",
        status=found.outcome.replace("_", " ").upper(),
        lead=found.sentence,
    )


def _side(name: str, side: Side) -> Line:
    bounds = "no window"
    if side.start is not None and side.end is not None:
        bounds = f"{rfc3339(side.start)} to {rfc3339(side.end)}"
    goodput, errors = _share(side.goodput_ratio), _share(side.error_ratio)
    said = (bounds, say_count(side.requests, "request"), f"goodput {goodput}", f"errors {errors}")
    return Line(said, f"{name:6} ", joint=", ", indent=2)


def quantiles(found: Comparison) -> Table:
    """Return a row for each quantile of which the change has an interval."""
    rows = [_row(m.metric, q) for m in found.metrics for q in m.quantiles if q.interval is not None]
    head = ("", "before", "after", "change", "95 % interval", "same traffic", "")
    return Table(head, rows, "<>>>>><", least=(12, 8, 8, 8, 22, 12), spare=(5,))


def _stages(found: Comparison) -> list[Block]:
    moved = [s for s in found.stages if s.difference_ms or s.tail_difference_ms][:_MOST_STAGES]
    rows = [(f"  {s.stage}", Figure(s.difference_ms), Figure(s.tail_difference_ms)) for s in moved]
    head = ("stage", "mean change", f"near P{found.slo.percentile:g}")
    return [Table(head, rows, "<>>", "STAGES")] if rows else []


def _came_and_went(found: Comparison) -> list[Block]:
    """What only one of the windows has, and since when the second one is different."""
    made: list[Block] = [
        Line(
            (
                f"{c.attribute} {c.value}: {say_count(c.requests, 'request')} ({say_ratio(c.ratio)})",
            ),
            title,
        )
        for title, cohorts in (("NEW", found.appeared), ("GONE", found.vanished))
        for c in cohorts[:_MOST_COHORTS]
    ]
    if found.change_at is not None:
        beside = "; ".join(
            f"{c.what} {', '.join(c.before)} -> {c.after}" for c in found.changed[:4]
        )
        since = rfc3339(found.change_at) + (f", when also changed: {beside}" if beside else "")
        made.append(Line((since,), "SINCE"))
    return made


def _row(metric: str, q: QuantileChange) -> tuple[Cell, ...]:
    low, high = q.interval or (0.0, 0.0)
    return (
        f"  {metric.upper()} P{q.quantile:g}",
        *(Figure(value or 0.0) for value in (q.before_ms, q.after_ms, q.difference_ms)),
        f"{say_ms(low)} to {say_ms(high)}",
        Figure(q.adjusted_ms),
        "*" if q.significant else "",
    )


def _share(ratio: float | None) -> str:
    return "unknown" if ratio is None else say_ratio(ratio)
