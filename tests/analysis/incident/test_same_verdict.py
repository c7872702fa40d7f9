"""A verdict holds still where nothing that matters changes: the window's edges, a tenth of the requests, their order, names and dates, other data in the store."""

from collections.abc import Callable
from datetime import datetime

import numpy as np
import polars as pl
import pytest

from overrun.analysis.front.report import Report, build
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import at, insert, requests, store

N, CHANGED = 900, 600
SLO = Slo(e2e_ms=2_500.0)


def incident(shift_s: float = 0.0, **names: object) -> pl.DataFrame:
    """Fifteen minutes of requests, a second apart; searching takes longer for the last five."""
    rng = np.random.default_rng(11)
    slow = np.arange(N) >= CHANGED
    return requests(
        N,
        start_s=shift_s + np.arange(N) * 1.0,
        prefill_ms=300.0 * rng.uniform(0.8, 1.2, N),
        ttft_ms=300.0,
        decode_ms=600.0 * rng.uniform(0.8, 1.2, N),
        retrieval_ms=np.where(slow, 2_600.0, 150.0) * rng.uniform(0.8, 1.2, N),
        **names,
    )


def judged(
    rows: pl.DataFrame,
    *others: pl.DataFrame,
    first: datetime | None = None,
    last: datetime | None = None,
) -> Report:
    con = store()
    for frame in (*others, rows):
        insert(con, frame)
    return build(con, Window(start=first, end=last), SLO)


def answer(report: Report) -> tuple[str, str | None, str | None]:
    return report.verdict.status, report.verdict.stage, report.verdict.cause


@pytest.fixture(scope="module")
def usual() -> tuple[str, str | None, str | None]:
    found = answer(judged(incident(), first=at(0), last=at(N)))
    assert found[:2] == ("over_budget", "retrieval")
    return found


@pytest.mark.parametrize("part", [0.01, 0.05, 0.1, 0.2])
@pytest.mark.parametrize("edge", ["first", "last", "both"])
def test_moved_edges_of_the_window(
    part: float, edge: str, usual: tuple[str, str | None, str | None]
) -> None:
    first = at(part * N if edge != "last" else 0.0)
    last = at(N - part * N if edge != "first" else N)
    assert answer(judged(incident(), first=first, last=last)) == usual


def left_out(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.Series(np.arange(rows.height) % 10 != 3))


def reordered(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.sample(fraction=1.0, shuffle=True, seed=5)


@pytest.mark.parametrize("change", [left_out, reordered])
def test_some_requests_less_and_another_order(
    change: Callable[[pl.DataFrame], pl.DataFrame], usual: tuple[str, str | None, str | None]
) -> None:
    assert answer(judged(change(incident()), first=at(0), last=at(N))) == usual


def test_other_names_and_other_dates(usual: tuple[str, str | None, str | None]) -> None:
    named = incident(service="zeta", route="/xyz", model="m-9", tenant="t-4")
    assert answer(judged(named, first=at(0), last=at(N))) == usual
    month = 30 * 86_400.0
    assert answer(judged(incident(month), first=at(month), last=at(month + N))) == usual


@pytest.mark.parametrize("part", [0.0, 0.5, 0.7])
def test_another_services_data_before_the_window(
    part: float, usual: tuple[str, str | None, str | None]
) -> None:
    """A window that begins within the incident looks for what came before it: not at what others recorded."""
    other = requests(600, start_s=-700.0 + np.arange(600.0), prefill_ms=20.0, decode_ms=30.0, service="other", route="/other", model="tiny")  # fmt: skip
    first = at(part * N)
    alone = judged(incident(), first=first, last=at(N))
    beside = judged(incident(), other, first=first, last=at(N))
    assert answer(beside) == answer(alone)
    assert beside.baseline == alone.baseline
    if part == 0.0:
        assert answer(beside) == usual
