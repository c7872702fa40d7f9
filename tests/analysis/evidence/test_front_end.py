"""Is a gap the queue of one process? Costs per call and token are found again, and waits parted from a call's own work."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.front_end import front_end, front_excess_ms, front_inside


def world(call_ms: float, token_ms: float, every_s: float, *, serial: bool = True) -> Calls:
    draw = np.random.default_rng(40)
    n, free = 600, 0.0
    start = np.cumsum(draw.exponential(every_s, n))
    tokens = draw.integers(200, 8_000, n)
    gap = np.zeros(n)
    for i in range(n):
        begin = max(free, start[i]) if serial else start[i]
        work = (call_ms + token_ms * tokens[i]) / 1e3 * (1.0 if serial else draw.uniform(0.2, 2.0))
        free = begin + work
        gap[i] = 1e3 * (free - start[i]) + draw.uniform(4.0, 6.0)
    return Calls(
        pl.DataFrame(
            {
                "trace_key": np.arange(n, dtype=np.uint64),
                "start_s": start,
                "e2e_ms": gap + 500.0,
                "engine_e2e_ms": np.full(n, 500.0),
                "queue_ms": np.zeros(n),
                "prefill_ms": np.full(n, 100.0),
                "decode_ms": np.full(n, 400.0),
                "input_tokens": tokens,
                "engine_alone": np.zeros(n, np.bool_),
                "engine_instance": ["vllm-0"] * n,
            }
        )
    )


def asked(calls: Calls, before: Calls | None = None) -> Any:
    slow = pl.DataFrame({"trace_key": calls.frame["trace_key"].tail(100)})
    return front_end(SimpleNamespace(calls=calls, calls_before=before, slow=slow, thinned=False))  # type: ignore[arg-type]


def test_the_cost_of_a_token_is_found_again() -> None:
    found = asked(world(0.0, 0.1, 0.7), world(0.0, 0.005, 0.7))
    assert found.token_ms == pytest.approx(0.1, rel=0.15)
    assert found.token_ms_before == pytest.approx(0.005, rel=0.3)
    assert found.correlation > 0.95
    assert found.busy_ratio == pytest.approx(0.1 * 4_100 / 700, abs=0.1)
    assert found.inside_ms == 0.0


def test_the_cost_of_a_call_is_found_again_and_waits_are_parted_from_it() -> None:
    found = asked(world(300.0, 0.0, 0.4))
    assert found.call_ms == pytest.approx(300.0, rel=0.25)
    assert found.waits
    assert not asked(world(0.0, 0.1, 20.0)).waits


def test_gaps_of_their_own_follow_no_queue() -> None:
    assert asked(world(300.0, 0.0, 0.4, serial=False)) is None


def _of_engine(inside_ms: float, n: int) -> Calls:
    """Calls whose engine takes `inside_ms` beside queue (1 ms), prefill (100 ms) and decode (400 ms)."""
    frame = pl.DataFrame(
        {
            "queue_ms": [1.0] * n,
            "prefill_ms": [100.0] * n,
            "decode_ms": [400.0] * n,
            "engine_e2e_ms": [501.0 + inside_ms] * n,
            "e2e_ms": [505.0 + inside_ms] * n,
            "engine_alone": [False] * n,
            "engine_instance": ["gpu-0"] * n,
        }
    )
    return Calls(frame)


@pytest.mark.parametrize(("inside_ms", "excess_ms"), [(1_030.0, 1_006.0), (30.0, 0.0)])
def test_time_inside_an_engine_is_no_applications_however_few_calls_are_slow(
    inside_ms: float, excess_ms: float
) -> None:
    case: Any = SimpleNamespace(
        slow_calls=_of_engine(inside_ms, 4),
        usual_calls=_of_engine(24.0, 30),
        slow=pl.DataFrame({"trace_key": range(4)}),
        tail=SimpleNamespace(excess_ms={"other": 2_000.0}),
        excess_ms=lambda _: 2_000.0,
    )
    assert front_excess_ms(case) == pytest.approx(excess_ms)
    assert front_inside(case) is None  # too few to name a cause
