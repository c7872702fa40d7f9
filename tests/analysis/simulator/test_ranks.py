"""Data-parallel ranks behind one server: its calls share the KV caches of all of them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from overrun.analysis.simulator.ranks import ranks_of
from tests.analysis.whatif.builders import START_US
from tests.analysis.whatif.recording import arrivals, recorded


def gauges(
    *instances: str, indicator: str = "kv_capacity", value: float = 50_000.0
) -> pl.DataFrame:
    """One gauge of these instances, every 5 s."""
    rows = [
        (START_US + 5_000_000 * i, name, "m", indicator, value)
        for i in range(20)
        for name in instances
    ]
    schema = {
        "time_us": pl.Int64,
        "instance": pl.String,
        "model": pl.String,
        "indicator": pl.String,
        "value": pl.Float64,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def test_ranks_are_known_by_the_names_of_their_metrics() -> None:
    assert ranks_of(gauges("gpu-0/engine 0", "gpu-0/engine 1", "gpu-1", "gpu-2/engine 1")) == {
        "gpu-0": ["gpu-0/engine 0", "gpu-0/engine 1"]
    }
    assert ranks_of(gauges("engine 0", "engine 1")) == {"": ["engine 0", "engine 1"]}
    assert ranks_of(gauges("a", "b")) == {}


@pytest.mark.parametrize(
    ("instances", "tokens"),
    [
        (["gpu-0"], 50_000),
        (["gpu-0/engine 0", "gpu-0/engine 1"], 100_000),
        (["gpu-0", "gpu-1"], 50_000),
    ],
)
def test_a_server_has_the_cache_of_all_its_ranks(instances: list[str], tokens: int) -> None:
    [engine], why = recorded(arrivals(400), instance="gpu-0", points=gauges(*instances)).engines
    assert why is None
    assert engine.pool.kv_tokens == tokens


def test_a_server_that_no_single_engine_replays_names_its_ranks() -> None:
    noise = np.random.default_rng(1).lognormal(7.0, 2.0, 200)
    facts = recorded(
        arrivals(200),
        e2e_ms=noise + 10.0,
        engine_e2e_ms=noise + 10.0,
        ttft_ms=noise / 2.0,
        ttft_engine_ms=noise / 2.0,
        instance="gpu-0",
        points=gauges("gpu-0/engine 0", "gpu-0/engine 1"),
    )
    facts.effort = 0.1
    _, why = facts.engines
    assert why is not None
    assert "2 data-parallel ranks" in why
