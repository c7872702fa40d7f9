"""Has the engine more to do? What each request brings tells it before how many come."""

import pytest

from analysis.demand import Demand, has_grown


@pytest.mark.parametrize(("growth", "arrivals", "grown"), [(1.2, 1.2, True), (1.05, 1.05, False), (1.083, 0.953, True), (0.98, 0.8, False), (1.02, 1.0, False)])
def test_more_work_counts_as_a_whole_or_by_request(growth: float, arrivals: float, grown: bool) -> None:
    assert has_grown(Demand(growth, arrivals, arrivals, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0)) is grown
