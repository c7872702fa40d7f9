"""Has the engine more to do? What each request brings tells it before how many come."""

import numpy as np
import pytest

from analysis.demand import Demand, has_grown, slope_within


@pytest.mark.parametrize(("growth", "arrivals", "grown"), [(1.2, 1.2, True), (1.05, 1.05, False), (1.083, 0.953, True), (0.98, 0.8, False), (1.02, 1.0, False)])
def test_more_work_counts_as_a_whole_or_by_request(growth: float, arrivals: float, grown: bool) -> None:
    assert has_grown(Demand(growth, arrivals, arrivals, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0)) is grown


def test_what_a_token_costs_is_told_by_the_side_whose_prompts_differ_whatever_the_level_of_each() -> None:
    alike, different = np.linspace(590.0, 610.0, 200), np.linspace(600.0, 4_000.0, 200)
    # Reading 600 tokens more or less hides in the step; above that each takes 0.1 ms, and all of the second side waits 50 ms longer.
    sides = [(alike, np.full(200, 40.0)), (different, 90.0 + 0.1 * (different - 600.0))]
    assert slope_within(sides[:1]) == 0.0
    assert slope_within(sides) == pytest.approx(0.1, rel=1e-3)
    assert slope_within([(np.full(9, 600.0), np.arange(9.0))]) == 0.0


def test_a_slope_that_is_lost_in_noise_does_not_count_beside_a_clear_one() -> None:
    """0.1 ms a token in a calm engine; in one that preempts, prompts wait for seconds whatever they take, and their line falls by chance."""
    rng = np.random.default_rng(8)
    tokens = rng.uniform(300.0, 700.0, 400)
    calm = (tokens, 15.0 + 0.1 * tokens + rng.normal(0.0, 5.0, 400))
    crowded = (tokens, 1_000.0 - 0.4 * tokens + rng.exponential(2_000.0, 400))
    assert slope_within([calm, crowded]) == pytest.approx(0.1, abs=0.005)
    # Where none is clear, all count.
    assert slope_within([crowded, crowded]) == slope_within([crowded])
