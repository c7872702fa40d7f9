"""What does the server answer? Calls of the API's client, keyed on the question and kept while they are good (see answers.py); nothing else is known here.

Answers are aggregates of at most a few hundred numbers, so they are shared between sessions and bounded in count.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import streamlit as st

from overrun.analysis.front import question_table as questions
from overrun.analysis.front.client import DEFAULT_URL, Client, ClientError
from overrun.analysis.front.fix_list import FixInfo
from overrun.analysis.front.question_table import Answer, Entry, Value
from overrun.analysis.front.report import Report, unfinished
from overrun.analysis.front.stage_waterfall import Stages, stages_of
from overrun.analysis.numbers.requests.request_list import Holdings
from overrun.analysis.whatif.prediction import Prediction
from overrun.analysis.words.times import rfc3339
from overrun.dashboard import state
from overrun.dashboard.answers import FRESH_S, KEEP_S, PART_S, Answers
from overrun.dashboard.launch import URL_VARIABLE
from overrun.models.artifact import Artifact, load_artifact

# A dict cannot be a cache key; the pairs of one can.
Asked: TypeAlias = tuple[tuple[str, str], ...]
# What a page asks for beside the report, given its question, the report and the address' parameters.
Needs: TypeAlias = Callable[[Asked, Report, Mapping[str, str]], "list[Callable[[], object]]"]
# How often the store is asked how far it has come.
_MARK_S: Final = 3.0
# A rehearsal looks at so much: few requests, enough for every part of an answer.
# The store's extent is wanted alone: an answer over a window that does not move is kept by the server as long as nothing is written.
_NOTHING: Final = (("from", "1970-01-01T00:00:00Z"), ("to", "1970-01-01T00:00:01Z"))
_REHEARSED: Final = timedelta(minutes=1)


def url() -> str:
    """The server that this dashboard asks."""
    return os.environ.get(URL_VARIABLE, DEFAULT_URL).rstrip("/")


@lru_cache(maxsize=8)
def _client(address: str) -> Client:
    return Client(address)


def client() -> Client:
    """The client of the server; one set of connections for all sessions."""
    return _client(url())


def asked(filters: state.Filters) -> Asked:
    """The question of a run, as a cache key."""
    return tuple(sorted(filters.parameters(state.present()).items()))


def menus(
    filters: state.Filters, needs: Needs | None = None, query: Mapping[str, str] | None = None
) -> Mapping[str, list[str]]:
    """The values that each filter can take in the window, most requests first; the report is fetched meanwhile.

    `needs` lists what the page asks for beside the report. What it needed for the question before is most often what it needs for this one, and is fetched
    at the same time.
    """
    question = asked(filters)
    before = state.asked_before(question)
    ahead(lambda: report(question))
    if (
        needs is not None
        and before is not None
        and before != question
        and (told := known(before)) is not None
    ):
        ahead(*needs(question, told, query or {}))
    return {kind: [value.name for value in values] for kind, values in held(filters).values.items()}


def held(filters: state.Filters) -> Holdings:
    """What the store holds; asked without the SLO, so that one that the server refuses takes no menu away."""
    return holdings(asked(replace(filters, slo=None)))


def watermark() -> tuple[datetime | None, int]:
    """How far the store has come: the start of its newest request and how many there are; it moves when there is something new to draw."""
    return _seen(_holdings(_NOTHING))


def answers() -> bool:
    """Whether the server answers now."""
    try:
        client().ask(questions.HOLDINGS, dict(_NOTHING))
    except ClientError:
        return False
    return True


def holdings(asked: Asked) -> Holdings:
    """What the store holds, and what can be filtered by."""
    held = _holdings(asked)
    _seen(held)
    return held


def _holdings(asked: Asked) -> Holdings:
    return _ask(questions.HOLDINGS, asked, {}, fresh_s=_MARK_S, keep_s=0.0)


def ask(entry: Entry[Answer], asked: Asked, **more: Value) -> Answer:
    """The server's answer to a question of the table; of the page's question it gets what it has parameters for."""
    return _ask(entry, asked, more)


def report(asked: Asked, *, anew: bool = False) -> Report:
    """The whole answer, or what there is of it: `anew` soon asks again for one that is unfinished, which a page does while it waits."""
    return _ask(
        questions.REPORT,
        asked,
        {},
        whole=lambda told: not unfinished(told),
        part_s=PART_S if anew else FRESH_S,
    )


def known(asked: Asked) -> Report | None:
    """The last report, of any age, without waiting."""
    return _found(questions.REPORT, asked, {})


def stages(asked: Asked, metric: str, told: Report) -> Stages:
    """Stage rows and the parts of the waterfall; those of the metric that the report judges are in the report."""
    if metric == told.verdict.metric and told.stages:
        return stages_of(told)
    return ask(questions.STAGES, asked, metric=metric)


def fixes() -> list[FixInfo]:
    """Every fix that can be asked for."""
    return ask(questions.FIXES, ())


def whatif(asked: Asked, fix: str, metric: str, parameters: Asked) -> Prediction:
    """What a fix would buy; `parameters` are its own."""
    return ask(questions.WHATIF, asked, fix=fix, metric=metric, **dict(parameters))


def known_whatif(asked: Asked, fix: str, metric: str, parameters: Asked) -> Prediction | None:
    """The last prediction of a fix, None if it was not asked for or is not there, without waiting."""
    return _found(questions.WHATIF, asked, {"fix": fix, "metric": metric, **dict(parameters)})


@st.cache_resource(ttl=30, max_entries=2, show_spinner=False)
def artifact(folder: str) -> Artifact:
    """The length predictor's artifact, every file held against its hash."""
    return load_artifact(Path(folder))


def ahead(*answers: Callable[[], object]) -> None:
    """Have answers fetched at the same time while the page is being drawn; a client for one waits for it, and learns of its errors."""
    for answer in answers:
        threading.Thread(target=_tried, args=(answer,), daemon=True, name="ahead").start()


def expect(query: Mapping[str, str], needs: Needs | None = None) -> Asked:
    """A browser asks for a page with these parameters and will take a second to load the program: what the page asks for is fetched meanwhile.

    `needs` lists it beside the report. Returns the question of the page.
    """
    filters = state.Filters.of(query)
    now = state.expect(filters)
    question, menus = (
        tuple(sorted(part.parameters(now).items()))
        for part in (filters, replace(filters, slo=None))
    )

    def whole() -> None:
        told = report(question)
        if needs is not None and told.window.requests:
            ahead(*needs(question, told, query))

    ahead(lambda: holdings(menus), whole)
    return question


def rehearse() -> None:
    """Ask what pages ask, about the last minute that holds a request: what a first answer has to load (a second of CPU) is then loaded, here and there."""
    newest = watermark()[0]
    if newest is not None:
        asked = (
            ("from", rfc3339(newest - _REHEARSED)),
            ("to", rfc3339(newest + timedelta(seconds=1))),
        )
        report(asked)
        ask(questions.BURN, asked)
        ask(questions.INDICATORS, asked)
        ask(questions.DOCTOR, asked)
        ask(questions.SERIES, asked, metric="e2e")
        ask(questions.HEATMAP, asked, metric="e2e")
        ask(questions.ENGINE, asked, metric="e2e")


def forget() -> None:
    """Ask everything again."""
    _ANSWERS.forget()


def _ask(
    entry: Entry[Answer],
    asked: Asked,
    more: Mapping[str, Value],
    *,
    fresh_s: float | None = None,
    keep_s: float = KEEP_S,
    whole: Callable[[Answer], bool] | None = None,
    part_s: float = PART_S,
) -> Answer:
    api = client()
    given = _given(entry, asked)
    return _ANSWERS.get(
        _key(api, entry, given, more),
        lambda: api.ask(entry, dict(given), **more),
        fresh_s=entry.fresh_s if fresh_s is None else fresh_s,
        keep_s=keep_s,
        whole=whole,
        part_s=part_s,
    )


def _found(entry: Entry[Answer], asked: Asked, more: Mapping[str, Value]) -> Answer | None:
    found: Answer | None = _ANSWERS.found(_key(client(), entry, _given(entry, asked), more))
    return found


def _given(entry: Entry[Any], asked: Asked) -> Asked:
    return tuple(pair for pair in asked if pair[0] in entry.names)


def _key(api: Client, entry: Entry[Any], asked: Asked, more: Mapping[str, Value]) -> Hashable:
    return api.url, entry.path, asked, tuple(sorted(more.items()))


def _seen(held: Holdings) -> tuple[datetime | None, int]:
    mark = (held.newest, held.requests)
    _ANSWERS.saw(mark)
    return mark


def _tried(answer: Callable[[], object]) -> None:
    with suppress(Exception):
        answer()


_ANSWERS = Answers(watermark)
