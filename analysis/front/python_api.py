"""How does a script or a notebook ask? A recording that is opened once and asked many times, by the same questions as the commands.

Every method takes the window and filters by name: `since`, `from_`, `to`, `service`, `instance`, `model`, `route`, `tenant`, `workload`, `slo`; values as on the
command line. Answers are the structs that the API's JSON decodes to (`msgspec.to_builtins` makes dictionaries of them).
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import polars as pl

from overrun.analysis.front import commands, file_commands
from overrun.analysis.front import question_table as table
from overrun.analysis.front.asked import Asked, Source, source_of
from overrun.analysis.front.client import decoded
from overrun.analysis.front.fact_list import FactList
from overrun.analysis.front.question_table import Answer
from overrun.analysis.front.report import Report
from overrun.analysis.numbers.comparison.compare import Comparison
from overrun.analysis.numbers.quality.doctor import Checkup
from overrun.analysis.numbers.requests.request_list import RequestList
from overrun.analysis.numbers.requests.request_trace import Trace
from overrun.analysis.whatif.prediction import Prediction
from overrun.analysis.words.encoding import decode
from overrun.collector.config import Settings, load
from overrun.collector.errors import StoreMissing

Given: TypeAlias = str | float | None


class Html(str):
    """A page as text, which a notebook shows as it is."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self)


class Recording:
    """Telemetry that can be asked: a file, or a running server. As a context it forgets what it has read from elsewhere."""

    def __init__(self, source: Source, kept: ExitStack | None = None) -> None:
        self._source, self._kept = source, kept or ExitStack()

    def __repr__(self) -> str:
        source = self._source
        return f"<Recording{source.flags() or ' of overrun.db or the server at its usual port'}>"

    def _repr_html_(self) -> str:
        return self.html()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Forget what was read from files or another tool; a file of one's own stays."""
        self._kept.close()

    def report(self, **window: Given) -> Report:
        """What is wrong, why, and what each fix would gain."""
        return self._ask(table.REPORT, window)

    def html(self, **window: Given) -> Html:
        """The report as one page, which a notebook shows."""
        return Html(commands.ask(self._asked(table.REPORT, window, "html")))

    def facts(self, **window: Given) -> FactList:
        """Every factor of latency before and now, and the part of the excess that goes with it."""
        return self._ask(table.FACTS, window)

    def requests(self, **window: Given) -> RequestList:
        """The slowest requests; `sort`, `limit` and `status` as those of `overrun traces`."""
        return self._ask(table.REQUESTS, window)

    def trace(self, trace_id: str) -> Trace:
        """Where one request spent its time."""
        return self._ask(table.TRACE, {"trace_id": trace_id})

    def compare(self, before: str, after: str, **window: Given) -> Comparison:
        """What changed between two windows (`FROM..TO`) or versions (`version=NAME`)."""
        return self._ask(table.COMPARE, {**window, "before": before, "after": after})

    def whatif(self, fix: str, **given: Given) -> Prediction:
        """What one fix would gain; its own parameters and the window by name."""
        body = commands.whatif(self._asked(table.WHATIF, {**given, "fix": fix}))
        return decode(body.encode(), Prediction)

    def doctor(self, **window: Given) -> Checkup:
        """What each service sends, and what is missing."""
        return self._ask(table.DOCTOR, window)

    def frame(self, kind: str = "requests", **window: Given) -> pl.DataFrame:
        """The rows of a view as a polars frame: requests, llm-calls, spans or metrics."""
        out = io.BytesIO()
        asked = self._asked(table.EXPORT, {**window, "kind": kind, "format": "parquet"})
        commands.export(asked, out)
        out.seek(0)
        return pl.read_parquet(out)

    def _ask(self, entry: table.Entry[Answer], given: Mapping[str, Given]) -> Answer:
        return decoded(entry, commands.ask(self._asked(entry, given)).encode())

    def _asked(
        self, entry: table.Entry[Answer], given: Mapping[str, Given], form: str = "json"
    ) -> Asked[Answer]:
        return Asked.read(entry, given, self._source, form)


def open(path: str | Path, settings: str | Path | None = None) -> Recording:
    """A database file that no server has open; `settings` is an overrun.toml.

    Raises:
        StoreMissing: there is none.
    """
    if not Path(path).exists():
        raise StoreMissing.at(Path(path))
    return Recording(Source(_settings(settings, path), Path(path), None))


def connect(url: str = "http://127.0.0.1:4318") -> Recording:
    """A running server. Its read token is that of the environment (OVERRUN_READ_TOKEN)."""
    return Recording(Source(_settings(None), None, url))


def read(
    *sources: str | Path,
    match: str = "",
    since: str | None = None,
    from_: str | None = None,
    to: str | None = None,
    settings: str | Path | None = None,
) -> Recording:
    """Whatever a command takes: files and folders, a store, a server, or a window of other tools (`prometheus:http://...`, `tempo:http://...`).

    What is not stored is read into a database that is forgotten at the end.

    Raises:
        AnalysisError, CollectorError: nothing is there, or it cannot be read.
    """
    source = source_of([str(one) for one in sources], _settings(settings), match=match)
    window = {"since": since, "from": from_, "to": to}
    kept = ExitStack()
    made = kept.enter_context(file_commands.opened(Asked.read(table.DOCTOR, window, source)))
    return Recording(made.source, kept)


diagnose = read


def _settings(path: str | Path | None, db: str | Path | None = None) -> Settings:
    return load(
        None if path is None else Path(path), flags={"collector.db": str(db) if db else None}
    )
