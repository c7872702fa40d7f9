"""How closely does one series follow another?"""

import numpy as np
import pytest

from overrun.analysis.numbers.statistics.effect_size import rank_correlation


def test_rank_correlation_is_spearmans() -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0])
    assert rank_correlation(x, x**3) == pytest.approx(1.0)
    assert rank_correlation(x, -x) == pytest.approx(-1.0)
    assert rank_correlation(x, np.ones(4)) == 0.0
