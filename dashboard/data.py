"""What does the server say? Cached calls of the API's client, keyed on the question; nothing else is known here.

Answers are aggregates of at most a few hundred numbers, so they are shared between sessions and bounded in count.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

import streamlit as st

from analysis.burn import Burn
from analysis.client import Client
from analysis.cohorts import Cohorts
from analysis.compare import Comparison
from analysis.engine_course import EngineCourse
from analysis.engine_view import EngineView
from analysis.heatmap import Heatmap
from analysis.parts import Stages
from analysis.report import Report
from analysis.requests import Holdings, RequestList
from analysis.series import Series
from analysis.trace import Trace
from analysis.whatif.prediction import Prediction
from analysis.whatif_api import FixInfo
from dashboard import state
from dashboard.launch import URL_VARIABLE
from models.artifact import Artifact, load_artifact

DEFAULT_URL = "http://127.0.0.1:4318"
# A dict cannot be a cache key; the pairs of one can.
Asked: TypeAlias = tuple[tuple[str, str], ...]


def url() -> str:
    """The server that this dashboard asks."""
    return os.environ.get(URL_VARIABLE, DEFAULT_URL).rstrip("/")


@st.cache_resource(show_spinner=False)
def _client(address: str) -> Client:
    return Client(address)


def client() -> Client:
    """The client of the server; one set of connections for all sessions."""
    return _client(url())


def asked(filters: state.Filters) -> Asked:
    """The question of a run, as a cache key."""
    return tuple(sorted(filters.parameters(state.present()).items()))


def menus(filters: state.Filters) -> Mapping[str, list[str]]:
    """The values that each filter can take in the window, most requests first."""
    return {kind: [value.name for value in values] for kind, values in held(filters).values.items()}


def held(filters: state.Filters) -> Holdings:
    """What the store holds; asked without the SLO, so that one that the server refuses takes no menu away."""
    return holdings(asked(replace(filters, slo=None)))


@st.cache_data(ttl=3, max_entries=1, show_spinner=False)
def watermark() -> tuple[datetime | None, int]:
    """How far the store has come: the start of its newest request and how many there are; it moves when there is something new to draw."""
    held = client().holdings({"since": "1s"})
    return held.newest, held.requests


# Late spans change a window that is over, so nothing is kept for long; a preset window asks anew every 5 s anyway.
@st.cache_data(ttl=3, max_entries=64, show_spinner=False)
def holdings(asked: Asked) -> Holdings:
    """What the store holds, and what can be filtered by."""
    return client().holdings(dict(asked))


@st.cache_data(ttl=10, max_entries=64, show_spinner=False)
def report(asked: Asked) -> Report:
    """The whole answer."""
    return client().report(dict(asked))


@st.cache_data(ttl=10, max_entries=128, show_spinner=False)
def series(asked: Asked, metric: str) -> Series:
    """One metric over time."""
    return client().series(dict(asked), metric=metric)


@st.cache_data(ttl=10, max_entries=64, show_spinner=False)
def heatmap(asked: Asked, metric: str) -> Heatmap:
    """When how many requests were how slow."""
    return client().heatmap(dict(asked), metric=metric)


@st.cache_data(ttl=10, max_entries=64, show_spinner=False)
def stages(asked: Asked, metric: str | None) -> Stages:
    """Stage rows and the parts of the waterfall."""
    return client().stages(dict(asked), metric=metric)


@st.cache_data(ttl=10, max_entries=64, show_spinner=False)
def requests(asked: Asked, sort: str, limit: int, metric: str, min_ms: float | None, max_ms: float | None) -> RequestList:
    """The request list."""
    return client().requests(dict(asked), sort=sort, limit=limit, metric=metric, min_ms=min_ms, max_ms=max_ms)


@st.cache_data(ttl=10, max_entries=64, show_spinner=False)
def cohorts(asked: Asked, metric: str, min_ms: float | None, max_ms: float | None, box_from: str | None, box_to: str | None) -> Cohorts:
    """What slow requests share, or those of a box."""
    return client().cohorts(dict(asked), metric=metric, min_ms=min_ms, max_ms=max_ms, box_from=box_from, box_to=box_to)


@st.cache_data(ttl=30, max_entries=32, show_spinner=False)
def compare(asked: Asked, before: str, after: str) -> Comparison:
    """Two windows or versions side by side."""
    return client().compare(dict(asked), before=before, after=after)


@st.cache_data(ttl=10, max_entries=32, show_spinner=False)
def engine(asked: Asked, metric: str) -> EngineCourse:
    """What the inference servers said over time."""
    return client().engine(dict(asked), metric=metric)


@st.cache_data(ttl=30, max_entries=32, show_spinner=False)
def indicators(asked: Asked) -> EngineView:
    """Learned indicators, knees and headroom."""
    return client().indicators(dict(asked))


@st.cache_data(ttl=10, max_entries=32, show_spinner=False)
def burn(asked: Asked) -> Burn:
    """How fast the error budget is spent."""
    return client().burn(dict(asked))


@st.cache_data(ttl=600, max_entries=1, show_spinner=False)
def fixes() -> list[FixInfo]:
    """Every fix that can be asked for."""
    return client().fixes()


# An answer over a fixed window does not change by itself, and computing it may take seconds.
@st.cache_data(ttl=300, max_entries=64, show_spinner=False)
def whatif(asked: Asked, fix: str, metric: str, parameters: Asked) -> Prediction:
    """What a fix would buy."""
    return client().whatif(fix, {**dict(asked), **dict(parameters)}, metric=metric)


@st.cache_resource(ttl=30, max_entries=2, show_spinner=False)
def artifact(folder: str) -> Artifact:
    """The length predictor's artifact, every file held against its hash."""
    return load_artifact(Path(folder))


@st.cache_data(ttl=10, max_entries=32, show_spinner=False)
def trace(trace_id: str) -> Trace:
    """One request with its spans."""
    return client().trace(trace_id)
