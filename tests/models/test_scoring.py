"""The test slice: forecasts as they are answered, and abstention where nothing was proved."""

import numpy as np

from models.scoring import Forecast
from models.train import TrainReport


def test_a_forecast_is_bounded_like_an_answer() -> None:
    crossed = Forecast(np.array([50.0, 0.2, 30.0]), np.array([40.0, 0.5, 90.0]))
    bounded = crossed.bounded(np.array([np.nan, np.nan, 60.0]))
    assert bounded.p50.tolist() == [40.0, 1.0, 30.0]
    assert bounded.p90.tolist() == [50.0, 1.0, 60.0]


def test_a_forecast_gives_way_where_it_was_not_chosen() -> None:
    mixed = Forecast(np.array([1.0, 2.0]), np.array([3.0, 4.0])).where(
        np.array([True, False]), Forecast(np.array([5.0, 6.0]), np.array([7.0, 8.0]))
    )
    assert (mixed.p50.tolist(), mixed.p90.tolist()) == ([1.0, 6.0], [3.0, 8.0])


def test_each_route_is_judged_on_its_own(small_report: TrainReport) -> None:
    skills = {report.route: report.verdict.skill for report in small_report.test.routes}
    assert skills == {"chat": "good", "noise": "none", "session": "good"}
    noise = next(report for report in small_report.test.routes if report.route == "noise")
    assert noise.answered.mae != noise.model.mae
    assert noise.answered.mae <= 1.05 * noise.route_median_mae


def test_the_overall_score_is_that_of_the_answers(small_report: TrainReport) -> None:
    routes = small_report.test.routes
    rows = sum(report.answered.rows for report in routes)
    overall = small_report.test.overall
    assert overall.answered.rows == rows == small_report.rows["test"]
    weighted = sum(report.answered.mae * report.answered.rows for report in routes) / rows
    np.testing.assert_allclose(overall.answered.mae, weighted)
