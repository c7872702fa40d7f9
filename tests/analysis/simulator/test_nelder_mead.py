"""The simplex finds the bottom of a bent valley, and stops when told."""

import numpy as np
import pytest

from overrun.analysis.simulator.nelder_mead import minimise


def test_it_finds_the_bottom_of_rosenbrocks_valley() -> None:
    point, worth = minimise(
        lambda p: float((1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2 + 1.0),
        np.array([-1.2, 1.0]),
        np.array([0.5, 0.5]),
        400,
    )
    assert worth == pytest.approx(1.0, abs=1e-3)
    assert point == pytest.approx([1.0, 1.0], abs=0.05)


def test_it_keeps_to_its_evaluations() -> None:
    seen: list[int] = []
    minimise(lambda p: seen.append(1) or float((p**2).sum()), np.ones(3), np.ones(3), 50)
    assert 45 <= len(seen) <= 54
