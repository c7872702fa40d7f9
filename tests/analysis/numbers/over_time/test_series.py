"""Latency over time: points equal numpy on the same requests, percentiles need their n, and the step follows window and traffic."""

from datetime import timedelta

import duckdb
import msgspec
import numpy as np
import pytest

from overrun.analysis.numbers.over_time.series import MOST_POINTS, STEPS_S, Series, series, step_of
from overrun.analysis.numbers.requests.request_list import Extent, ListError
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import T0, at, insert, requests, store

SLO = Slo(ttft_ms=100.0, e2e_ms=1000.0)


def filled(**columns: object) -> duckdb.DuckDBPyConnection:
    con = store()
    insert(con, requests(600, every_s=1.0, other_ms=np.arange(600) + 0.5, **columns))
    return con


def test_a_point_holds_the_percentiles_of_its_own_requests() -> None:
    found = series(filled(), Window(start=T0, end=at(600)), SLO, "e2e")
    assert (
        found.step_s == 60
    )  # 1 request/s: 89 requests a step would take 120 s, but ten points are wanted
    assert [point.n for point in found.points] == [60] * 10
    values = np.arange(60) + 0.5
    first = found.points[0]
    assert (first.p50, first.p95, first.p99) == (
        np.quantile(values, 0.5),
        pytest.approx(np.quantile(values, 0.95)),
        None,
    )
    assert found.n == 600
    assert found.limit_ms == 1000.0


def test_percentiles_are_null_below_their_sample_size() -> None:
    con = store()
    insert(con, requests(5, every_s=1.0, other_ms=10))
    found = series(con, Window(start=T0, end=at(3600)), SLO, "e2e")
    assert [point.p50 for point in found.points if point.n] == [None] * sum(
        1 for point in found.points if point.n
    )
    assert found.min_n == {"p50": 6, "p95": 59, "p99": 299}


def test_errors_and_goodput_are_per_step_and_failed_requests_have_no_latency() -> None:
    con = store()
    insert(
        con,
        requests(
            120, every_s=1.0, other_ms=10.0, ttft_other_ms=5.0, error=[i < 60 for i in range(120)]
        ),
    )
    found = series(con, Window(start=T0, end=at(120)), SLO, "ttft")
    assert sum(point.errors for point in found.points) == 60
    assert sum(point.n for point in found.points) == 60
    assert found.points[0].goodput_ratio == 0.0
    assert found.points[-1].goodput_ratio == 1.0
    assert found.points[0].p50 is None


def test_a_quiet_step_is_a_point_without_requests() -> None:
    con = store()
    insert(con, requests(20, start_s=np.r_[np.arange(10), 590 + np.arange(10)], other_ms=10.0))
    found = series(con, Window(start=T0, end=at(600)), SLO, "e2e")
    assert found.points[len(found.points) // 2].requests == 0
    assert found.points[len(found.points) // 2].goodput_ratio is None


def test_the_window_is_half_open_and_steps_stand_on_the_clock() -> None:
    found = series(filled(), Window(start=at(7), end=at(127)), SLO, "e2e")
    assert found.n == 120
    assert all(point.start.timestamp() % found.step_s == 0 for point in found.points)


def test_an_empty_window_says_so() -> None:
    found = series(store(), Window(start=T0, end=at(60)), SLO, "e2e")
    assert (found.points, found.n) == ([], 0)
    assert found.reasons == {"points": "no request in the window"}


def test_an_unknown_metric_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ListError, match="e2e"):
        series(store(), Window(), SLO, "e2")


@pytest.mark.parametrize("seconds", [1, 60, 150, 3600, 86_400, 30 * 86_400, 400 * 86_400])
@pytest.mark.parametrize("n", [1, 2, 100, 1_000_000])
def test_there_are_never_more_points_than_asked_for(seconds: int, n: int) -> None:
    step = step_of(Extent(n=n, start=T0, end=at(seconds), first=T0, last=at(seconds * 0.999)))
    assert seconds / step <= MOST_POINTS
    assert step in STEPS_S or step % STEPS_S[-1] == 0


def test_no_request_and_no_bound_gives_the_finest_step() -> None:
    assert step_of(Extent(n=0, start=None, end=None, first=None, last=None)) == 1


def test_it_survives_the_wire() -> None:
    found = series(filled(), Window(start=T0, end=T0 + timedelta(minutes=10)), SLO, "e2e")
    assert msgspec.json.decode(msgspec.json.encode(found), type=Series) == found


def test_sampled_requests_count_for_those_that_they_stand_for() -> None:
    con = store()
    fast = requests(
        60,
        every_s=1.0,
        other_ms=10.0,
        ttft_other_ms=5.0,
        sampling="th:e6666666666668",
        sample_weight=10.0,
    )
    slow = requests(
        60, every_s=1.0, other_ms=2000.0, ttft_other_ms=5.0, sampling="th:0", sample_weight=1.0
    )
    insert(con, fast, slow)
    found = series(con, Window(start=T0, end=at(60)), SLO, "e2e")
    assert found.reasons == {}
    assert all(point.p50 == 10.0 for point in found.points if point.p50 is not None)
    ratios = [point.goodput_ratio for point in found.points if point.requests]
    assert ratios == pytest.approx([10 / 11] * len(ratios))


def test_of_a_biased_selection_only_the_counts_are_shown() -> None:
    con = store()
    insert(
        con, requests(600, every_s=1.0, other_ms=2000.0, ttft_other_ms=5.0, sampling="tail:latency")
    )
    found = series(con, Window(start=T0, end=at(600)), SLO, "e2e")
    assert {(point.p50, point.p95, point.goodput_ratio) for point in found.points} == {
        (None, None, None)
    }
    assert sum(point.requests for point in found.points) == 600
    assert "chooses by outcome" in found.reasons["p95"]
