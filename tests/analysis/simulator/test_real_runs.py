"""On real GPUs: calibrated on what had ended in the first half of a run, the simulator predicts the second half."""

import pytest

from overrun.analysis.simulator.calibrate import errors, fit
from overrun.analysis.simulator.pool import pools
from tests.analysis.simulator.real_runs import SETTINGS, real


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_the_second_half_of_a_real_run_is_predicted_from_the_first(name: str) -> None:
    facts, first, second = real(name)
    [pool], _ = pools(facts)
    engine = fit(pool, rows=first, setup=SETTINGS[name], refits=0)
    error = errors(pool, engine.identity, second)
    assert error["e2e_p99"] < 0.05
    assert error["ttft_p99"] < 0.05
