"""When to train again: silent while few, quiet while promises hold, a reason when they do not."""

import random

import pytest

from overrun.models.drift import MIN_ROWS, WINDOW, Drift
from overrun.models.predict import Predictor


def filled(rows: int, held: float, error: float) -> Drift:
    drift = Drift()
    for number in range(rows):
        # Generated 100; the median is off by 10.
        drift.add(100, 100 + error, 120 if number % 100 < held * 100 else 90, 110, modelled=True)
    return drift


def test_few_requests_say_nothing() -> None:
    assert filled(MIN_ROWS - 1, 0.5, 50).state() == {
        "rows": MIN_ROWS - 1,
        "p90_coverage": None,
        "error_reduction": None,
        "retrain": None,
    }


def test_kept_promises_need_no_training() -> None:
    state = filled(1_000, 0.9, 5).state()
    assert (state["p90_coverage"], state["error_reduction"], state["retrain"]) == (0.9, 0.5, None)


@pytest.mark.parametrize(
    ("held", "error", "words"),
    [
        (0.8, 5, "P90 covers 80 %"),
        (0.97, 5, "P90 covers 97 %"),
        (0.9, 9.9, "the error is +1.0 % below"),
    ],
)
def test_a_broken_promise_is_a_reason(held: float, error: float, words: str) -> None:
    assert words in str(filled(1_000, held, error).state()["retrain"])


def test_only_the_newest_requests_count() -> None:
    drift = filled(WINDOW, 0.0, 5)
    for _ in range(WINDOW):
        drift.add(100, 100, 120, 110, modelled=False)
    state = drift.state()
    assert (state["rows"], state["p90_coverage"], state["error_reduction"]) == (WINDOW, 1.0, 0.5)


def test_a_predictor_notices_that_its_traffic_has_changed(predictor: Predictor) -> None:
    dice = random.Random(4)
    assert predictor.drift.state()["rows"] == 0
    for number in range(250):
        row = {"id": number, "route": "chat", "input_tokens": dice.randrange(100, 2_000)}
        predictor.predict(row)
        predictor.observe(row, dice.randrange(2_000, 3_000))
    state = predictor.drift.state()
    assert state["retrain"] is not None
    assert state["p90_coverage"] is not None
    assert state["p90_coverage"] < 0.87
