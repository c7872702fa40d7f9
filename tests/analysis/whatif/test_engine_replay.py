"""Simulated fixes against the same engine with the fix in place; bounds and refusals where it cannot be simulated."""

from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from overrun.analysis.simulator.batching import LEAST_LOAD, RECORDED
from overrun.analysis.simulator.engine import Calls, Costs, Setup, simulate
from overrun.analysis.whatif import engine_replay as simulated
from overrun.analysis.whatif.engine_replay import _moved
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.fixes import (
    cap,
    context_limit,
    hardware,
    kv_size,
    load,
    max_sequences,
    prefix_cache,
    prompt_trim,
    replicas,
)
from overrun.analysis.whatif.prediction import Times
from tests.analysis.whatif.recording import COSTS, arrivals, hosted, recorded

CAME = arrivals(400, rate=8.0)


@pytest.fixture(scope="module")
def facts() -> Facts:
    """One recording, calibrated once."""
    return recorded(CAME)


def truth(came: Calls, setup: Setup | None = None, costs: Costs = COSTS) -> float:
    return float(np.quantile(simulate(came, setup or Setup(), costs).e2e_s, 0.95) * 1000.0)


@pytest.mark.parametrize(
    ("fix", "parameters", "after"),
    [
        (
            cap,
            {"max_tokens": 100},
            truth(replace(CAME, output_tokens=np.minimum(CAME.output_tokens, 100))),
        ),
        (
            context_limit,
            {"max_input_tokens": 500},
            truth(replace(CAME, prompt_tokens=np.minimum(CAME.prompt_tokens, 500))),
        ),
        (
            prompt_trim,
            {"ratio": 0.5},
            truth(replace(CAME, prompt_tokens=np.maximum(1, CAME.prompt_tokens // 2))),
        ),
        (
            prefix_cache,
            {"hit_ratio": 0.5},
            truth(replace(CAME, cached_tokens=CAME.prompt_tokens // 2)),
        ),
        (max_sequences, {"sequences": 16}, truth(CAME, Setup(max_sequences=16))),
        (replicas, {"replicas": 2}, truth(CAME, Setup(replicas=2, router=LEAST_LOAD))),
        (load, {"factor": 0.5}, truth(replace(CAME, arrival_s=CAME.arrival_s * 2.0))),
        (hardware, {"time_factor": 0.5}, truth(CAME, costs=COSTS.scaled(0.5))),
    ],
    ids=lambda value: value.__name__.rpartition(".")[2] if isinstance(value, ModuleType) else "",
)
def test_the_prediction_is_near_the_engine_with_the_fix(
    facts: Facts, fix: ModuleType, parameters: dict[str, Any], after: float
) -> None:
    answer = fix.predict(facts, **parameters)
    assert answer.predicted is not None
    assert answer.predicted.after == pytest.approx(after, rel=0.08)
    low, high = answer.predicted.interval
    assert low < answer.predicted.after < high
    assert answer.method == ("estimate" if fix is hardware else "simulated")
    assert answer.predicted.backtest_error_ratio is not None
    assert answer.engine[0].calls == 400


def test_curves_are_bounded_and_fall_with_the_fix(facts: Facts) -> None:
    answer = cap.predict(facts, max_tokens=50)
    curves = {curve.metric: curve for curve in answer.curves}
    assert set(curves) == {"ttft", "e2e", "tpot"}
    for curve in curves.values():
        assert len(curve.exceeded) == len(curve.before_ms) == len(curve.after_ms) <= 80
        assert curve.exceeded == sorted(curve.exceeded, reverse=True)
        assert curve.before_ms == sorted(curve.before_ms)
    assert all(
        after <= before + 1e-6
        for before, after in zip(curves["e2e"].before_ms, curves["e2e"].after_ms, strict=True)
    )


def test_the_cost_of_a_cap_is_what_it_cuts(facts: Facts) -> None:
    assert cap.predict(facts, max_tokens=100).cost["truncated_ratio"] == float(
        (CAME.output_tokens > 100).mean()
    )


def test_a_request_of_two_calls_is_cut_where_one_of_them_is() -> None:
    client = recorded(CAME, engine_e2e_ms=None, ttft_engine_ms=None, prefill_ms=None)
    pairs = replace(
        client, calls=client.calls.with_columns(request=pl.col("request") // 2), effort=0.3
    )  # what is cut hangs on no engine
    longest = client.calls["output_tokens"].to_numpy().reshape(-1, 2).max(axis=1)
    assert cap.predict(pairs, max_tokens=100).cost["truncated_ratio"] == pytest.approx(
        float((longest > 100).mean())
    )


def test_at_a_provider_the_cap_is_a_bound_and_says_so() -> None:
    answer = cap.predict(hosted(CAME), max_tokens=100)
    assert answer.bound
    assert answer.method == "exact"
    assert answer.predicted is not None
    assert answer.predicted.after < answer.predicted.before
    assert "not simulated" in answer.reasons["simulated"]


def test_at_a_provider_replicas_are_refused() -> None:
    answer = replicas.predict(hosted(CAME), replicas=2)
    assert answer.predicted is None
    assert "what-if not available" in answer.reasons["predicted"]


def test_requests_whose_engine_span_was_lost_are_left_out_of_the_figures_after() -> None:
    # One replica past its capacity for all, one call in twenty without a span of the engine: what those waited must not stay as the tail after the fix.
    came = arrivals(400, rate=11.0, seed=3)
    lost = np.arange(400) % 20 == 7
    facts = recorded(came)
    engines = ("engine_e2e_ms", "ttft_engine_ms", "prefill_ms", "queue_ms")
    facts.calls = facts.calls.with_columns(
        pl.when(pl.Series(lost)).then(None).otherwise(pl.col(name)).alias(name) for name in engines
    )
    answer = replicas.predict(facts, replicas=3)
    assert answer.predicted is not None
    assert answer.predicted.before == pytest.approx(truth(came), rel=1e-9)
    assert answer.predicted.after == pytest.approx(
        truth(came, Setup(replicas=3, router=LEAST_LOAD)), rel=0.08
    )
    assert answer.requests == 400
    assert answer.reasons["unseen"].startswith("20 of 400 requests")
    assert "rejected_ratio" not in answer.cost


def test_kv_that_never_filled_is_no_fix(facts: Facts) -> None:
    assert "KV cache size is not known" in kv_size.predict(facts, factor=2.0).reasons["predicted"]


def test_a_kv_capacity_that_only_waits_suggest_makes_the_answer_less_sure() -> None:
    facts = recorded(arrivals(300, rate=8.0, seed=6), Setup(kv_tokens=12_000))
    [engine], _ = facts.engines
    engine = replace(engine, setup=replace(engine.setup, kv_tokens=12_000), gate=None, withheld={})
    widths = []
    for told in (None, 12_000):
        facts.__dict__["engines"] = (
            [replace(engine, pool=replace(engine.pool, kv_tokens=told))],
            None,
        )
        predicted = kv_size.predict(facts, factor=1.5).predicted
        assert predicted is not None
        assert predicted.interval is not None
        widths.append(np.log(predicted.interval[1] / predicted.interval[0]))
    assert widths[0] > widths[1]


def test_the_engine_is_calibrated_once_for_all_questions(facts: Facts) -> None:
    engines, _ = facts.engines
    cap.predict(facts, max_tokens=100)
    assert facts.engines[0] is engines


def test_a_lost_head_comes_back_as_long_as_it_is_in_the_prompts_that_find_it() -> None:
    # A head of 600 tokens stands before each prompt; a fifth of the calls miss it. As a share of each prompt (55 %) long ones would have less left to read.
    lost = np.random.default_rng(3).random(400) < 0.2
    prompt = CAME.prompt_tokens + 600
    came = replace(CAME, prompt_tokens=prompt, cached_tokens=np.where(lost, 0, 600))
    assert (
        prefix_cache.restored(prompt, came.cached_tokens, 400 * 600 / prompt.sum()).tolist()
        == [600] * 400
    )
    answer = prefix_cache.predict(recorded(came), hit_ratio=400 * 600 / prompt.sum())
    fixed = simulate(replace(came, cached_tokens=np.full(400, 600)), Setup(), COSTS)
    [ttft] = [
        effect for effect in answer.effects if effect.metric == "ttft" and effect.quantile == 0.95
    ]
    assert ttft.after == pytest.approx(1000.0 * float(np.quantile(fixed.ttft_s, 0.95)), rel=0.05)


def test_hits_are_raised_for_all_beyond_what_those_that_hit_find() -> None:
    prompt, cached = np.full(100, 1000), np.where(np.arange(100) < 50, 0, 400)
    assert prefix_cache.restored(prompt, cached, 0.3).tolist() == [200] * 50 + [400] * 50
    assert prefix_cache.restored(prompt, cached, 0.7).tolist() == [700] * 100
    assert prefix_cache.restored(prompt, 0 * cached, 0.7).tolist() == [700] * 100


def test_draws_that_do_not_come_to_the_recorded_state_tell_what_it_is_with_the_fix() -> None:
    # The fitted engine is in its slow state (16 s); most draws are not, and all of them say 9 s with the fix.
    slow = np.array([[9.5, 9.0], [9.4, 9.1], [15.8, 9.0]])
    assert np.exp(_moved(16.0, slow, 0.1)).tolist() == pytest.approx(
        [9.0 / 16.0, 9.1 / 16.0, 9.0 / 15.8]
    )
    # One that is a little off may as well be: what the fix does is told within each draw. One that is far off is of another state by itself.
    usual = np.array([[13.0, 9.0], [15.9, 9.1], [15.8, 9.0]])
    assert np.exp(_moved(16.0, usual, 0.1)).tolist() == pytest.approx(
        [9.0 / 13.0, 9.1 / 15.9, 9.0 / 15.8]
    )
    far = np.array([[9.5, 9.0], [15.9, 9.1], [15.8, 9.0]])
    assert np.exp(_moved(16.0, far, 0.1)).tolist() == pytest.approx(
        [9.0 / 16.0, 9.1 / 15.9, 9.0 / 15.8]
    )
    assert len(_moved(16.0, np.empty((0, 2)), 0.1)) == 0


@pytest.mark.parametrize(
    ("as_routed_s", "as_sent_s", "same_s"),
    [(10.0, 20.0, 20.0), (19.5, 20.0, 19.5), (10.0, 5.0, 10.0)],
)
def test_what_stands_for_no_change_is_sent_where_it_went_if_only_that_gives_the_recorded_times(
    monkeypatch: pytest.MonkeyPatch, as_routed_s: float, as_sent_s: float, same_s: float
) -> None:
    def times(seconds: float) -> Times:
        return Times(*(np.full(20, 1000.0 * seconds) for _ in range(3)))

    def replayed(*_: object, as_sent: bool = False) -> Times:
        return times(as_sent_s if as_sent else as_routed_s)

    monkeypatch.setattr(simulated, "_replayed", replayed)
    engine: Any = SimpleNamespace(
        setup=Setup(replicas=2, router=RECORDED), pool=SimpleNamespace(router=LEAST_LOAD)
    )
    found = simulated._identity(recorded(CAME), [engine], times(20.5))
    assert found.e2e[0] == 1000.0 * same_s
