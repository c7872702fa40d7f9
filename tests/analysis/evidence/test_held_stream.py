"""By how much do first tokens and ends come later? Medians with the intervals of their order statistics."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.held_stream import behind_ms, median_interval


def test_client_and_engine_are_compared_where_both_are_known() -> None:
    calls = Calls(
        pl.DataFrame(
            {
                "engine_alone": [False, False, True],
                "ttft_client_ms": [2_000.0, None, 500.0],
                "ttft_engine_ms": [100.0, 100.0, 500.0],
                "e2e_ms": [5_000.0, 5_000.0, 900.0],
                "engine_e2e_ms": [4_970.0, 4_990.0, 900.0],
            }
        )
    )
    first, end = behind_ms(calls)
    np.testing.assert_array_equal(first, [1_900.0, np.nan, np.nan])
    np.testing.assert_array_equal(end, [30.0, 10.0, np.nan])


@pytest.mark.parametrize("n", [30, 400])
def test_the_interval_of_a_median_covers_it_as_often_as_promised(n: int) -> None:
    draw, hits = np.random.default_rng(5), 0
    for _ in range(400):
        low, high = median_interval(draw.exponential(1.0, n))
        hits += low <= np.log(2.0) <= high
    assert hits / 400 >= 0.92
