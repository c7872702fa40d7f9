"""Several models, services and fleets in one window: what is slow is compared with its own kind, whatever the others do beside it."""

import numpy as np
import polars as pl
import pytest

from analysis.slo import Slo
from tests.analysis.builders import calls_of, requests
from tests.analysis.rules.cases import E2E, causes, run, the
from tests.analysis.rules.fleet import LATE, N, fleet
from tests.analysis.rules.hosted import hosted

REPLICA = np.arange(N) % 4
TIGHT = Slo(e2e_ms=2_500.0, percentile=99.0, goodput_target=0.99)


def beside(n: int = 3 * N, **columns: object) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Short calls of another service to another model, on two engines of its own that are idle, in the same ten minutes and three times as many."""
    frame = requests(n, start_s=np.arange(n) * 600.0 / n, queue_ms=1.0, prefill_ms=20.0, decode_ms=200.0, output_tokens=50, input_tokens=300, model="small",
                     service="search", **columns)
    return frame, calls_of(frame, engine_instance=[f"side-{k % 2}" for k in range(n)])


def test_a_straggler_is_found_among_the_engines_of_a_model_that_is_seldom_asked() -> None:
    frame, calls = fleet(REPLICA, token_ms=np.where(LATE & (REPLICA == 2), 40.0, 10.0))
    other, others = beside()
    found = run(frame, other, calls=[calls, others], slo=TIGHT)
    assert causes(found) == ["straggler_replica"]
    assert the(found, "straggler_replica").evidence["instance"] == "gpu-2"


def test_idle_engines_of_another_model_are_no_room_for_those_who_wait() -> None:
    start = np.r_[np.arange(200.0), 200.0 + np.arange(400) / 2.0]
    wait = np.maximum(np.arange(600) - start, 0.0) * 1000.0
    frame = requests(600, start_s=start, queue_ms=wait, prefill_ms=100.0, decode_ms=300.0, tpot_ms=3.0)
    other, others = beside()
    found = run(frame, other, calls=[calls_of(frame), others])
    assert found.verdict.cause == "under_capacity"


@pytest.mark.parametrize("own", [True, False])
def test_calls_whose_engine_spans_are_lost_are_no_providers_where_an_engine_tells_of_others_to_their_model(own: bool) -> None:
    """One in twelve first tokens takes 20 s, told by clients alone; of a third as many other calls an engine's spans are here, to this model or to another."""
    spikes = np.random.default_rng(2).random(N) < np.where(np.arange(N) >= N // 2, 0.08, 0.0)
    slow = hosted(np.where(spikes, 20_000.0, 400.0))
    told = requests(400, start_s=np.linspace(0.0, 600.0, 400), queue_ms=2.0, prefill_ms=50.0, decode_ms=300.0, ttft_ms=52.0, output_tokens=50, input_tokens=300,
                    model=slow["model"][0] if own else "small")
    found = run(slow, told, slo=Slo(ttft_ms=1_000.0, percentile=99.0, goodput_target=0.99))
    assert found.verdict.status == "over_budget"
    assert ("provider_spikes" in causes(found)) is not own


def test_pods_that_wait_for_one_model_did_not_begin_again_because_those_of_another_keep_their_pace() -> None:
    """Since half time all answers of one service take eight times as long and come back within minutes; another service asks another model as ever."""
    slower = np.where(LATE, 1.0 + 7.0 * 2.0 ** (-np.maximum(np.arange(N) - 600, 0) / 200.0), 1.0)
    frame, _ = fleet(REPLICA, token_ms=10.0 * slower)
    frame = frame.with_columns(instance=pl.Series([f"chat-{k % 2}" for k in range(N)]))
    other, others = beside(instance=[f"search-{k % 2}" for k in range(3 * N)])
    client = calls_of(frame, engine_instance=[None] * N, queue_ns=[None] * N, prefill_ns=[None] * N, decode_ns=[None] * N)
    found = run(frame, other, calls=[client, others], slo=E2E)
    assert found.verdict.status == "over_budget"
    assert "cold_start" not in causes(found)
