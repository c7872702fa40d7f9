"""Several models, services and fleets in one window: what is slow is compared with its own kind, whatever the others do beside it."""

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import calls_of, requests
from tests.analysis.diagnosis.rules import engine_world
from tests.analysis.diagnosis.rules.cases import causes, run, the
from tests.analysis.diagnosis.rules.fleet import LATE, N, fleet
from tests.analysis.diagnosis.rules.hosted import hosted

REPLICA = np.arange(N) % 4
TIGHT = Slo(e2e_ms=2_500.0, percentile=99.0, goodput_target=0.99)


def beside(n: int = 3 * N, **columns: object) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Short calls of another service to another model, on two engines of its own that are idle, in the same ten minutes and three times as many."""
    frame = requests(
        n,
        start_s=np.arange(n) * 600.0 / n,
        queue_ms=1.0,
        prefill_ms=20.0,
        decode_ms=200.0,
        output_tokens=50,
        input_tokens=300,
        model="small",
        service="search",
        **columns,
    )
    return frame, calls_of(frame, engine_instance=[f"side-{k % 2}" for k in range(n)])


def test_a_straggler_is_found_among_the_engines_of_a_model_that_is_seldom_asked() -> None:
    frame, calls = fleet(REPLICA, token_ms=np.where(LATE & (REPLICA == 2), 40.0, 10.0))
    other, others = beside()
    found = run(frame, other, calls=[calls, others], slo=TIGHT)
    assert causes(found) == ["straggler_replica"]
    assert the(found, "straggler_replica").evidence["instance"] == "gpu-2"


def test_engines_whose_calls_name_no_model_are_compared_with_each_other() -> None:
    frame, calls = fleet(REPLICA, token_ms=np.where(LATE & (REPLICA == 2), 40.0, 10.0))
    found = run(frame, calls=[calls.with_columns(model=pl.lit(None, pl.String))], slo=TIGHT)
    assert causes(found) == ["straggler_replica"]


def test_idle_engines_of_another_model_are_no_room_for_those_who_wait() -> None:
    start = np.r_[np.arange(200.0), 200.0 + np.arange(400) / 2.0]
    wait = np.maximum(np.arange(600) - start, 0.0) * 1000.0
    frame = requests(
        600, start_s=start, queue_ms=wait, prefill_ms=100.0, decode_ms=300.0, tpot_ms=3.0
    )
    other, others = beside()
    found = run(frame, other, calls=[calls_of(frame), others])
    assert found.verdict.cause == "under_capacity"


@pytest.mark.parametrize("own", [True, False])
def test_calls_whose_engine_spans_are_lost_are_no_providers_where_an_engine_tells_of_others_to_their_model(
    own: bool,
) -> None:
    """One in twelve first tokens takes 20 s, told by clients alone; of a third as many other calls an engine's spans are here, to this model or to another."""
    spikes = np.random.default_rng(2).random(N) < np.where(np.arange(N) >= N // 2, 0.08, 0.0)
    slow = hosted(np.where(spikes, 20_000.0, 400.0))
    told = requests(
        400,
        start_s=np.linspace(0.0, 600.0, 400),
        queue_ms=2.0,
        prefill_ms=50.0,
        decode_ms=300.0,
        ttft_ms=52.0,
        output_tokens=50,
        input_tokens=300,
        model=slow["model"][0] if own else "small",
    )
    found = run(slow, told, slo=Slo(ttft_ms=1_000.0, percentile=99.0, goodput_target=0.99))
    assert found.verdict.status == "over_budget"
    assert ("provider_spikes" in causes(found)) is not own


@pytest.mark.parametrize(
    ("indicator", "model", "own"),
    [("kv_cache_usage", "m", 1.0), ("kv_cache_usage", "other", 0.0), ("running", "m", 0.0)],
)
def test_an_engine_that_only_sends_metrics_is_no_provider(
    indicator: str, model: str, own: float
) -> None:
    """A gateway's requests in flight carry a model as well, its cache does not."""
    calls = Calls(
        pl.DataFrame(
            {"model": ["m"], "queue_ms": [None], "prefill_ms": [None], "decode_ms": [None]},
            schema_overrides=dict.fromkeys(("queue_ms", "prefill_ms", "decode_ms"), pl.Float64),
        )
    )
    seen = SimpleNamespace(
        calls=calls,
        calls_before=None,
        slow_calls=calls,
        points=pl.DataFrame({"indicator": [indicator], "model": [model]}),
        _asks_engines=lambda: False,
    )
    assert vars(Observed)["own_engines"].func(seen) == own


@pytest.mark.parametrize(
    ("host", "model", "more", "own"),
    [
        ("gpu-0:8080", None, "running", True),
        ("gpu-0", None, "running", True),
        ("api.example.com", None, "running", False),
        ("gpu-0:8080", "m", "running", False),
        ("gpu-0:8080", None, "gateway_calls", False),
    ],
)
def test_a_page_at_the_called_address_is_an_engine_s_unless_it_is_a_gateway_s(
    host: str, model: str | None, more: str, own: bool
) -> None:
    spans = pl.DataFrame({"role": ["llm", "other"], "host": [host, "db-0"]})
    points = pl.DataFrame(
        {
            "indicator": ["queue_depth", more],
            "model": [model, model],
            "instance": ["gpu-0:8080", "gpu-0:8080"],
        },
        schema_overrides={"model": pl.String},
    )
    seen = SimpleNamespace(points=points, tree=SimpleNamespace(frame=spans))
    assert Observed._asks_engines(seen) is own  # type: ignore[arg-type]


def test_pods_that_wait_for_one_model_did_not_begin_again_because_those_of_another_keep_their_pace() -> (
    None
):
    """Since half time all answers of one service take eight times as long and come back within minutes; another service asks another model as ever."""
    slower = np.where(LATE, 1.0 + 7.0 * 2.0 ** (-np.maximum(np.arange(N) - 600, 0) / 150.0), 1.0)
    slow = hosted(
        400.0 * slower,
        token_ms=10.0 * slower,
        model="big",
        instance=[f"chat-{k % 2}" for k in range(N)],
    )
    other = hosted_beside(np.linspace(0.0, 600.0, N)).with_columns(
        instance=pl.Series([f"search-{k % 2}" for k in range(N)])
    )
    found = run(slow, other, slo=Slo(e2e_ms=2_500.0, percentile=90.0, goodput_target=0.9))
    assert found.verdict.status == "over_budget"
    assert "cold_start" not in causes(found)


def test_a_slower_machine_is_told_by_the_quickest_calls_to_its_own_model() -> None:
    late = engine_world.LATE
    frame = engine_world.engine(
        token_ms=np.where(late, 16.0, 10.0), read_ms=np.where(late, 0.085, 0.05)
    )
    n = 3 * frame.height
    length_s = float(frame["start_ns"].max() - frame["start_ns"].min()) / 1e9  # type: ignore[operator]
    other = requests(
        n,
        start_s=np.arange(n) * length_s / n,
        queue_ms=1.0,
        prefill_ms=4.0,
        decode_ms=200.0,
        tpot_ms=4.0,
        output_tokens=51,
        input_tokens=200,
        model="small",
        service="search",
    )
    others = calls_of(other, engine_instance=[f"side-{k % 2}" for k in range(n)])
    found = run(
        frame,
        other,
        calls=[calls_of(frame), others],
        slo=Slo(e2e_ms=1_500.0, percentile=90.0, goodput_target=0.9),
    )
    assert the(found, "gpu_throttled").evidence["quick_pace"] == pytest.approx(1.6)


def test_bursts_of_another_service_to_another_model_hold_nobody_up() -> None:
    """A provider writes three times as slowly since half time, while another application begins to ask another model forty at a time."""
    slow = hosted(token_ms=np.where(LATE, 30.0, 10.0), model="big")
    n = 1_600
    start = np.r_[np.linspace(0.0, 300.0, n // 2), 300.0 + np.repeat(np.arange(20) * 15.0, 40)]
    other = hosted_beside(start)
    found = run(slow, other, slo=Slo(e2e_ms=2_500.0, percentile=90.0, goodput_target=0.9))
    assert (found.verdict.cause, "burst_arrivals" in causes(found)) == ("token_rate_sag", False)


def hosted_beside(start_s: np.ndarray) -> pl.DataFrame:
    """Requests of another application to another provider's model, as quick as ever."""
    return requests(
        len(start_s),
        start_s=start_s,
        first_token_ms=200.0,
        ttft_first_token_ms=200.0,
        decode_ms=500.0,
        tpot_ms=10.0,
        output_tokens=51,
        input_tokens=300,
        provider="anthropic",
        model="other",
        service="search",
    )
