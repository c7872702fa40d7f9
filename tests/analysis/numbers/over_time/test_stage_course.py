"""Stages over time: they sum to the percentile that numpy gives, gaps where there are too few requests, the slow ones from the onset on."""

from datetime import timedelta

import duckdb
import numpy as np
import pytest

from overrun.analysis.numbers.over_time.series import MOST_POINTS
from overrun.analysis.numbers.over_time.stage_course import StageCourse, StageSplit, stage_course
from overrun.analysis.numbers.requests.request_list import ListError
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import T0, at, insert, requests, store

SLO = Slo(ttft_ms=100.0, e2e_ms=1000.0)
ONSET = T0 + timedelta(seconds=300)


def filled(n: int = 600, **columns: object) -> duckdb.DuckDBPyConnection:
    con = store()
    slow = np.where(np.arange(n) >= 300, 5.0, 1.0)
    insert(
        con,
        requests(
            n, every_s=1.0, retrieval_ms=100.0 * slow, decode_ms=np.arange(n) % 60 + 1.0, **columns
        ),
    )
    return con


def course(con: duckdb.DuckDBPyConnection, metric: str = "e2e", **more: str) -> StageCourse:
    return stage_course(con, Window(start=T0, end=at(600)), SLO, metric, **more)


def sums(course: StageCourse, split: StageSplit | None) -> float:
    assert split is not None
    assert sum(split.ms) == pytest.approx(split.total_ms, abs=1e-6)
    assert len(split.ms) == len(course.stages)
    return split.total_ms


def test_every_step_sums_to_its_percentile() -> None:
    found = course(filled())
    assert (found.step_s, found.limit_ms, found.n) == (120, 1000.0, 600)
    decode = np.arange(600) % 60 + 1.0
    whole = decode + np.where(np.arange(600) >= 300, 500.0, 100.0)
    begin = int(T0.timestamp()) // 120 * 120
    for step in found.steps:
        first = int(step.start.timestamp() - T0.timestamp())
        inside = whole[max(0, first) : max(0, first + 120)]
        if len(inside) < 59:
            assert step.split is None
        else:
            assert sums(found, step.split) == pytest.approx(np.quantile(inside, 0.95))
    assert found.steps[0].start.timestamp() == begin


def test_slow_is_since_the_onset_and_typical_before_it() -> None:
    found = course(filled(), onset=ONSET.isoformat())
    decode = np.arange(300) % 60 + 1.0
    assert found.before_onset
    assert sums(found, found.slow) == pytest.approx(np.quantile(decode + 500.0, 0.95))
    assert sums(found, found.typical) == pytest.approx(np.quantile(decode + 100.0, 0.5))
    assert found.slow is not None
    stages = dict(zip(found.stages, found.slow.ms, strict=True))
    assert stages["retrieval"] == pytest.approx(500.0, rel=0.01)


def test_without_an_onset_all_requests_stand_for_both() -> None:
    found = course(filled())
    assert not found.before_onset
    assert found.slow is not None
    assert found.slow.n == 600


def test_a_window_of_few_requests_has_reasons() -> None:
    found = course(filled(20))
    assert (found.slow, found.typical is None) == (None, False)
    assert "too few" in found.reasons["slow"]
    assert course(store()).reasons["steps"] == "no request with E2E in the window"


def test_stages_of_another_metric_are_those_of_whole_requests() -> None:
    found = stage_course(
        filled(tpot_ms=10.0), Window(start=T0, end=at(600)), Slo(tpot_ms=5.0), "tpot"
    )
    assert found.limit_ms is None
    assert sums(found, found.slow) > 100.0


def test_the_number_of_steps_is_bounded() -> None:
    con = store()
    insert(con, requests(200, every_s=86_400.0, other_ms=5.0))
    assert len(stage_course(con, Window(), SLO, "e2e").steps) <= MOST_POINTS + 1


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ListError, match="metric"):
        course(store(), "median")
