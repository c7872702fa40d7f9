"""How is a question of any source answered? Files and windows of other tools are read into a store of their own first, and load tests are judged run by run."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from overrun.analysis.front import commands, load_test_text, page, remote_import, text_layout
from overrun.analysis.front import question_table as table
from overrun.analysis.front.asked import Asked, Source
from overrun.analysis.front.check import CheckResult
from overrun.analysis.front.file_import import are_few, brief_account, take_in
from overrun.analysis.front.load_test import LoadTestReport, load_test_report
from overrun.analysis.front.load_test_gate import check_load_test
from overrun.analysis.front.questions import slo_of
from overrun.analysis.front.report import Report
from overrun.analysis.words.encoding import decode, encode
from overrun.analysis.words.errors import AnalysisError
from overrun.collector.config import Settings
from overrun.collector.errors import ImportFailed
from overrun.collector.process import compiled
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


Reading = Callable[[], AbstractContextManager[Callable[..., None]]]


def _unseen() -> AbstractContextManager[Callable[..., None]]:
    return nullcontext(lambda share: None)


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
def answer(
    asked: Asked[Any], note: Callable[[str], None] = lambda _: None, reading: Reading = _unseen
) -> str:
    """Answer a question of any source. What came of reading it is given to `note`.

    Raises:
        AnalysisError, CollectorError: bad input, or files that nobody can read.
    """
    if asked.source.files and asked.entry is table.REPORT:
        found = find_load_tests(asked.source.files)
        if found.runs:
            return _of_load_test(found, asked)
    with opened(asked, note, reading) as made:
        return commands.with_facts(made)


@contextmanager
def opened(
    asked: Asked[Any], note: Callable[[str], None] = lambda _: None, reading: Reading = _unseen
) -> Iterator[Asked[Any]]:
    """The same question of a store or a server: files, and windows of other tools, are read into a store that is forgotten at the end.

    Raises:
        AnalysisError, CollectorError: a source that cannot be read.
    """
    source = asked.source
    if source.is_stored:
        yield asked
    elif source.files:
        found = find_load_tests(source.files)
        # A run's file may be a table, which an import takes from no folder.
        runs = [path for _, path, run in found.runs if run.requests]
        own = replace(source, files=[*runs, *found.others]) if found.runs else source
        with stored(own, strict=not found.runs, reading=reading) as (made, done):
            for line in (*done.notes, brief_account(done)):
                note(line)
            yield asked.but(source=made)
    else:
        with tempfile.TemporaryDirectory(prefix="overrun-pulled-") as folder:
            path = source.db or Path(folder) / "pulled.db"
            settings = _into(source.settings, path)
            window = remote_import.window_of(asked.texts, datetime.now(UTC))
            with reading() as shown:
                fetched = remote_import.fetch(source, window, settings, url=None, shown=shown)
            note(fetched.sentence())
            made = replace(source, settings=settings, db=path, remote=())
            whole = fetched.window() if "before" not in asked.texts else {}
            texts = {name: t for name, t in whole.items() if name in asked.entry.names}
            yield asked.but(source=made, **texts)


def _into(settings: Settings, db: Path) -> Settings:
    return replace(settings, collector=replace(settings.collector, db=str(db)))


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
    asked: Asked[Report],
    *,
    min_goodput: float | None,
    min_rate: float | None,
    reading: Reading = _unseen,
) -> CheckResult:
    """Judge any source: a load test with several runs, or of which only summaries are there, run by run; else all requests together.

    Raises:
        AnalysisError, CollectorError: bad input, or nothing to judge.
    """
    files = asked.source.files
    found = find_load_tests(files) if files else Found()
    single = len(found.runs) == 1 and found.runs[0][2].requests
    if found.runs and (min_rate is not None or not single):
        if min_goodput is not None:
            raise AnalysisError(
                "--min-goodput is for one run: give goodput_target in --slo, or --min-rate"
            )
        return check_load_test(_load_test(found, asked), min_rate)
    if min_rate is not None:
        raise AnalysisError("--min-rate is for results of load tests, of which the files hold none")
    notes: list[str] = []
    with opened(asked, notes.append, reading) as made:
        return commands.check(made, min_goodput=min_goodput, notes=notes[:-1])


@contextmanager
def stored(
    source: Source, *, strict: bool = True, reading: Reading = _unseen
) -> Iterator[tuple[Source, Imported]]:
    """A database of its own with what the files of a source hold, and the account of it."""
    few = compiled.for_few(are_few(source.files))
    with tempfile.TemporaryDirectory(prefix="overrun-files-") as folder, few:
        db = Path(folder) / "files.db"
        own = _into(source.settings, db)
        with reading() as shown:
            done = take_in(
                source.files, own, url=None, progress=lambda at, n: shown(at / n), strict=strict
            )
        if not done.files:
            raise ImportFailed(
                f"none of {', '.join(map(str, source.files))} can be judged: expected {EXPECTED}"
            )
        yield replace(source, settings=own, db=db, files=()), done


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
