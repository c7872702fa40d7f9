"""Who answers a command: a file or a server? Opens the file and asks the table of questions here, or asks a running server the same over HTTP.

What only some commands need (compilers, readers of files, Parquet) is imported where they need it: who asks a server waits for none of it.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from overrun.analysis.front import question_table as table
from overrun.analysis.front.answer_body import DEFAULT_URL, TIMEOUT_S, decoded
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
SAME_REQUESTS = frozenset(
    [
        "since",
        "from",
        "to",
        "baseline",
        "service",
        "instance",
        "model",
        "route",
        "tenant",
        "workload",
        "slo",
    ]
)
# Forms that are read in a terminal.
_FOR_TERMINALS = ("text", "details")
# A server at its usual place answers in milliseconds.
_ALIVE_S = 2.0


@dataclass(frozen=True, slots=True)
class Source:
    """Where answers come from: the file `db`, the server at `url`, or, with neither, the server at its usual port or else overrun.db here."""

    settings: Settings
    db: Path | None
    url: str | None

    def flags(self) -> str:
        """What names this source on a command line, with a space before it; nothing where every command finds it."""
        if self.db is not None:
            return f" --db {shlex.quote(str(self.db))}"
        return f" --url {shlex.quote(self.url)}" if self.url is not None else ""

    def place(self) -> Path | str:
        """The file, or the address of the server, to ask.

        Raises:
            StoreMissing: there is neither.
        """
        if self.db is not None:
            return self.db
        if self.url is not None:
            return self.url
        with _client(DEFAULT_URL) as client:
            if client.alive(_ALIVE_S):
                return DEFAULT_URL
        if os.path.exists("overrun.db"):
            return Path("overrun.db")
        raise StoreMissing(
            f"no server answers at {DEFAULT_URL} and there is no overrun.db here: give --db FILE or --url URL"
        )

    def ask(self, entry: Entry[Any], parameters: Texts, **host: object) -> bytes:
        """Return the answer to a question as JSON, the same bytes from a file and from a server. `host` is what a file has no server for.

        Raises:
            AnalysisError, CollectorError: bad input, or no source to ask.
        """
        place = self.place()
        if isinstance(place, str):
            with _client(place) as client:
                return client.read(entry, _in_utc(parameters))
        return encode(self.here(place, entry, parameters, **host))

    def here(self, path: Path, entry: Entry[Answer], parameters: Texts, **host: object) -> Answer:
        """Answer a question over a file.

        Raises:
            AnalysisError, CollectorError: as `ask`.
        """
        from overrun.analysis.front.ledger import path_of
        from overrun.analysis.front.questions import Asked

        asked = Asked.read(entry, parameters, self.settings, now=datetime.now(UTC))
        host.setdefault("ledger", path_of(path))
        with _opened(path, self.settings) as store:
            return asked.answer(store.reading, **host)


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


def ask(
    source: Source,
    entry: Entry[Any],
    parameters: Texts,
    form: str,
    *,
    width: int = 100,
    colour: bool = False,
    **host: object,
) -> str:
    """Answer a question of the table as JSON or in one of its other forms, at most `width` columns wide. `host` is as in `Source.ask`.

    `colour` marks labels with ANSI codes.

    Raises:
        AnalysisError, CollectorError: bad input, or no source to ask.
    """
    if "simulate" in entry.taken():
        # Compiled kernels: a command that asks a server never calls this.
        host["simulate"] = _inline
    until = time.monotonic() + TIMEOUT_S
    body = source.ask(entry, parameters, **host)
    made = decoded(entry, body)
    while entry.is_partial(made) and time.monotonic() < until:
        time.sleep(_ASK_AGAIN_S)
        body = source.ask(entry, parameters, **host)
        made = decoded(entry, body)
    if refused := getattr(made, "refused", ""):
        raise AnalysisError(refused)
    if form == "json":
        return body.decode()
    known = {"width": width, "colour": colour, "source": source.flags()}
    said = entry.written(form, made, {**parameters, **known, "again": _again(parameters)})
    return within(said, width) if form in _FOR_TERMINALS else said


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
    source: Source, parameters: Texts, *, min_goodput: float | None, notes: Sequence[str] = ()
) -> CheckResult:
    """Judge a window of a database or a server; `notes` are what its files say of the load.

    Raises:
        AnalysisError, CollectorError: bad input, no source to ask, or nothing to judge.
    """
    from overrun.analysis.front import check as gate

    place = source.place()
    if isinstance(place, str):
        with _client(place) as client:
            return gate.check(client.ask(table.REPORT, _in_utc(parameters)), min_goodput, notes)
    made = source.here(place, table.REPORT, parameters, with_findings=False)
    return gate.check(made, min_goodput, notes)


def whatif(
    source: Source,
    fix: str,
    texts: Texts,
    *,
    output: str,
    progress: Callable[[float], None],
    width: int = 100,
) -> str:
    """What one fix would buy, as text or JSON; `texts` are its own flags and those that select requests. `progress` gets the part of a calibration that is done.

    Raises:
        AnalysisError, CollectorError: bad input, or no source to ask.
    """
    from overrun.analysis.whatif import catalogue

    own = {parameter.name for parameter in catalogue.parameters(fix)}
    catalogue.read(fix, {name: text for name, text in texts.items() if name in own})

    def computed(facts: Facts, fix: str, given: Texts) -> Prediction:
        facts.progress = progress
        return catalogue.ask(facts, fix, given)

    return ask(source, table.WHATIF, {**texts, "fix": fix}, output, width=width, ask=computed)


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


def export(source: Source, parameters: Texts, out: IO[bytes]) -> None:
    """Write the rows of a view to `out`; `parameters` are those of the question.

    Raises:
        AnalysisError, CollectorError: bad input, or no source to ask.
    """
    table.EXPORT.read(parameters)
    place = source.place()
    if isinstance(place, str):
        with _client(place) as client:
            client.save(table.EXPORT, _in_utc(parameters), out)
    else:
        source.here(place, table.EXPORT, parameters, out=out)


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
    place = source.place()
    if isinstance(place, str):
        with _client(place) as client:
            yield HoursOfServer(client)
    else:
        with _opened(place, source.settings) as store:
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
        from overrun.analysis.front.questions import Asked

        asked = Asked.read(entry, texts, self.settings, now=datetime.now(UTC))
        return asked.answer(self.store.reading, **host)


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
