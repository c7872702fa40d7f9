"""The answer about a load test for a terminal or a ticket: the verdicts first, then one table over the loads, a row a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from overrun.analysis.diagnosis.load_test_verdict import LoadVerdict
from overrun.analysis.front.document import Block, Cell, Document, Figure, Items, Line, Table
from overrun.analysis.front.load_test import LoadTestReport
from overrun.analysis.numbers.latency.percentiles import Percentiles
from overrun.analysis.numbers.load_tests.runs import RunRow
from overrun.analysis.words.finding import printable, say_ms
from overrun.analysis.words.slo import METRICS

_HOLDS = {"yes": "holds", "no": "MISSED", "unclear": "unclear", "not known": "-"}
_HEAD: Final = ("RUNS", "requests/s", "answered/s", "n", "errors")
_END: Final = ("within SLO", "SLO")
_STATUS = {
    "holds": "WITHIN BUDGET",
    "breaks": "BREAKS UNDER LOAD",
    "missed": "OVER BUDGET AT EVERY LOAD TESTED",
    "mixed": "MISSED BY SOME RUNS",
    "not_enough_data": "NOT ENOUGH DATA",
}


def document(report: LoadTestReport) -> Document:
    """Return the verdicts, one table over the loads, and what must be known of the load."""
    groups: list[list[Block]] = [_verdict(verdict) for verdict in report.verdicts]
    notes = [(printable(note, 600), ()) for note in report.notes]
    groups.append([_runs(report.runs, report.slo.percentile), Items("", notes, mark="-", hang=2)])
    return Document(groups)


def _verdict(verdict: LoadVerdict) -> list[Block]:
    model = f" of {printable(verdict.capacity.model)}" if verdict.capacity.model else ""
    where = f" in {verdict.stage}" if verdict.stage is not None else ""
    cause = f"{verdict.cause}{where}. {verdict.advice}" if verdict.cause is not None else ""
    return [
        Line((_STATUS[verdict.status],), f"LOAD TEST{model} "),
        Line((verdict.sentence,)),
        Line((cause,), "CAUSE") if cause else Line((verdict.advice,)),
    ]


def _runs(runs: Sequence[RunRow], percentile: float) -> Table:
    """The table of the runs with all quantiles, with one of each metric where a terminal is narrow, and with fewer columns where it is narrower still."""
    source = (
        "; * from the generator's summary" if any(run.basis == "summary" for run in runs) else ""
    )
    metrics = [name for name in METRICS if any(getattr(run, f"{name}_ms").n for run in runs)]
    head = [*_HEAD, *(f"{name.upper()} P{percentile:g}" for name in metrics), *_END]
    # What a reader can do without first: errors where there are none, then what follows from the other columns.
    spare = [
        *([] if any(run.errors for run in runs) else ["errors"]),
        *("n", "answered/s", f"E2E P{percentile:g}", f"TPOT P{percentile:g}"),
    ]
    align = "<" + ">" * (len(head) - 1)
    narrow = Table(
        head,
        [_cells(run, metrics, percentile) for run in runs],
        align,
        spare=[head.index(name) for name in spare if name in head],
        note=f"times are of successful requests{source}",
    )
    return Table(
        [*_HEAD, *(name.upper() for name in metrics), *_END],
        [_cells(run, metrics, None) for run in runs],
        align,
        narrow=narrow,
        note=f"times are P50 / P95 / P99 of successful requests{source}",
    )


def _cells(run: RunRow, metrics: Sequence[str], only: float | None) -> list[Cell]:
    """A run's row; `only` is the percentile (0..100) that stands for a metric's quantiles."""
    load = "-" if run.rate_rps is None else f"{run.rate_rps:.3g}"
    if run.closed and run.in_flight is not None:
        load = f"{run.in_flight} in flight"
    return [
        printable(run.name, 40) + ("*" if run.basis == "summary" else ""),
        load,
        "-" if run.answered_rps is None else f"{run.answered_rps:.3g}",
        Figure(run.requests, "count"),
        Figure(run.errors, "count"),
        *(_quantiles(getattr(run, f"{name}_ms"), only) for name in metrics),
        Figure(run.good_ratio, "ratio"),
        _HOLDS[run.holds] + (", queue grows" if run.growing else ""),
    ]


def _quantiles(found: Percentiles, only: float | None) -> str:
    if only is not None:
        value = found.at(only)
        return "-" if value is None else say_ms(value)
    values = [found.p50, found.p95, found.p99]
    if all(value is None for value in values):
        return "-"
    return " / ".join("-" if value is None else say_ms(value) for value in values)
