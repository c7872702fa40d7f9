"""What do gauges and rates of an engine show beside a slow stage? Slower tokens at the same number of running requests, and what happened as they began."""

import polars as pl
import pytest

from overrun.analysis.diagnosis.engine_causes import Samples, cause_of

ONSET_S = 900
STEP_S = 15


def samples(
    running: tuple[float, float],
    tokens: tuple[float, float],
    thrown: tuple[int, ...] = (),
    clock: tuple[float, float] = (1.9e9, 1.9e9),
) -> Samples:
    """Half an hour of samples: `running` and `tokens` (a second) before the onset and since it, requests thrown out at the seconds `thrown`."""
    rows = []
    for second in range(0, 1_800, STEP_S):
        later = second >= ONSET_S
        values = {
            "running": running[later],
            "output_tokens": tokens[later],
            "kv_cache_usage": 1.0 if any(abs(second - at) < STEP_S for at in thrown) else 0.6,
            "preemptions": float(second in thrown),
            "gpu_clock": clock[later] + 1e6 * (second % 4),
        }
        rows += [(second * 1_000_000, "gpu-0", name, value) for name, value in values.items()]
    points = pl.DataFrame(rows, schema=["time_us", "instance", "indicator", "value"], orient="row")
    return Samples(points, ONSET_S * 1_000_000)


@pytest.mark.parametrize(
    ("running", "tokens", "fires"),
    [
        ((4.0, 4.0), (430.0, 31.0), True),
        ((16.0, 17.0), (900.0, 310.0), True),
        ((4.0, 4.0), (430.0, 400.0), False),
        ((4.0, 24.0), (430.0, 900.0), False),  # larger batches
        ((16.0, 2.0), (900.0, 110.0), False),  # fewer run, each as fast
    ],
)
def test_the_same_number_of_requests_with_far_fewer_tokens_is_a_slower_engine(
    running: tuple[float, float], tokens: tuple[float, float], fires: bool
) -> None:
    found = cause_of("decode", samples(running, tokens))
    assert (found is not None and found.rule == "slower_engine") is fires


@pytest.mark.parametrize(
    ("thrown", "named"), [((885,), True), ((), False), ((300, 885), False), ((300,), False)]
)
def test_requests_thrown_out_are_named_where_it_began_with_them_alone(
    thrown: tuple[int, ...], named: bool
) -> None:
    found = cause_of("decode", samples((4.0, 4.0), (430.0, 31.0), thrown))
    assert found is not None
    assert ("thrown out" in found.because) is named


@pytest.mark.parametrize(("now", "cause"), [(1.38e9, "gpu_throttled"), (1.86e9, "slower_engine")])
def test_clocks_that_fell_come_before_an_engine_that_is_slower(now: float, cause: str) -> None:
    found = cause_of("decode", samples((8.0, 8.0), (800.0, 500.0), clock=(1.89e9, now)))
    assert found is not None
    assert found.rule == cause
