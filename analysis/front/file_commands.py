"""Who answers a question about files? They are read into a store of their own and forgotten; results of load tests are judged run by run."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from overrun.analysis.front import commands, load_test_text, page, text_layout
from overrun.analysis.front.asked import Asked, Source
from overrun.analysis.front.check import CheckResult
from overrun.analysis.front.file_import import brief_account, take_in
from overrun.analysis.front.load_test import LoadTestReport, load_test_report
from overrun.analysis.front.load_test_gate import check_load_test
from overrun.analysis.front.questions import slo_of
from overrun.analysis.front.report import Report
from overrun.analysis.words.encoding import decode, encode
from overrun.analysis.words.errors import AnalysisError
from overrun.collector.errors import ImportFailed
from overrun.collector.sources.importer import EXPECTED, OPENED, UNREADABLE, Imported, unpacked
from overrun.collector.sources.load_test_files import Found, find_load_tests

# Of the files of a command so many bytes, unpacked, are kept to be looked at again.
_MOST_KEPT: Final = 64 << 20
# Filters that a load test's files carry nothing for.
_NO_FILTERS = ("since", "from", "to", "service", "instance", "route", "tenant", "workload")


class WholeAnswer(msgspec.Struct, kw_only=True):
    """The answer about files of a load test, and the report on telemetry that lies beside them, where there is any."""

    load_test: LoadTestReport
    report: Report | None


@contextmanager
def _read_once() -> Iterator[None]:
    """Within, a file is read and unpacked once, however often it is looked at to recognise it and to take it in; what is too much to keep is read again."""
    kept: dict[Path, bytes] = {}

    def opened(path: Path) -> IO[bytes]:
        if path not in kept:
            most = _MOST_KEPT - sum(map(len, kept.values()))
            try:
                with unpacked(path) as stream:
                    data = stream.read(most + 1)
            except UNREADABLE:
                return unpacked(path)  # what comes before its damage is read
            if len(data) > most:
                return unpacked(path)
            kept[path] = data
        return io.BufferedReader(io.BytesIO(kept[path]))

    token = OPENED.set(opened)
    try:
        yield
    finally:
        OPENED.reset(token)


@_read_once()
def answer(asked: Asked[Any], note: Callable[[str], None] = lambda _: None) -> str:
    """Answer a question about files. What had to be concluded in reading them, such as a unit, is given to `note`.

    Raises:
        AnalysisError, CollectorError: bad input, or files that nobody can read.
    """
    found = find_load_tests(asked.source.files)
    if found.runs:
        return _of_load_test(found, asked)
    with stored(asked.source) as (own, done):
        for line in done.notes:
            note(line)
        answer = commands.with_facts(asked.but(source=own))
        return f"{brief_account(done)}\n\n{answer}" if asked.form in ("text", "details") else answer


def _of_load_test(found: Found, asked: Asked[Any]) -> str:
    """The report on a load test, run by run with its capacity, and on telemetry that lies beside the results."""
    form = asked.form
    made = _load_test(found, asked)
    if form == "html":
        raise AnalysisError(
            "--output html is not known for a load test: use text, json or markdown"
        )
    if form == "markdown":
        return page.to_markdown(load_test_text.document(made))
    beside = _beside(found, asked)
    if form == "json":
        read = decode(beside.encode(), Report) if beside else None
        return encode(WholeAnswer(load_test=made, report=read)).decode()
    text = text_layout.render(load_test_text.document(made), asked.width)
    return f"{text}\n\n{beside}" if beside else text


@_read_once()
def check(
    asked: Asked[Report], *, min_goodput: float | None, min_rate: float | None
) -> CheckResult:
    """Judge files: of a load test with several runs, or of which only summaries are there, each run; else all requests together.

    Raises:
        AnalysisError, CollectorError: bad input, or nothing to judge.
    """
    source = asked.source
    found = find_load_tests(source.files)
    single = len(found.runs) == 1 and found.runs[0][2].requests
    if found.runs and (min_rate is not None or not single):
        if min_goodput is not None:
            raise AnalysisError(
                "--min-goodput is for one run: give goodput_target in --slo, or --min-rate"
            )
        return check_load_test(_load_test(found, asked), min_rate)
    if min_rate is not None:
        raise AnalysisError("--min-rate is for results of load tests, of which the files hold none")
    # A run's file may be a table, which an import takes from no folder.
    judged = [found.runs[0][1], *found.others] if single else source.files
    with stored(replace(source, files=judged), strict=not single) as (own, done):
        return commands.check(asked.but(source=own), min_goodput=min_goodput, notes=done.notes)


@contextmanager
def stored(source: Source, *, strict: bool = True) -> Iterator[tuple[Source, Imported]]:
    """A database of its own with what the files of a source hold, and the account of it."""
    with tempfile.TemporaryDirectory(prefix="overrun-files-") as folder:
        db = Path(folder) / "files.db"
        settings = source.settings
        own = replace(settings, collector=replace(settings.collector, db=str(db)))
        done = take_in(source.files, own, url=None, progress=lambda at, total: None, strict=strict)
        if not done.files:
            raise ImportFailed(
                f"none of {', '.join(map(str, source.files))} can be judged: expected {EXPECTED}"
            )
        yield Source(own, db), done


def _load_test(found: Found, asked: Asked[Any]) -> LoadTestReport:
    texts = asked.texts
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
    return load_test_report(found, slo_of(texts.get("slo"), asked.source.settings))


def _beside(found: Found, asked: Asked[Any]) -> str:
    """The report on telemetry that lies beside the results; empty where there is none."""
    if not found.others:
        return ""
    try:
        with stored(replace(asked.source, files=found.others), strict=False) as (own, _):
            return commands.ask(asked.but(source=own))
    except ImportFailed:
        return ""
