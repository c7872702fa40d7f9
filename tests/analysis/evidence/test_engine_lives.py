"""Lives of engines: replaced, warming, added, gone; and those that a pause of the traffic, or chance, only seems to end."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.engine_lives import at_once, lives, sampled_at_once, slots


def served(*names: int) -> list[tuple[int, float, float]]:
    found = lives(np.array(names), np.arange(len(names), dtype=np.float64))
    return [(one.code, round(one.begin, 2), round(one.end, 2)) for one in found]


def test_a_replaced_engine_and_the_one_after_it_are_one_at_a_time() -> None:
    engines = np.repeat([7, 9], [100, 300])
    found = lives(engines, np.arange(400.0))
    assert [(one.code, one.begin, one.end) for one in found] == [(7, 0.0, 0.25), (9, 0.25, 1.0)]
    assert at_once(found) == 1
    assert slots(found) == {7: 0, 9: 0}
    assert not found[0].beside(found[1])


def test_a_handful_of_calls_on_what_is_gone_is_no_second_replica() -> None:
    """Three calls of the last minute before the rollout, then a hundred on the engine of now: by chance once in 40,000 times."""
    assert at_once(lives(np.repeat([1, 2], [3, 100]), np.arange(103.0))) == 1


@pytest.mark.parametrize("seed", range(5))
def test_engines_that_share_the_traffic_all_live_throughout(seed: int) -> None:
    """One of four gets a twentieth of the calls, by chance none in the first or last of them; a pause of the traffic is nobody's end."""
    rng = np.random.default_rng(seed)
    engines = rng.choice(4, 400, p=[0.05, 0.3, 0.3, 0.35])
    start = np.sort(np.r_[rng.uniform(0, 10, 200), rng.uniform(5_000, 5_010, 200)])
    found = lives(engines, start)
    assert [(one.begin, one.end) for one in found] == [(0.0, 1.0)] * 4
    assert at_once(found) == 4


def test_a_rollout_of_two_replicas_one_after_the_other_has_two_at_a_time() -> None:
    """A, B; then C takes A's place, then D takes B's."""
    engines = np.r_[np.tile([0, 1], 100), np.tile([2, 1], 100), np.tile([2, 3], 100)]
    found = lives(engines, np.arange(600.0))
    assert at_once(found) == 2
    place = slots(found)
    assert (place[0] == place[2], place[1] == place[3]) == (True, True)


def test_calls_of_one_request_count_once() -> None:
    """Five calls of one agent's turn at the beginning are one draw: no more than chance in twenty requests."""
    engines = np.r_[np.zeros(5, np.int64), np.ones(20, np.int64)]
    request = np.r_[np.zeros(5, np.int64), np.arange(1, 21)]
    assert lives(engines, np.arange(25.0), request)[0].end == 1.0
    assert lives(engines, np.arange(25.0))[0].end < 1.0


def test_samples_of_a_pod_that_is_gone_and_of_the_next_are_of_one_instance_at_a_time() -> None:
    at = np.arange(20) * 5_000_000
    old = pl.DataFrame({"instance": "a", "time_us": at[:10]})
    new = pl.DataFrame({"instance": "b", "time_us": at[10:]})
    beside = pl.DataFrame({"instance": "c", "time_us": at})
    assert sampled_at_once(pl.concat([old, new])) == 1
    assert sampled_at_once(pl.concat([old, new, beside])) == 2
    assert sampled_at_once(old.clear()) == 0
