"""What all scored repetitions come to: figures for docs/results, apart for the experiments that are held back."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tests.benchmarks.results import Figure, measured
from tests.lab.drawn import held_back
from tests.lab.score import Predicted, Score

SCRIPT = "make bench-lab"


def spread(scores: Iterable[Score]) -> dict[str, float]:
    """Per metric, how far repetitions of one fixed set-up lie apart: the median over experiments of (highest - lowest) / median. No smaller error means anything."""
    after: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one in scores:
        for found in one.predicted:
            after[one.experiment, found.metric].append(found.after)
    wide: dict[str, list[float]] = defaultdict(list)
    for (_, metric), values in after.items():
        if len(values) > 1:
            wide[metric].append((max(values) - min(values)) / statistics.median(values))
    return {metric: statistics.median(values) for metric, values in wide.items()}


def errors(predicted: Sequence[Predicted], metric: str) -> list[float]:
    """Of each answered what-if, |predicted - reported afterwards| / reported afterwards."""
    return [
        abs(found.predicted - found.reported) / found.reported
        for found in predicted
        if found.metric == metric and found.predicted is not None and found.reported
    ]


def held(predicted: Sequence[Predicted]) -> list[bool]:
    """Of each interval, whether it holds what is reported afterwards."""
    return [
        found.interval[0] <= found.reported <= found.interval[1]
        for found in predicted
        if found.interval is not None and found.reported
    ]


def figures(scores: Sequence[Score], conditions: str) -> list[Figure]:
    """The headline figures, first of the experiments that were developed on, then of those held back."""
    made = []
    for part, chosen in (
        ("developed on", [one for one in scores if not held_back(one.experiment)]),
        ("held back", [one for one in scores if held_back(one.experiment)]),
    ):
        if chosen:
            made += _part(part, chosen, conditions)
    return made


def _part(part: str, scores: Sequence[Score], conditions: str) -> list[Figure]:
    def figure(
        what: str, value: float, unit: str = "", of: int | None = None, **more: float
    ) -> Figure:
        named = f"Real vLLM, {part}: {what}"
        return measured(named, value, unit, of=of, more=more, script=SCRIPT, conditions=conditions)

    predicted = [found for one in scores for found in one.predicted]
    floor = spread(scores)
    made = [
        figure("stage named", sum(one.stage_right for one in scores), of=len(scores)),
        figure("cause named", sum(one.cause_right for one in scores), of=len(scores)),
        figure("first advice undoes it", sum(one.advice_right for one in scores), of=len(scores)),
        figure(
            "alarms in healthy windows",
            sum(len(one.alarms) for one in scores),
            of=sum(one.quiet_windows for one in scores),
        ),
    ]
    for metric in ("e2e", "ttft"):
        apart = [
            abs(one.percentile_error_ms[metric])
            for one in scores
            if metric in one.percentile_error_ms
        ]
        if apart:
            what = f"{metric.upper()} P95 of the report against the client's, median difference"
            made.append(figure(what, round(statistics.median(apart)), "ms"))
        if again := [one.again[metric] for one in scores if metric in one.again]:
            what = f"{metric.upper()} P95 of one set-up on the same arrivals, run twice: median difference"
            most = round(100 * max(again), 1)
            value = round(100 * statistics.median(again), 1)
            made.append(figure(what, value, "%", most=most, n=len(again)))
        if found := errors(predicted, metric):
            more = {"answered": len(found)}
            if metric in floor:
                more["spread of repetitions"] = round(100 * floor[metric])
            what = f"{metric.upper()} P95 after the fix, median error"
            made.append(figure(what, round(100 * statistics.median(found), 1), "%", **more))
    if promises := [kept for one in scores for kept in one.promised]:
        apart = [abs(kept.promised - kept.measured) for kept in promises]
        what = "changes of latency that `overrun routing` promised against measured ones, median difference"
        worst = round(100 * max(apart), 1)
        made.append(
            figure(
                what, round(100 * statistics.median(apart), 1), "points", most=worst, n=len(apart)
            )
        )
    if inside := held(predicted):
        what = "intervals of 90 % that hold the figure reported afterwards"
        made.append(figure(what, sum(inside), of=len(inside)))
    return made
