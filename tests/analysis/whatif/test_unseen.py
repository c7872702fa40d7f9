"""Engines guessed from what their clients saw: near the truth where the times follow the clients' own load, and none where they do not."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from analysis.whatif import cap, max_sequences, replicas, routing
from analysis.whatif.batching import LEAST_LOAD
from analysis.whatif.engine import Calls, Setup, simulate
from analysis.whatif.facts import Facts
from analysis.whatif.unseen import guess, pools
from tests.analysis.whatif.recording import COSTS, arrivals, hosted, recorded

CAME = arrivals(600, rate=14.0, seed=5)
TRUE = Setup(replicas=2, router=LEAST_LOAD)


def seen_by_clients(came: Calls, setup: Setup) -> Facts:
    return recorded(came, setup, **dict.fromkeys(("engine_e2e_ms", "ttft_engine_ms", "prefill_ms", "queue_ms", "decode_ms", "instance")))


@pytest.fixture(scope="module")
def facts() -> Facts:
    """One recording, calibrated once."""
    return seen_by_clients(CAME, TRUE)


def test_replicas_are_those_that_replay_what_the_clients_saw(facts: Facts) -> None:
    engines, why = facts.engines
    assert why is None
    assert [(engine.unseen, engine.setup.replicas) for engine in engines] == [(True, 2)]


@pytest.mark.parametrize(("fix", "parameters", "came", "setup"), [
    (cap, {"max_tokens": 100}, replace(CAME, output_tokens=np.minimum(CAME.output_tokens, 100)), TRUE),
    (replicas, {"replicas": 4}, CAME, replace(TRUE, replicas=4)),
], ids=["cap", "replicas"])
def test_the_prediction_is_near_the_engine_with_the_fix(facts: Facts, fix: ModuleType, parameters: dict[str, Any], came: Calls, setup: Setup) -> None:
    answer = fix.predict(facts, **parameters)
    after = float(np.quantile(simulate(came, setup, COSTS).e2e_s, 0.95) * 1000.0)
    assert answer.method == "simulated"
    assert answer.predicted is not None
    assert answer.predicted.after == pytest.approx(after, rel=0.1)
    assert answer.predicted.interval[0] < after < answer.predicted.interval[1]
    assert "2 replicas that serve nobody else" in answer.assumption


def test_settings_that_nobody_saw_are_not_changed(facts: Facts) -> None:
    for fix, parameters in ((max_sequences, {"sequences": 4}), (routing, {"policy": "least_load"})):
        answer = fix.predict(facts, **parameters)
        assert answer.predicted is None
        assert "no engine tells" in answer.reasons["predicted"]


def test_nothing_is_guessed_where_times_follow_no_load_of_the_clients_or_tell_no_first_token() -> None:
    (pool,) = pools(hosted(CAME))
    assert guess(pool, np.arange(len(pool))) is None
    assert pools(recorded(CAME, TRUE, ttft_ms=None, ttft_engine_ms=None)) == []
