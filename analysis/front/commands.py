"""Who answers a command: a file or a server? Opens the file and asks the table of questions here, or asks a running server the same over HTTP.

What only some commands need (compilers, readers of files, Parquet) is imported where they need it: who asks a server waits for none of it.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from overrun.analysis.front import question_table as table
from overrun.analysis.front.answer_body import DEFAULT_URL, TIMEOUT_S, decoded
from overrun.analysis.front.asked import Asked, Source
from overrun.analysis.front.question_table import Answer, Entry, Texts
from overrun.analysis.front.text_layout import within
from overrun.analysis.words.encoding import decode, encode
from overrun.analysis.words.errors import AnalysisError
from overrun.analysis.words.times import absolute
from overrun.collector.config import Settings
from overrun.collector.errors import StoreMissing

if TYPE_CHECKING:
    from overrun.analysis.front.check import CheckResult
    from overrun.analysis.front.client import Client, Right
    from overrun.analysis.front.held_hours import HeldHours
    from overrun.analysis.front.hourly_files import HourlyFiles, Hours, Round
    from overrun.analysis.front.report import Report
    from overrun.analysis.simulator.calibrate import Engine
    from overrun.analysis.whatif.facts import Facts
    from overrun.analysis.whatif.prediction import Prediction
    from overrun.collector.arrays import IntArray
    from overrun.collector.lifecycle.forget import Forgotten
    from overrun.collector.store.store import Store


_ASK_AGAIN_S = 1.0
# Parameters that hold a moment or a range of time.
_TIMES = ("from", "to", "baseline", "before", "after", "box_from", "box_to")
# Parameters that choose requests and limits: a command that is offered for the same ones repeats them.
SAME_REQUESTS = frozenset(parameter.name for parameter in table.WINDOW)
# A server at its usual place answers in milliseconds.
_ALIVE_S = 2.0


def place(source: Source) -> Path | str:
    """The file, or the address of the server, to ask.

    Raises:
        StoreMissing: there is neither.
    """
    if source.db is not None:
        return source.db
    if source.url is not None:
        return source.url
    with _client(DEFAULT_URL) as client:
        if client.alive(_ALIVE_S):
            return DEFAULT_URL
    if os.path.exists("overrun.db"):
        return Path("overrun.db")
    raise StoreMissing(
        f"no server answers at {DEFAULT_URL} and there is no overrun.db here: give --db FILE or --url URL"
    )


def _body(asked: Asked[Any], host: Mapping[str, object]) -> bytes:
    """The answer as JSON, the same bytes from a file and from a server."""
    where = place(asked.source)
    if isinstance(where, str):
        with _client(where) as client:
            return client.read(asked.entry, _in_utc(asked.texts))
    return encode(here(where, asked, host))


def here(path: Path, asked: Asked[Answer], host: Mapping[str, object]) -> Answer:
    """Answer a question over a file."""
    from overrun.analysis.front.ledger import path_of
    from overrun.analysis.front.questions import Prepared

    settings = asked.source.settings
    question = Prepared.read(asked.entry, asked.texts, settings, now=datetime.now(UTC))
    with _opened(path, settings) as store:
        return question.answer(store.reading, **{"ledger": path_of(path), **host})


def _client(url: str, right: Right = "read") -> Client:
    from overrun.analysis.front.client import Client

    return Client(url, right=right)


def _in_utc(parameters: Texts) -> Texts:
    """Parameters with times of this machine's zone in UTC."""
    now = datetime.now(UTC)
    return {
        name: absolute(text, now) if text and name in _TIMES else text
        for name, text in parameters.items()
    }


@contextmanager
def _opened(db: Path, settings: Settings) -> Iterator[Store]:
    """The database with everything assembled that was stored."""
    from overrun.collector.normalise.stages import learn
    from overrun.collector.store.database import open_store
    from overrun.collector.store.unassembled import unassembled

    store = open_store(db, create=False, memory_limit=settings.collector.memory_limit)
    if store.read_only or not unassembled(store).num_rows:
        learn(settings.words)
        try:
            yield store
        finally:
            store.close()
        return
    from overrun.analysis.assembly.assemble import assemble
    from overrun.collector.ingest.pipeline import Pipeline

    pipeline = Pipeline(store, settings.collector, settings.privacy, assemble, settings.words)
    try:
        pipeline.drain()
        yield store
    finally:
        pipeline.close()


def ask(asked: Asked[Any], **host: object) -> str:
    """Answer a question of the table in its form. `host` is what a file has no server for, by the names of the parameters of the function that answers.

    Raises:
        AnalysisError, CollectorError: bad input, or no source to ask.
    """
    entry, form = asked.entry, asked.form
    if "simulate" in entry.taken():
        # Compiled kernels: a command that asks a server never calls this.
        host.setdefault("simulate", _inline)
    until = time.monotonic() + TIMEOUT_S
    body = _body(asked, host)
    made = decoded(entry, body)
    while entry.is_partial(made) and time.monotonic() < until:
        time.sleep(_ASK_AGAIN_S)
        body = _body(asked, host)
        made = decoded(entry, body)
    if refused := getattr(made, "refused", ""):
        raise AnalysisError(refused)
    if form == "json":
        return body.decode()
    known = {
        "width": asked.width,
        "colour": asked.colour,
        "source": asked.source.flags(),
        "again": _again(asked.texts),
    }
    said = entry.written(form, made, {**asked.texts, **known})
    return within(said, asked.width) if form in ("text", "details") else said


def with_facts(asked: Asked[Any]) -> str:
    """Answer a question; the details of a report have the list of facts at their end."""
    text = ask(asked)
    if asked.form != "details":
        return text
    return f"{text}\n\nFACTS\n{ask(replace(asked.of(table.FACTS, 'text'), colour=False))}"


def _again(parameters: Texts) -> str:
    """What another command needs to ask about the same requests and limits, with a space before each flag."""
    return "".join(
        f" --{name} {shlex.quote(str(value))}"
        for name, value in parameters.items()
        if name in SAME_REQUESTS and value
    )


def _inline(*asked: Any) -> Any:
    from overrun.analysis.diagnosis.simulated_gains import inline

    return inline(*asked)


def check(
    asked: Asked[Report], *, min_goodput: float | None, notes: Sequence[str] = ()
) -> CheckResult:
    """Judge a window of a database or a server; `notes` are what its files say of the load.

    Raises:
        AnalysisError, CollectorError: bad input, no source to ask, or nothing to judge.
    """
    from overrun.analysis.front import check as gate

    where = place(asked.source)
    if isinstance(where, str):
        with _client(where) as client:
            return gate.check(client.ask(asked.entry, _in_utc(asked.texts)), min_goodput, notes)
    return gate.check(here(where, asked, {"with_findings": False}), min_goodput, notes)


def whatif(asked: Asked[Prediction], progress: Callable[[float], None] = lambda part: None) -> str:
    """What the fix of the texts would buy; they are its own parameters and those that select requests. `progress` gets the part of a calibration that is done.

    Raises:
        AnalysisError, CollectorError: bad input, or no source to ask.
    """
    from overrun.analysis.whatif import catalogue

    fix = asked.texts.get("fix") or ""
    own = {parameter.name for parameter in catalogue.parameters(fix)}
    asked.entry.refuse_unknown(asked.texts, own)
    catalogue.read(fix, {name: text for name, text in asked.texts.items() if name in own})

    def computed(facts: Facts, fix: str, given: Texts) -> Prediction:
        facts.progress = progress
        return catalogue.ask(facts, fix, given)

    return ask(asked, ask=computed)


def calibrated(
    source: Source, parameters: Texts, progress: Callable[[float], None]
) -> tuple[Engine, IntArray]:
    """Calibrate the engines of a file's window; returns the one with most calls, and when each call of the recording began (microseconds since 1970).

    Raises:
        AnalysisError: a bad window, or no engine can be simulated, with the reason.
    """
    from overrun.analysis.front.questions import Question
    from overrun.analysis.front.whatif_answer import gather

    if source.db is None:
        raise AnalysisError("engines are calibrated on a file: give --db FILE")
    question = Question.read(parameters, source.settings, now=datetime.now(UTC))
    with _opened(source.db, source.settings) as store, store.reading() as con:
        facts = gather(con, question)
        facts.progress = progress
        engines, why = facts.engines
    if why is not None:
        raise AnalysisError(f"no engine can be simulated: {why}")
    start_us: IntArray = facts.calls["start_us"].to_numpy()
    return max(engines, key=lambda engine: len(engine.pool)), start_us


def export(asked: Asked[int], out: IO[bytes]) -> None:
    """Write the rows of a view to `out`.

    Raises:
        AnalysisError, CollectorError: bad input, or no source to ask.
    """
    where = place(asked.source)
    if isinstance(where, str):
        with _client(where) as client:
            client.save(asked.entry, _in_utc(asked.texts), out)
    else:
        here(where, asked, {"out": out})


def export_hours(source: Source, files: HourlyFiles, kinds: Sequence[str], asked: Texts) -> Round:
    """Write the closed hours of a window (`since`, `from`, `to`) that the folder does not have as they are now.

    Raises:
        AnalysisError, CollectorError: bad input, no source to ask, or a folder that is not for this store.
        OSError: the folder cannot be written.
    """
    with _hours_of(source) as store:
        return files.write(store, kinds, asked, datetime.now(UTC))


@contextmanager
def _hours_of(source: Source) -> Iterator[Hours]:
    where = place(source)
    if isinstance(where, str):
        with _client(where) as client:
            yield HoursOfServer(client)
    else:
        with _opened(where, source.settings) as store:
            yield HoursOfFile(store, source.settings)


@dataclass(frozen=True, slots=True)
class HoursOfServer:
    client: Client

    def hours(self, kind: str, start: str | None, end: str) -> HeldHours:
        return self.client.ask(table.HOURS, {"kind": kind, "from": start, "to": end})

    def save(self, kind: str, start: str, end: str, out: IO[bytes]) -> None:
        self.client.save(table.EXPORT, {"kind": kind, "from": start, "to": end}, out)


@dataclass(frozen=True, slots=True)
class HoursOfFile:
    store: Store
    settings: Settings

    def hours(self, kind: str, start: str | None, end: str) -> HeldHours:
        return self._answer(table.HOURS, {"kind": kind, "from": start, "to": end})

    def save(self, kind: str, start: str, end: str, out: IO[bytes]) -> None:
        self._answer(table.EXPORT, {"kind": kind, "from": start, "to": end}, out=out)

    def _answer(self, entry: Entry[Answer], texts: Texts, **host: object) -> Answer:
        from overrun.analysis.front.questions import Prepared

        prepared = Prepared.read(entry, texts, self.settings, now=datetime.now(UTC))
        return prepared.answer(self.store.reading, **host)


def forget(source: Source, *, user: str | None, tenant: str | None) -> Forgotten:
    """Erase a user or a tenant from a file, or through the server that owns it.

    Raises:
        AnalysisError, CollectorError: no source to ask, or the server refused.
    """
    from overrun.collector.lifecycle.forget import Forgotten, forget_in_file

    if source.db is not None:
        return forget_in_file(source.db, user=user, tenant=tenant)
    with _client(source.url or DEFAULT_URL, "erase") as client:
        return decode(client.forget(user=user, tenant=tenant), Forgotten)
