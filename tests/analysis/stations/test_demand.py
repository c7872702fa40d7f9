"""Open loop or closed: the number of clients is held, or arrivals are."""

import numpy as np

from overrun.analysis.stations.demand import demand_of, is_closed
from overrun.analysis.stations.onset import find_onset
from overrun.analysis.stations.parts import parts_of
from tests.analysis.stations.world import level, plant, rate, steps, times

N = 80


def test_clients_that_are_held_at_three_levels_are_a_closed_loop() -> None:
    inside = np.repeat([8.0, 16.0, 32.0, 64.0], 20)
    assert is_closed(inside, np.full(N, 5.0))


def test_a_number_that_follows_arrivals_is_an_open_loop() -> None:
    wave = np.sin(np.arange(N) * 2.4)
    assert not is_closed(20.0 * (1.0 + 0.4 * wave), 5.0 * (1.0 + 0.05 * wave))


def test_a_still_number_beside_a_noisy_rate_is_held() -> None:
    wave = np.sin(np.arange(N) * 2.4)
    assert is_closed(np.full(N, 50.0), 5.0 * (1.0 + 0.3 * wave))


def test_arrivals_are_what_ends_and_what_piles_up() -> None:
    """5 a second end, and from bin 40 on the queue grows by 45 in a bin of 15 s: 8 a second arrive, 1.6 times as many."""
    queue = np.where(np.arange(N) < 40, 0.0, 45.0 * (np.arange(N) - 39))
    noisy = steps(5.0, 5.0, noise=0.01)
    made = plant(
        level("queue_depth", queue),
        level("running", [10.0] * N),
        rate("finished", noisy),
        times("ttft", noisy, 0.2 + queue / 5.0),
    )
    onset = find_onset(made, parts_of(made))
    assert onset is not None
    demand = demand_of(made, onset)
    assert demand.loop == "open"
    assert demand.first
    assert demand.growth is not None
    assert 1.5 < demand.growth < 1.7
