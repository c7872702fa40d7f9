"""The test slice: forecasts as they are answered, and abstention where nothing was proved."""

import numpy as np

from overrun.models.features import FEATURE_NAMES
from overrun.models.scoring import bounded, previous_outputs
from overrun.models.train import TrainReport


def test_quantiles_are_bounded_like_an_answer() -> None:
    crossed = np.array([[50.0, 40.0, 60.0, 70.0], [0.1, 0.5, 0.2, 3.0], [10.0, 30.0, 90.0, 99.0]])
    limits = np.array([np.nan, np.nan, 60.0])
    assert bounded(crossed, limits).tolist() == [
        [40.0, 50.0, 60.0, 70.0],
        [1.0, 1.0, 1.0, 3.0],
        [10.0, 30.0, 60.0, 60.0],
    ]


def test_the_previous_output_is_the_prefixs_else_the_sessions() -> None:
    features = np.full((3, len(FEATURE_NAMES)), np.nan, dtype=np.float32)
    features[:2, FEATURE_NAMES.index("session_log_last")] = np.log1p(7)
    features[0, FEATURE_NAMES.index("prefix_log_last")] = np.log1p(3)
    np.testing.assert_allclose(previous_outputs(features), [3.0, 7.0, np.nan], rtol=1e-6)


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
