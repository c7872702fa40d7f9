"""The answer about a load test for a terminal or a ticket: the verdicts first, then one table over the loads, a row a run."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from overrun.analysis.front import text_layout
from overrun.analysis.front.load_test import LoadTestReport
from overrun.analysis.numbers.latency.percentiles import Percentiles
from overrun.analysis.numbers.load_tests.runs import RunRow
from overrun.analysis.words.finding import printable, say_ms, say_ratio
from overrun.analysis.words.slo import METRICS

_HOLDS = {"yes": "holds", "no": "MISSED", "unclear": "unclear", "not known": "-"}
_STATUS = {
    "holds": "WITHIN BUDGET",
    "breaks": "BREAKS UNDER LOAD",
    "missed": "OVER BUDGET AT EVERY LOAD TESTED",
    "mixed": "MISSED BY SOME RUNS",
    "not_enough_data": "NOT ENOUGH DATA",
}


def render(report: LoadTestReport, width: int = 110) -> str:
    """Return the report as plain text."""
    lines: list[str] = []
    for verdict in report.verdicts:
        model = f" of {printable(verdict.capacity.model)}" if verdict.capacity.model else ""
        lines.append(f"LOAD TEST{model}  {_STATUS[verdict.status]}")
        lines += _wrap(verdict.sentence, width)
        if verdict.cause is not None:
            lines += _wrap(
                f"CAUSE {verdict.cause}"
                + (f" in {verdict.stage}" if verdict.stage is not None else "")
                + f". {verdict.advice}",
                width,
            )
        elif verdict.advice:
            lines += _wrap(verdict.advice, width)
        lines.append("")
    lines += [
        *_runs(report.runs, report.slo.percentile, width),
        *(line for note in report.notes for line in _wrap(f"- {printable(note, 600)}", width)),
    ]
    return "\n".join(lines)


def to_markdown(report: LoadTestReport) -> str:
    """Return the report as Markdown."""
    lines = []
    for verdict in report.verdicts:
        lines += [f"**{_STATUS[verdict.status]}**: {verdict.sentence}", ""]
        if verdict.cause is not None:
            lines += [f"Cause: `{verdict.cause}`. {verdict.advice}", ""]
    head, rows = table(report.runs)
    lines += [
        "| " + " | ".join(head) + " |",
        "|" + "|".join([" --- ", *[" ---: "] * (len(head) - 1)]) + "|",
    ]
    lines += ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows]
    lines += ["", *(f"- {printable(note, 600)}" for note in report.notes)]
    return "\n".join(lines)


def table(runs: Sequence[RunRow], only: float | None = None) -> tuple[list[str], list[list[str]]]:
    """Return the head and a row a run; metrics that no run has are left out. `only` is the percentile (0..100) that stands for a metric's quantiles."""
    metrics = [name for name in METRICS if any(getattr(run, f"{name}_ms").n for run in runs)]
    head = ["RUNS", "requests/s", "answered/s", "n", "errors"]
    head += [f"{name.upper()}{'' if only is None else f' P{only:g}'}" for name in metrics] + [
        "within SLO",
        "SLO",
    ]
    rows = []
    for run in runs:
        load = "-" if run.rate_rps is None else f"{run.rate_rps:.3g}"
        if run.closed and run.in_flight is not None:
            load = f"{run.in_flight} in flight"
        rows.append(
            [
                printable(run.name, 40) + ("*" if run.basis == "summary" else ""),
                load,
                "-" if run.answered_rps is None else f"{run.answered_rps:.3g}",
                f"{run.requests:,}",
                f"{run.errors:,}",
                *(_quantiles(getattr(run, f"{name}_ms"), only) for name in metrics),
                "-" if run.good_ratio is None else say_ratio(run.good_ratio),
                _HOLDS[run.holds] + (", queue grows" if run.growing else ""),
            ]
        )
    return head, rows


def _runs(runs: Sequence[RunRow], percentile: float, width: int) -> list[str]:
    """The table of the runs with all quantiles, with one of each metric where a terminal is narrow, and with fewer columns where it is narrower still."""
    source = (
        "; * from the generator's summary" if any(run.basis == "summary" for run in runs) else ""
    )
    head, rows = table(runs)
    whole = text_layout.table([tuple(head), *map(tuple, rows)], "<" + ">" * (len(head) - 1))
    if max(map(len, whole)) <= width:
        return [*whole, f"times are P50 / P95 / P99 of successful requests{source}"]
    head, rows = table(runs, percentile)
    # What a reader can do without first: errors where there are none, then what follows from the other columns.
    spare = [
        head.index(name)
        for name in ("n", "answered/s", f"E2E P{percentile:g}", f"TPOT P{percentile:g}")
        if name in head
    ]
    if not any(run.errors for run in runs):
        spare.insert(0, head.index("errors"))
    lines = text_layout.fitted(
        [tuple(head), *map(tuple, rows)], "<" + ">" * (len(head) - 1), width, spare
    )
    return [*lines, f"times are of successful requests{source}"]


def _quantiles(found: Percentiles, only: float | None) -> str:
    if only is not None:
        value = found.at(only)
        return "-" if value is None else say_ms(value)
    values = [found.p50, found.p95, found.p99]
    if all(value is None for value in values):
        return "-"
    return " / ".join("-" if value is None else say_ms(value) for value in values)


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)
