"""How far may another run lie? Coverage where the truth is known: independent requests, and requests whose fate comes in runs."""

import numpy as np
import pytest

from overrun.analysis.whatif.quantile_gain import another_run


def drawn(rng: np.random.Generator, run: int, n: int = 600) -> np.ndarray:
    """Lognormal latencies; `run` requests in a row share half of the variance of their logarithm."""
    shared = np.repeat(rng.normal(size=n // run), run)
    return np.exp(np.sqrt(0.5) * (shared + rng.normal(size=n)))


@pytest.mark.parametrize(("run", "least"), [(1, 0.85), (30, 0.75)])
def test_nine_of_ten_other_runs_lie_inside(run: int, least: float) -> None:
    """Of twenty long runs the design effect is an estimate of twenty numbers: eight of ten are inside there. Taken for independent, fewer than half would be."""
    rng = np.random.default_rng(3)
    inside = []
    for _ in range(300):
        one, other = (float(np.quantile(values := drawn(rng, run), 0.95)) for _ in range(2))
        below, above = another_run(values, 0.95)
        inside.append(-below <= np.log(one / other) <= above)
    assert least <= np.mean(inside) <= 0.97


def test_times_that_are_all_alike_are_the_same_in_another_run() -> None:
    assert another_run(np.full(200, 40.0), 0.95) == (0.0, 0.0)
    assert another_run(np.array([np.nan, 5.0]), 0.5) == (0.0, 0.0)
