"""Where between its client's send and its answer did a call arrive at the engine? Two clocks that differ, and ways that are longer on one side."""

import numpy as np
import pytest

from overrun.analysis.simulator.call_path import way_there_ms
from overrun.analysis.simulator.pool import pools
from tests.analysis.whatif.builders import START_US, calls, facts_of
from tests.analysis.whatif.recording import arrivals, recorded

N = 200
# A twentieth of the calls finds an open connection; the others look up, connect and shake hands for up to two seconds first.
SHAKES_MS = np.where(
    np.arange(N) % 20 == 0, 0.0, np.random.default_rng(7).uniform(100.0, 2_000.0, N)
)
RTT_MS = 4.0


@pytest.mark.parametrize("late_ms", [-400.0, 0.0, 3_000.0])
@pytest.mark.parametrize("there", [True, False])
def test_a_call_arrives_behind_its_handshake_and_before_a_proxy_holds_its_answer(
    late_ms: float, there: bool
) -> None:
    arrives_ms = 0.5 * RTT_MS + SHAKES_MS * there
    start = START_US + np.arange(N) * 1_000_000
    made = calls(
        N,
        e2e_ms=500.0 + RTT_MS + SHAKES_MS,
        engine_e2e_ms=500.0,
        engine_instance="gpu-0",
        engine_start_us=start + ((arrives_ms + late_ms) * 1000.0).astype(np.int64),
    )
    assert way_there_ms(made) == pytest.approx(np.broadcast_to(arrives_ms, N), abs=0.01)


def test_earlier_calls_tell_what_the_clocks_differ_by() -> None:
    shook = SHAKES_MS > 0.0
    made = calls(
        N,
        e2e_ms=500.0 + RTT_MS + SHAKES_MS,
        engine_e2e_ms=500.0,
        engine_instance="gpu-0",
        engine_start_us=START_US
        + np.arange(N) * 1_000_000
        + ((0.5 * RTT_MS + SHAKES_MS + 250.0) * 1000.0).astype(np.int64),
    )
    now, before = made.filter(shook), made.filter(~shook)
    alone, told = way_there_ms(now), way_there_ms(now, earlier=before)
    assert told == pytest.approx(0.5 * RTT_MS + SHAKES_MS[shook], abs=0.01)
    assert np.abs(alone - told).mean() < np.abs(0.5 * SHAKES_MS[shook]).mean()


def test_each_pair_of_client_and_engine_has_its_own_clocks_and_what_is_not_told_is_half_of_the_way() -> (
    None
):
    own = {
        "e2e_ms": 110.0,
        "engine_e2e_ms": 100.0,
        "instance": ["a", "b"] * (N // 2),
        "engine_instance": "gpu-0",
    }
    start = START_US + np.arange(N) * 1_000_000
    ahead = start + np.tile([5_000, 805_000], N // 2)
    assert way_there_ms(calls(N, **own, engine_start_us=ahead)) == pytest.approx(5.0)
    assert way_there_ms(calls(N, **own)) == pytest.approx(5.0)
    assert np.isnan(way_there_ms(calls(3, e2e_ms=110.0))).all()


def test_the_engines_half_of_a_call_by_itself_came_by_its_clients_clock() -> None:
    start, lost = START_US + np.arange(N) * 1_000_000, np.arange(N) == 50
    made = calls(
        N,
        e2e_ms=np.where(lost, 100.0, 110.0),
        engine_e2e_ms=100.0,
        engine_alone=lost,
        instance=np.where(lost, "gpu-0", "a").tolist(),
        engine_instance=[None if gone else "gpu-0" for gone in lost],
        engine_start_us=start + np.where(lost, 0, 5_000 + 700_000),
    )
    assert way_there_ms(made)[50] == pytest.approx(-700.0)


def test_the_pool_takes_calls_when_their_engine_had_them() -> None:
    came = arrivals(N)
    shakes = np.where(
        np.arange(N) % 10 == 0, 0.0, np.random.default_rng(1).uniform(0.0, 3_000.0, N)
    )
    seen = recorded(came).calls
    sent = seen["start_us"].to_numpy() - (shakes * 1000.0).astype(np.int64)
    held = seen.with_columns(
        engine_start_us=seen["start_us"] + 200_000,
        start_us=sent,
        e2e_ms=seen["e2e_ms"].to_numpy() + shakes,
    )
    held = held.with_columns(engine_instance=held["instance"], instance=np.full(N, "a"))
    found, why = pools(facts_of(held.sort("start_us")))
    assert why is None
    assert np.diff(np.sort(found[0].calls.arrival_s)) == pytest.approx(
        np.diff(np.sort(seen["start_us"].to_numpy())) / 1e6, abs=1e-5
    )
