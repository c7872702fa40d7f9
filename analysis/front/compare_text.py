"""The comparison of two windows for a terminal: one screen, the sentence first, every figure with its interval."""

from overrun.analysis.numbers.comparison.compare import Comparison, QuantileChange
from overrun.analysis.words.finding import say_count, say_ms, say_ratio
from overrun.analysis.words.times import rfc3339

_MOST_STAGES = 6
_MOST_COHORTS = 5


def render(found: Comparison) -> str:
    """Return the comparison as plain text, ending in a newline."""
    lines = [f"COMPARE  {found.outcome.replace('_', ' ').upper()}", found.sentence, ""]
    for name, side in (("before", found.before), ("after", found.after)):
        bounds = (
            f"{rfc3339(side.start)} to {rfc3339(side.end)}"
            if side.start and side.end
            else "no window"
        )
        lines.append(
            f"  {name:6}  {bounds}  {say_count(side.requests, 'request')}, goodput {_share(side.goodput_ratio)}, errors {_share(side.error_ratio)}"
        )
    lines += [
        "",
        f"  {'':10} {'before':>9} {'after':>9} {'change':>9}  {'95 % interval':>22}  {'same traffic':>12}",
    ]
    lines += [
        _row(m.metric, q) for m in found.metrics for q in m.quantiles if q.interval is not None
    ]
    alike = ", ".join(found.adjusted_for) or f"mix ({found.reasons.get('mix', 'not adjusted')})"
    lines += [
        "  * more than chance over all comparisons, and at least 5 %",
        f"  same traffic: the change that remains if the first window is reweighted to the second one's {alike}",
    ]
    moved = [s for s in found.stages if s.difference_ms or s.tail_difference_ms][:_MOST_STAGES]
    if moved:
        lines += [
            "",
            f"  STAGES, change of the mean request (of requests near P{found.slo.percentile:g})",
        ]
        lines += [
            f"    {s.stage:12} {say_ms(s.difference_ms):>9}  ({say_ms(s.tail_difference_ms)})"
            for s in moved
        ]
    for title, cohorts in (("NEW ", found.appeared), ("GONE", found.vanished)):
        lines += [
            f"  {title}  {c.attribute} {c.value}: {say_count(c.requests, 'request')} ({say_ratio(c.ratio)})"
            for c in cohorts[:_MOST_COHORTS]
        ]
    if found.change_at is not None:
        beside = "; ".join(
            f"{c.what} {', '.join(c.before)} -> {c.after}" for c in found.changed[:4]
        )
        lines.append(
            f"  SINCE {rfc3339(found.change_at)}"
            + (f", when also changed: {beside}" if beside else "")
        )
    return "\n".join(lines) + "\n"


def _row(metric: str, q: QuantileChange) -> str:
    before, after, change = (
        say_ms(value or 0.0) for value in (q.before_ms, q.after_ms, q.difference_ms)
    )
    low, high = q.interval or (0.0, 0.0)
    same = say_ms(q.adjusted_ms) if q.adjusted_ms is not None else "-"
    interval, mark = f"{say_ms(low)} to {say_ms(high)}", "  *" if q.significant else ""
    return f"  {metric.upper():5} P{q.quantile:<3g} {before:>9} {after:>9} {change:>9}  {interval:>22}  {same:>12}{mark}"


def _share(ratio: float | None) -> str:
    return "unknown" if ratio is None else say_ratio(ratio)
