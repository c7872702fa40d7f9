"""Engines guessed from what their clients saw: near the truth where the times follow the clients' own load, and none where they do not."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from overrun.analysis.front.text_layout import render
from overrun.analysis.front.whatif_text import document
from overrun.analysis.simulator.batching import LEAST_LOAD
from overrun.analysis.simulator.engine import Calls, Setup, simulate
from overrun.analysis.simulator.guessed_engine import _beside, guess, pools
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.fixes import cap, eject, max_sequences, replicas, routing, speculation
from tests.analysis.whatif.builders import calls, facts_of
from tests.analysis.whatif.recording import COSTS, arrivals, hosted, recorded

CAME = arrivals(600, rate=14.0, seed=5)
TRUE = Setup(replicas=2, router=LEAST_LOAD)


def seen_by_clients(came: Calls, setup: Setup) -> Facts:
    return recorded(
        came,
        setup,
        **dict.fromkeys(
            ("engine_e2e_ms", "ttft_engine_ms", "prefill_ms", "queue_ms", "decode_ms", "instance")
        ),
    )


@pytest.fixture(scope="module")
def facts() -> Facts:
    """One recording, calibrated once."""
    return seen_by_clients(CAME, TRUE)


def test_replicas_are_those_that_replay_what_the_clients_saw(facts: Facts) -> None:
    engines, why = facts.engines
    assert why is None
    assert [(engine.unseen, engine.setup.replicas) for engine in engines] == [(True, 2)]


@pytest.mark.parametrize(
    ("fix", "parameters", "came", "setup"),
    [
        (
            cap,
            {"max_tokens": 100},
            replace(CAME, output_tokens=np.minimum(CAME.output_tokens, 100)),
            TRUE,
        ),
        (replicas, {"replicas": 4}, CAME, replace(TRUE, replicas=4)),
    ],
    ids=["cap", "replicas"],
)
def test_the_prediction_is_near_the_engine_with_the_fix(
    facts: Facts, fix: ModuleType, parameters: dict[str, Any], came: Calls, setup: Setup
) -> None:
    answer = fix.predict(facts, **parameters)
    after = float(np.quantile(simulate(came, setup, COSTS).e2e_s, 0.95) * 1000.0)
    assert answer.method == "estimate"
    assert "exact, resampled or estimated" in answer.reasons["client_only"]
    assert [one.guessed for one in answer.engine] == [True]
    said = render(document(answer))
    assert "an estimate by replaying the arrivals through engines that were guessed" in said
    assert ", guessed, not measured: 2 x" in said
    assert answer.predicted is not None
    assert answer.predicted.after == pytest.approx(after, rel=0.1)
    assert answer.predicted.interval[0] < after < answer.predicted.interval[1]
    assert "served by 2 replicas without other clients" in answer.assumption


def test_settings_that_nobody_saw_are_not_changed(facts: Facts) -> None:
    for fix, parameters in (
        (max_sequences, {"sequences": 4}),
        (routing, {"policy": "least_load"}),
        (eject, {}),
    ):
        answer = fix.predict(facts, **parameters)
        assert answer.predicted is None
        assert "no engine reports" in answer.reasons["predicted"]


def test_nothing_is_guessed_where_times_follow_no_load_of_the_clients_or_tell_no_first_token() -> (
    None
):
    (pool,) = pools(hosted(CAME))
    assert guess(pool, np.arange(len(pool))) is None
    assert pools(recorded(CAME, TRUE, ttft_ms=None, ttft_engine_ms=None)) == []


def test_seats_between_those_of_the_grid_are_found() -> None:
    facts = seen_by_clients(arrivals(600, rate=9.0, seed=5), Setup(max_sequences=23))
    (pool,) = pools(facts)
    told: list[float] = []
    found = guess(pool, np.arange(len(pool)), progress=told.append)
    assert found is not None
    assert told == sorted(told)
    assert len(told) > 4
    assert 0.0 < told[0] < 0.5 < told[-1] <= 1.0
    assert found.replicas * found.max_sequences == pytest.approx(23, rel=0.1)


def test_settings_beside_the_best_differ_in_one_thing() -> None:
    now = Setup(replicas=2, max_sequences=16, kv_tokens=1 << 40)
    beside = _beside(now, held=40_000.0)
    assert {one.max_sequences for one in beside} >= {11, 14, 19, 22}
    assert {one.token_budget for one in beside} == {1024, 2048, 4096}
    assert {one.kv_tokens for one in beside if one.kv_tokens < 1 << 40} == {9_000, 13_000, 17_000}
    assert all(one.replicas == 2 for one in beside)


def test_drafts_are_simulated_behind_clients_too(facts: Facts) -> None:
    answer = speculation.predict(facts, accepted_length=2.0, draft_cost_ratio=0.1)
    drafting = replace(
        COSTS,
        step=1.1 * COSTS.step,
        kv_token=1.1 * COSTS.kv_token,
        prefill_token=COSTS.prefill_token * (1.0 + 0.1 / 3.0),
    )
    run = simulate(CAME, replace(TRUE, tokens_per_step=2.0, draft_share=1.0 / 11.0), drafting)
    after = float(np.quantile(run.e2e_s, 0.95) * 1000.0)
    assert not answer.bound
    assert answer.predicted is not None
    assert answer.predicted.after == pytest.approx(after, rel=0.1)


def test_a_bound_reaches_down_to_an_engine_that_nobody_waits_for() -> None:
    """A tenth of the calls met nobody; the others waited two seconds, which a cap may take away as well."""
    n = 400
    ttft = np.where(np.arange(n) % 8 == 0, 200.0, 2200.0)
    answer = cap.predict(
        facts_of(calls(n, ttft_ms=ttft, e2e_ms=ttft + 1000.0, output_tokens=101), percentile=50.0),
        max_tokens=51,
    )
    assert answer.bound
    assert answer.predicted is not None
    assert answer.predicted.after == 2700.0
    assert answer.predicted.interval[0] < 1000.0  # type: ignore[index]
    assert answer.predicted.interval[1] == pytest.approx(2700.0, rel=0.02)  # type: ignore[index]


def test_how_many_replicas_there_are_is_guessed_to_one_more_or_less(facts: Facts) -> None:
    """Two were guessed: were there one, two for it would be as many more as four for two."""
    two, four = (replicas.predict(facts, replicas=many).predicted for many in (2, 4))
    assert two is not None
    assert four is not None
    assert two.interval[0] < four.after < 0.95 * two.after  # type: ignore[index]
