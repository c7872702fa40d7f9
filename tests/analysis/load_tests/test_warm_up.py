"""Which first requests of a run are its warm-up? Those that are late while no later one is, unless chance may put them there."""

import numpy as np
import pytest

from overrun.analysis.numbers.load_tests.warm_up import warm_up


@pytest.mark.parametrize(
    ("late", "n", "in_flight", "expected"),
    [
        ([0], 200, 1, 1),
        (range(8), 200, 8, 8),
        ([0, 1, 2, 4], 200, None, 5),
        (range(10), 100, 8, 10),
        ([], 200, 1, 0),
        ([0], 50, 1, 0),
        ([199], 200, 1, 0),
        ([0, 1, 150], 200, 4, 0),
        (range(0, 200, 20), 200, 4, 0),
        (range(60), 200, 4, 0),
        (range(200), 200, 4, 0),
    ],
)
def test_first_requests_that_alone_are_late_are_the_warm_up(
    late: object, n: int, in_flight: int | None, expected: int
) -> None:
    misses = np.zeros(n, dtype=bool)
    misses[list(late)] = True  # type: ignore[call-overload]
    order = np.random.default_rng(1).permutation(n)
    start = np.arange(n, dtype=float)
    assert warm_up(start[order], misses[order], in_flight) == expected
