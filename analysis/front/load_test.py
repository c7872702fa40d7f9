"""The answer about a load test's files as one typed object: the JSON contract `overrun.load_test/1`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal

import msgspec

from overrun.analysis.diagnosis.load_test_verdict import LoadVerdict, load_verdict
from overrun.analysis.numbers.load_tests.capacity import capacities
from overrun.analysis.numbers.load_tests.runs import RunRow, run_rows
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.slo import Slo
from overrun.collector.sources.load_test_files import Found
from overrun.collector.sources.load_tests import Run

SCHEMA: Final = "overrun.load_test/1"


class LoadTestReport(msgspec.Struct, kw_only=True):
    """All runs that the files hold, judged against one SLO: a row a run, a verdict a series of comparable runs, and what must be known of the load."""

    schema: Literal["overrun.load_test/1"] = SCHEMA
    slo: Slo
    runs: list[RunRow]
    verdicts: list[LoadVerdict]
    notes: list[str]


def load_test_report(found: Found, slo: Slo) -> LoadTestReport:
    """Judge the runs of a load test.

    Raises:
        AnalysisError: no file holds a run.
    """
    rows = run_rows(_named_apart(found.runs), slo)
    if not rows:
        raise AnalysisError("no file holds a run of a load test")
    notes = _grouped(found.notes)
    summaries = [row.name for row in rows if row.basis == "summary"]
    if summaries:
        many = "every run has" if len(summaries) == len(rows) else f"{', '.join(summaries[:6])}:"
        notes.append(
            f"{many} only the generator's summary, without requests: percentiles are as it printed them, goodput and intervals are not known"
        )
    series = capacities(rows)
    if len(series) > 1:
        notes.append(
            "the runs differ in model or in the lengths of prompts and answers, so each kind is judged alone"
        )
    if any(capacity.closed for capacity in series):
        notes.append(
            "requests in flight were bounded (a closed loop), so less was sent while the system was slow and waiting is left out of every time; "
            "load at a fixed rate shows what users would see"
        )
    return LoadTestReport(
        slo=slo,
        runs=rows,
        verdicts=[load_verdict(capacity, rows, slo) for capacity in series],
        notes=notes,
    )


def _grouped(notes: Sequence[str]) -> list[str]:
    """The notes, one that several files share once with all of their names; that on closed loops is the report's own."""
    by_text: dict[str, list[str]] = {}
    for note in notes:
        name, _, text = note.partition(": ")
        if not text.startswith("closed loop:"):
            by_text.setdefault(text or name, []).append(name if text else "")
    return [
        (f"{', '.join(names[:4])}{', ...' if len(names) > 4 else ''}: " if names[0] else "") + text
        for text, names in by_text.items()
    ]


def _named_apart(runs: Sequence[tuple[str, Path, Run]]) -> list[tuple[str, Path, Run]]:
    """The runs, those of equal names with their file's beside it, and a number where even that is the same."""
    out: list[tuple[str, Path, Run]] = []
    seen: Counter[str] = Counter()
    names = [run.name for _, _, run in runs]
    for tool, path, run in runs:
        name = run.name if names.count(run.name) == 1 else f"{run.name} ({_stem(path)})"
        seen[name] += 1
        name += f" #{seen[name]}" if seen[name] > 1 else ""
        out.append((tool, path, replace(run, name=name)))
    return out


def _stem(path: Path) -> str:
    return path.name.split(".")[0]
