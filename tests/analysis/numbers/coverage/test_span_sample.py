"""Of how many requests are spans read, and how wrong may a share of them be?"""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.numbers.coverage.span_sample import error, one_in


@pytest.mark.parametrize(
    ("requests", "each", "expected"),
    [(3_000, 10, 1), (4_000, 10, 1), (4_001, 10, 2), (20_000, 10, 5), (1_500, 1_000, 1), (5_000, 1_000, 5)],
)  # fmt: skip
def test_spans_are_read_of_a_part_where_there_are_many_but_of_a_thousand_at_least(
    requests: int, each: int, expected: int
) -> None:
    assert one_in(pl.DataFrame({"spans": [each] * requests}), 40_000) == expected


def test_the_stated_error_of_a_share_holds_in_95_of_100_samples() -> None:
    rng = np.random.default_rng(7)
    shares = (rng.random((2_000, 1_000)) < 0.5).mean(axis=1)
    assert float((np.abs(shares - 0.5) <= error(1_000)).mean()) == pytest.approx(0.95, abs=0.015)
