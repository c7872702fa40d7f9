"""What is being asked? One reading of window, filters, SLO and budgets for the command line and the API, with the settings file behind them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic

import duckdb

from overrun.analysis.front.question_table import WINDOW, Answer, Entry
from overrun.analysis.numbers.outcomes.cost import Prices, read_prices
from overrun.analysis.numbers.stages.budget import Configured, budgets_for
from overrun.analysis.numbers.window import Window, make_window
from overrun.analysis.words.errors import BudgetError
from overrun.analysis.words.slo import NOT_GIVEN, Slo, parse_slo
from overrun.collector.config import Settings

PARAMETERS = tuple(parameter.name for parameter in WINDOW)


@dataclass(frozen=True, slots=True)
class Question:
    """A window of requests, the SLO they are judged by, configured budgets by route or model (None: the published split for all), and prices."""

    window: Window
    slo: Slo
    budgets: Configured | None
    prices: Prices | None = None

    @classmethod
    def read(
        cls,
        parameters: Mapping[str, str | None],
        settings: Settings,
        *,
        now: datetime,
        default_since: str | None = None,
    ) -> Question:
        """From flags or query parameters (names in PARAMETERS), else the settings file, else the defaults.

        Raises:
            AnalysisError: a value that cannot be read, named with its remedy.
        """
        given = {name: parameters.get(name) or None for name in PARAMETERS}
        since = given["since"]
        if since is None and given["from"] is None and given["to"] is None:
            since = default_since
        window = make_window(
            now=now,
            since=since,
            from_=given["from"],
            to=given["to"],
            baseline=given["baseline"] or "auto",
            service=given["service"],
            model=given["model"],
            route=given["route"],
            tenant=given["tenant"],
            workload=given["workload"],
            instance=given["instance"],
        )
        window = replace(window, most=settings.answers.most_requests)
        slo = slo_of(given["slo"], settings)
        return cls(window, slo, _configured_budgets(settings), read_prices(settings.prices))


@dataclass(frozen=True, slots=True)
class Prepared(Generic[Answer]):
    """One question of the table with its values, ready to be answered. `question` is None where it is not about a window."""

    entry: Entry[Answer]
    values: Mapping[str, Any]
    question: Question | None
    now: datetime

    @classmethod
    def read(
        cls,
        entry: Entry[Answer],
        texts: Mapping[str, str | None],
        settings: Settings,
        *,
        now: datetime,
        default_since: str | None = None,
    ) -> Prepared[Answer]:
        """From flags or query parameters by name.

        Raises:
            AnalysisError: an unknown name or a value that cannot be read, named with its remedy.
        """
        values: dict[str, Any] = dict(entry.read(texts))
        question = None
        if entry.more:
            # The function reads the window itself: a parameter of its own may have a filter's name.
            values |= {"texts": texts, "settings": settings, "default_since": default_since}
        elif entry.windowed:
            question = Question.read(texts, settings, now=now, default_since=default_since)
            values |= {
                "window": question.window,
                "slo": question.slo,
                "budgets": question.budgets,
                "prices": question.prices,
            }
        return cls(entry, values, question, now)

    @property
    def key(self) -> Hashable:
        """The same for questions with the same answer, as long as nothing is written."""
        own = {name: self.values[name] for name in self.entry.names}
        window = None if self.question is None else (self.question.window, self.question.slo)
        return self.entry.path, window, tuple(sorted(own.items(), key=str))

    def answer(
        self,
        reading: Callable[[], AbstractContextManager[duckdb.DuckDBPyConnection]],
        **more: object,
    ) -> Answer:
        """Answer over a database; `reading` opens a cursor, and `more` is what only this host knows, by the names of the function's parameters.

        Raises:
            AnalysisError: as the function.
        """
        known = {**self.values, "now": self.now, "reading": reading, **more}
        if "con" not in self.entry.taken():
            return self.entry.answer(known)
        with reading() as con:
            return self.entry.answer({**known, "con": con})


def check(settings: Settings, now: datetime) -> None:
    """Refuse settings with which no question could be answered.

    Raises:
        AnalysisError: [slo], [budgets] or [prices] hold what cannot be read, named with its remedy.
    """
    asked = Question.read({}, settings, now=now)
    budgets_for(asked.slo, next(iter(asked.slo.limits())), asked.budgets)


def slo_of(text: str | None, settings: Settings) -> Slo:
    """The limits of a text, else of the settings file, else the default.

    Raises:
        SloError: they cannot be read.
    """
    given = text or _configured_slo(settings)
    return parse_slo(given) if given else NOT_GIVEN


def _configured_slo(settings: Settings) -> str:
    """`[slo]`: `text = "chat"` in any dialect, or keys such as `ttft = 1500`."""
    table = dict(settings.slo)
    if not table:
        return ""
    text = str(table.pop("text", ""))
    return " ".join([text, *(f"{key}:{value}" for key, value in table.items())]).strip()


def _configured_budgets(settings: Settings) -> Configured | None:
    """The tables `[budgets."NAME"]`, NAME a route, a model or `*`; milliseconds per group or stage."""
    for name, table in settings.budgets.items():
        if not isinstance(table, dict) or not all(
            isinstance(v, int | float) and not isinstance(v, bool) for v in table.values()
        ):
            raise BudgetError(
                f"[budgets.{name!r}] must be milliseconds per group or stage, such as retrieval = 300"
            )
    return {
        name: {key: float(value) for key, value in table.items()}
        for name, table in settings.budgets.items()
    } or None
