"""Which requests are bad: a stretch, the limit, two heaps, or none."""

import numpy as np
import pytest

from overrun.analysis.contrast.sides import interval, relative, sides, stretch, two_heaps


def _usual(n: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(np.log(500.0), 0.3, n)


def test_a_step_is_a_stretch_from_its_moment_on() -> None:
    values = _usual(400)
    values[250:] += 400.0
    found = sides(values, None)
    assert found.mode == "stretch"
    assert abs(found.first - 250) <= 12
    assert found.last == 400
    assert found.bad.sum() == 400 - found.first


def test_spikes_since_a_moment_are_bad_and_what_is_usual_beside_them_is_not() -> None:
    values = _usual(400)
    values[250::8] += 4000.0
    found = sides(values, np.full(400, 2000.0))
    assert found.mode == "stretch"
    assert found.bad.sum() == 19
    assert values[found.bad].min() > 2000.0


def test_late_ones_at_all_times_are_parted_by_the_limit() -> None:
    values = _usual(400)
    values[np.random.default_rng(2).permutation(400)[:60]] += 3000.0
    found = sides(values, np.full(400, 2500.0))
    assert (found.mode, int(found.bad.sum()), int(found.good.sum())) == ("some", 60, 340)


def test_nearly_all_late_is_always_so_unless_they_lie_in_two_heaps() -> None:
    assert sides(_usual(200), np.full(200, 100.0)).mode == "always"
    two = np.concatenate([_usual(100), _usual(100) * 9.0])
    np.random.default_rng(3).shuffle(two)
    found = sides(two, np.full(200, 100.0))
    assert (found.mode, int(found.bad.sum())) == ("some", 100)


@pytest.mark.parametrize("n", [0, 1, 19])
def test_too_few_requests_are_not_compared(n: int) -> None:
    found = sides(_usual(n), None)
    assert (found.mode, found.how) == ("none", f"{n} requests, 20 are needed to compare")


def test_equal_values_have_no_stretch_and_no_heaps() -> None:
    same = np.full(100, 300.0)
    assert stretch(same, np.random.default_rng(1)) == (0, 100, 1.0)
    assert two_heaps(same) is None
    assert sides(same, np.full(100, 400.0)).mode == "none"


def test_shuffled_requests_have_a_stretch_no_more_often_than_chance_allows() -> None:
    rng = np.random.default_rng(7)
    found = [sides(rng.permutation(_usual(300, seed)), None).mode for seed in range(60)]
    assert found.count("stretch") == 0


def test_the_interval_of_a_share_holds_it_and_is_narrow_for_many() -> None:
    rng = np.random.default_rng(4)
    part = np.concatenate([rng.normal(10.0, 1.0, 300), rng.normal(110.0, 20.0, 300)])
    whole = part + rng.normal(50.0, 5.0, 600)
    bad = np.arange(600) >= 300
    low, high = interval(np.column_stack([part, whole]), (bad / 300.0, ~bad / 300.0))
    assert low < 1.0 < high
    assert high - low < 0.05


def test_more_requests_of_a_slow_kind_are_no_stretch() -> None:
    kind = (np.random.default_rng(4).random(400) < np.repeat([0.1, 0.6], 200)).astype(np.int64)
    values = _usual(400) + 2000.0 * kind
    assert sides(values, None).mode == "stretch"
    assert sides(relative(values, kind), None).mode == "none"


def test_a_kind_that_becomes_slower_is_a_stretch_among_slower_kinds() -> None:
    kind = np.random.default_rng(5).integers(0, 5, 400)
    values = _usual(400) / 10.0 + 500.0 * kind
    values[250:][kind[250:] == 1] += 600.0
    found = sides(relative(values, kind), np.full(400, np.inf))
    assert found.mode == "stretch"
    assert abs(found.first - 250) <= 12
    slower = (kind == 1) & (np.arange(400) >= max(250, found.first))
    assert found.bad[slower].all()
    assert found.bad[~slower].mean() < 0.1
