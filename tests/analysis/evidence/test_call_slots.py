"""Do calls reach the engine only as others end? A limit is found with its size; a front end, the engine's own wait and chance are none."""

import heapq
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.call_slots import asked_directly, call_slots, held_ms
from overrun.analysis.evidence.calls import Calls
from tests.analysis.evidence.test_front_end import world


def limited(
    slots: int, *, rate: float = 2.5, late_ms: float = 0.0, queued: bool = False, owners: int = 1
) -> Calls:
    """600 calls of 1 s behind a limit per owner, which pass `late_ms` after a place is free; `queued`: the engine itself recorded the wait."""
    draw = np.random.default_rng(7)
    n = 600
    start = np.cumsum(draw.exponential(1.0 / rate, n))
    service = draw.lognormal(0.0, 0.5, n)
    ends: list[list[float]] = [[0.0] * slots for _ in range(owners)]
    wait = np.zeros(n)
    for i in range(n):
        places = ends[i % owners]
        free = heapq.heappop(places)
        begin = start[i] if free <= start[i] else free + late_ms / 1e3
        wait[i] = 1e3 * (begin - start[i])
        heapq.heappush(places, begin + service[i])
    gap = np.zeros(n) if queued else wait
    return Calls(
        pl.DataFrame(
            {
                "trace_key": np.arange(n, dtype=np.uint64),
                "start_s": start,
                "e2e_ms": wait + 1e3 * service + 5.0,
                "engine_e2e_ms": 1e3 * service + wait - gap,
                "queue_ms": wait - gap,
                "prefill_ms": np.full(n, 50.0),
                "decode_ms": 1e3 * service - 50.0,
                "output_tokens": np.full(n, 41),
                "tpot_ms": np.full(n, 20.0),
                "engine_alone": np.zeros(n, np.bool_),
                "engine_instance": ["vllm-0"] * n,
            }
        )
    )


@pytest.mark.parametrize("late_ms", [0.0, 20.0])
@pytest.mark.parametrize("slots", [1, 3, 4])
def test_a_limit_is_found_with_its_size(slots: int, late_ms: float) -> None:
    found = call_slots(limited(slots, rate=0.8 * slots, late_ms=late_ms))
    assert found is not None
    assert found.handed_ratio > 0.8
    assert found.at_once == slots


def test_two_processes_with_a_pool_each_are_a_limit_too() -> None:
    found = call_slots(limited(2, owners=2))
    assert found is not None
    assert found.handed_ratio > 0.8


def test_a_front_end_the_engine_and_an_empty_pool_are_no_limit() -> None:
    front_end = world(300.0, 0.0, 0.4)
    tokens = Calls(front_end.frame.with_columns(output_tokens=pl.lit(41), tpot_ms=20.0))
    assert call_slots(tokens) is None
    assert call_slots(limited(3, queued=True)) is None
    far = limited(50).frame.with_columns(start_s=pl.int_range(pl.len()).cast(pl.Float64))
    assert (
        call_slots(Calls(far.with_columns(e2e_ms=2_000.0, engine_e2e_ms=500.0, decode_ms=450.0)))
        is None
    )
    assert call_slots(limited(50)) is None


def test_the_wait_is_counted_per_request() -> None:
    calls = limited(3)
    waits = np.maximum(calls.of("e2e_ms") - calls.of("engine_e2e_ms"), 0.0)
    assert held_ms(calls, 600) == pytest.approx(waits.mean(), rel=0.01)
    assert held_ms(calls.where(np.zeros(600, np.bool_)), 0) == 0.0


@pytest.mark.parametrize(
    ("hosts", "direct"),
    [
        (["vllm-0"], True),
        (["vllm-0", ""], True),
        (["llm-gateway.internal"], False),
        (["vllm-0", "llm-gateway.internal"], False),
        ([""], False),
    ],
)
def test_a_proxy_stands_between_unless_the_engine_itself_is_addressed(
    hosts: list[str], direct: bool
) -> None:
    spans = pl.DataFrame({"role": ["llm"] * len(hosts) + ["tool"], "host": [*hosts, "crm"]})
    case: Any = SimpleNamespace(calls=limited(3), tree=SimpleNamespace(frame=spans))
    assert asked_directly(case) is direct
