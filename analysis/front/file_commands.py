"""Who answers a question about files? They are read into a store of their own and forgotten; results of load tests are judged run by run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from overrun.analysis.front import commands, load_test_text
from overrun.analysis.front import question_table as table
from overrun.analysis.front.check import CheckResult
from overrun.analysis.front.commands import Source
from overrun.analysis.front.file_import import take_in
from overrun.analysis.front.load_test import LoadTestReport, load_test_report
from overrun.analysis.front.load_test_gate import check_load_test
from overrun.analysis.front.question_table import Texts
from overrun.analysis.front.questions import slo_of
from overrun.analysis.front.report import Report
from overrun.analysis.words.encoding import decode, encode
from overrun.analysis.words.errors import AnalysisError
from overrun.collector.errors import ImportFailed
from overrun.collector.sources.importer import EXPECTED, Imported
from overrun.collector.sources.load_test_files import Found, find_load_tests

# Filters that a load test's files carry nothing for.
_NO_FILTERS = ("since", "from", "to", "service", "instance", "route", "tenant", "workload")


class WholeAnswer(msgspec.Struct, kw_only=True):
    """The answer about files of a load test, and the report on telemetry that lies beside them, where there is any."""

    load_test: LoadTestReport
    report: Report | None


def report(
    files: Sequence[Path],
    source: Source,
    texts: Texts,
    form: str,
    *,
    width: int,
    note: Callable[[str], None] = lambda _: None,
) -> str:
    """The report on files: of a load test run by run with its capacity, of anything else as of a database. What had to be concluded in reading them, such as a
    unit, is given to `note`.

    Raises:
        AnalysisError, CollectorError: bad input, or files that nobody can read.
    """
    found = find_load_tests(files)
    if not found.runs:
        with stored(files, source) as (own, done):
            for line in done.notes:
                note(line)
            text = commands.ask(own, table.REPORT, texts, form, width=width)
            if form != "details":
                return text
            return f"{text}\n\nFACTS\n{commands.ask(own, table.FACTS, texts, 'text', width=width)}"
    made = _load_test(found, source, texts)
    if form == "html":
        raise AnalysisError(
            "--output html is not known for a load test: use text, json or markdown"
        )
    if form == "markdown":
        return load_test_text.to_markdown(made)
    if form == "json":
        beside = _beside(found, source, texts, form, width)
        read = decode(beside.encode(), Report) if beside else None
        return encode(WholeAnswer(load_test=made, report=read)).decode()
    text, beside = (
        load_test_text.render(made, width),
        _beside(found, source, texts, form, width),
    )
    return f"{text}\n\n{beside}" if beside else text


def check(
    files: Sequence[Path],
    source: Source,
    texts: Texts,
    *,
    min_goodput: float | None,
    min_rate: float | None,
) -> CheckResult:
    """Judge files: of a load test with several runs, or of which only summaries are there, each run; else all requests together.

    Raises:
        AnalysisError, CollectorError: bad input, or nothing to judge.
    """
    found = find_load_tests(files)
    single = len(found.runs) == 1 and found.runs[0][2].requests
    if found.runs and (min_rate is not None or not single):
        if min_goodput is not None:
            raise AnalysisError(
                "--min-goodput is for one run: give goodput_target in --slo, or --min-rate"
            )
        return check_load_test(_load_test(found, source, texts), min_rate)
    if min_rate is not None:
        raise AnalysisError("--min-rate is for results of load tests, of which the files hold none")
    # A run's file may be a table, which an import takes from no folder.
    judged = [found.runs[0][1], *found.others] if single else files
    with stored(judged, source, strict=not single) as (own, done):
        return commands.check(own, texts, min_goodput=min_goodput, notes=done.notes)


@contextmanager
def stored(
    files: Sequence[Path], source: Source, *, strict: bool = True
) -> Iterator[tuple[Source, Imported]]:
    """A database of its own with what the files hold, and the account of it."""
    with tempfile.TemporaryDirectory(prefix="overrun-files-") as folder:
        db = Path(folder) / "files.db"
        settings = source.settings
        own = replace(settings, collector=replace(settings.collector, db=str(db)))
        done = take_in(files, own, url=None, progress=lambda at, total: None, strict=strict)
        if not done.files:
            raise ImportFailed(
                f"none of {', '.join(map(str, files))} can be judged: expected {EXPECTED}"
            )
        yield replace(source, settings=own, db=db, url=None), done


def _load_test(found: Found, source: Source, texts: Texts) -> LoadTestReport:
    for name in _NO_FILTERS:
        if texts.get(name):
            raise AnalysisError(
                f"--{name} does not apply to results of load tests: leave it out, or import them with --db and ask there"
            )
    model = texts.get("model")
    if model is not None:
        names = sorted({run.model for _, _, run in found.runs if run.model})
        if model not in names:
            raise AnalysisError(
                f"--model {model!r} names no model of these runs: {', '.join(names) or 'they record none'}"
            )
        found = replace(found, runs=[item for item in found.runs if item[2].model == model])
    return load_test_report(found, slo_of(texts.get("slo"), source.settings))


def _beside(found: Found, source: Source, texts: Texts, form: str, width: int) -> str:
    """The report on telemetry that lies beside the results; empty where there is none."""
    if not found.others:
        return ""
    try:
        with stored(found.others, source, strict=False) as (own, _):
            return commands.ask(own, table.REPORT, texts, form, width=width)
    except ImportFailed:
        return ""
