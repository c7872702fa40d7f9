"""Scores against exact answers, slow references and laws."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overrun.models.evaluate import MIN_SCORED_ROWS, SKILL_LOW, Baselines, judge, score

LENGTHS = st.lists(st.integers(0, 20), min_size=2, max_size=30)


def slow_tau(first: list[int], second: list[int]) -> float:
    """Kendall's tau-b by counting pairs."""
    balance = ties_first = ties_second = 0
    pairs = list(itertools.combinations(range(len(first)), 2))
    for i, j in pairs:
        a, b = np.sign(first[i] - first[j]), np.sign(second[i] - second[j])
        balance += a * b
        ties_first += a == 0
        ties_second += b == 0
    return float(balance / np.sqrt((len(pairs) - ties_first) * (len(pairs) - ties_second)))


def test_scores_of_a_small_case_are_exact() -> None:
    quantiles = np.array([[0.0, 12.0, 9.0, 12.0], [20.0, 15.0, 20.0, 20.0], [0.0, 1.0, 30.0, 40.0]])
    scores = score(np.array([10.0, 20.0, 0.0]), quantiles)
    assert scores.mae == pytest.approx(8 / 3)  # errors 2, 5, 1
    assert scores.median_ape == pytest.approx(0.25)  # .2, .25, and 1/max(0, 1)
    assert scores.kendall_tau == pytest.approx(1.0)
    # Thirds end at 6.67 and 13.33: 12 is in the middle one as 10 is, 15 in the upper as 20, 1 in the lower as 0.
    assert scores.tertile_accuracy == 1.0
    assert (scores.p10_coverage, scores.p90_coverage, scores.p99_coverage) == pytest.approx(
        (2 / 3, 2 / 3, 1.0)
    )


@given(st.data())
def test_tau_is_kendalls(data: st.DataObject) -> None:
    generated = data.draw(LENGTHS)
    predicted = data.draw(
        st.lists(st.integers(0, 20), min_size=len(generated), max_size=len(generated))
    )
    tau = score(
        np.array(generated, dtype=float), np.array([predicted] * 4, dtype=float).T
    ).kendall_tau
    if len(set(generated)) == 1 or len(set(predicted)) == 1:
        assert tau is None
    else:
        assert tau == pytest.approx(slow_tau(generated, predicted))


def test_baselines_are_learned_medians_with_fallbacks() -> None:
    baselines = Baselines(
        ["a", "a", "a", "b", None],
        np.array([4.0, 5.0, 100.0, 7.0, np.nan]),
        np.array([1.0, 3.0, 50.0, 8.0, 9.0]),
    )
    assert baselines.route_median(["a", "b", None, "new"]).tolist() == [3.0, 8.0, 9.0, 8.0]
    # 4..7 share a power of two; 100 has its own; 9 of route b is unseen, so the route speaks.
    inputs = np.array([6.0, 100.0, 9.0, np.nan, 1.0])
    assert baselines.bucket_median(["a", "a", "b", None, "new"], inputs).tolist() == [
        2.0,
        50.0,
        8.0,
        9.0,
        8.0,
    ]


def test_half_the_error_is_good_skill() -> None:
    dice = np.random.default_rng(1)
    generated = dice.exponential(100, 2_000)
    median = np.full(2_000, 70.0)
    verdict = judge(generated, generated + (median - generated) / 2, median, seed=0)
    assert verdict.skill == "good"
    assert verdict.reduction == pytest.approx(0.5)
    assert verdict.interval == pytest.approx((0.5, 0.5))


def test_a_gain_that_could_be_luck_is_no_skill() -> None:
    dice = np.random.default_rng(1)
    generated = dice.exponential(100, 300)
    median = np.full(300, 70.0)
    verdict = judge(generated, median + dice.normal(0, 3, 300), median, seed=0)
    assert verdict.skill == "none"
    assert verdict.interval is not None
    assert verdict.interval[0] < SKILL_LOW


def test_a_small_sure_gain_is_low_skill() -> None:
    generated = np.tile([10.0, 200.0], 500)
    median = np.full(1_000, 100.0)
    verdict = judge(generated, generated + (median - generated) * 0.9, median, seed=0)
    assert (verdict.skill, round(verdict.reduction or 0, 3)) == ("low", 0.1)


def test_the_median_itself_has_no_skill() -> None:
    generated = np.tile([10.0, 200.0], 500)
    median = np.full(1_000, 100.0)
    assert judge(generated, median, median, seed=0).skill == "none"


def test_too_few_rows_or_a_perfect_median_give_no_skill_and_the_reason() -> None:
    few = np.arange(MIN_SCORED_ROWS - 1.0)
    assert (
        judge(few, few, few + 9, seed=0).reason
        == f"{MIN_SCORED_ROWS - 1} test requests, {MIN_SCORED_ROWS} are needed"
    )
    same = np.full(500, 5.0)
    assert judge(same, same, same, seed=0).reason == "the route median is never wrong"
