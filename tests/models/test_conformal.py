"""Rolling offsets: the rank of the paper, per route, newest residuals only, the same after a round trip."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overrun.models.conformal import LEVELS, MIN_RESIDUALS, WINDOW, Calibration, Residuals
from overrun.models.errors import ArtifactError


@given(st.lists(st.floats(-5, 5), min_size=20, max_size=200))
def test_an_offset_covers_its_own_residuals(residuals: list[float]) -> None:
    own = Residuals(residuals)
    assert np.mean(np.array(residuals) <= own.offset(0.9)) >= 0.9
    assert np.mean(np.array(residuals) < own.offset(0.1)) <= 0.1


def test_the_offset_is_the_rank_of_the_paper() -> None:
    # n = 99: ceil(100 * 0.9) = the 90th smallest of 1..99, and floor(100 * 0.1) = the 10th.
    own = Residuals(range(1, 100))
    assert (own.offset(0.9), own.offset(0.1), own.offset(0.99)) == (90.0, 10.0, 99.0)
    assert Residuals([3.0]).offset(0.9) == 3.0
    assert Residuals().offset(0.9) == 0.0


def test_only_the_newest_residuals_count() -> None:
    own = Residuals([9_999.0] * 10 + [float(number) for number in range(WINDOW)])
    assert list(own) == list(range(WINDOW))
    # The newest 1,000 are the larger ones: the farther bound above is theirs, the one below that of all.
    assert own.offset(0.99) == WINDOW - 1_000 + math.ceil(0.99 * 1_001) - 1
    assert own.offset(0.1) == math.floor(0.1 * (WINDOW + 1)) - 1


def drawn(seed: int, shift: float, rows: int) -> list[float]:
    return (np.random.default_rng(seed).normal(shift, 1, rows)).tolist()


def feed(calibration: Calibration, route: str, residuals: list[float]) -> None:
    for residual in residuals:
        calibration.observe(route, dict.fromkeys(LEVELS, residual))


def test_a_route_speaks_for_itself_once_it_has_enough() -> None:
    calibration = Calibration()
    feed(calibration, "a", drawn(0, 5.0, 500))
    feed(calibration, "b", drawn(1, 0.0, MIN_RESIDUALS - 1))
    assert calibration.offsets("b") == calibration.offsets("never seen")
    feed(calibration, "b", drawn(2, 0.0, 1))
    own = sorted(drawn(1, 0.0, MIN_RESIDUALS - 1) + drawn(2, 0.0, 1))
    assert calibration.offsets("b")["p90"] == pytest.approx(
        own[math.ceil(0.9 * (MIN_RESIDUALS + 1)) - 1], abs=0.0005
    )
    assert calibration.offsets("a")["p90"] > 5


def test_coverage_comes_back_after_a_sudden_drift() -> None:
    """A fixed offset would cover 24 % after the shift; the window covers 90 % again once it is full of new residuals."""
    calibration = Calibration()
    feed(calibration, "a", drawn(0, 0.0, WINDOW))
    covered = []
    for residual in drawn(1, 2.0, 3 * WINDOW):
        covered.append(residual <= calibration.offsets("a")["p90"])
        feed(calibration, "a", [residual])
    assert np.mean(covered[:100]) < 0.6
    assert np.mean(covered[WINDOW:]) == pytest.approx(0.9, abs=0.015)


def test_requests_that_come_a_hundred_alike_are_covered() -> None:
    """Half of the spread of a hundred answers at a time is their prompt's. A window of 1,000, ten prompts, covers 88.9 %."""
    covered = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        calibration = Calibration()
        for prompt in range(150):
            residuals = (rng.normal(0, 0.6) + rng.normal(0, 0.6, 100)).tolist()
            if prompt >= 50:
                covered += [residual <= calibration.offsets("a")["p90"] for residual in residuals]
            feed(calibration, "a", residuals)
    assert np.mean(covered) == pytest.approx(0.9, abs=0.0075)


def test_the_stored_state_goes_on_where_it_was() -> None:
    calibration = Calibration()
    feed(calibration, "a", drawn(0, 0.0, 700))
    feed(calibration, "few", drawn(0, 0.0, 5))
    payload = json.loads(json.dumps(calibration.to_payload()))
    assert [entry["route"] for entry in payload["routes"]] == ["a"]
    assert payload["offsets"] == calibration.offsets("few")
    restored = Calibration.from_payload(payload)
    for each in (calibration, restored):
        feed(each, "a", drawn(3, 1.0, 50))
    assert restored.offsets("a") == calibration.offsets("a")
    assert all(math.isfinite(offset) for offset in restored.offsets(None).values())


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"levels": {"p90": 0.9}, "residuals": {}, "routes": []},
        {"levels": 5},
        {"levels": {}, "residuals": {}, "routes": [{}]},
    ],
)
def test_an_unreadable_state_is_refused(payload: dict[str, object]) -> None:
    with pytest.raises(ArtifactError, match="the calibration is not readable"):
        Calibration.from_payload(payload)


def test_routes_invented_by_a_client_do_not_grow_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("overrun.models.conformal._MAX_ROUTES", 3)
    calibration = Calibration()
    for number in range(20):
        feed(calibration, f"r{number}", [1.0])
    assert len(calibration._routes) == 3
