"""Turns in a cache of another size: against a cache that is played call by call, and silent where conversations do not tell."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from analysis.whatif.context_limit import all_found
from analysis.whatif.engine import Calls, Setup
from analysis.whatif.pool import UNLIMITED_KV, Pool
from analysis.whatif.reuse import resized, trimmed

HEAD, N, SESSIONS = 500, 2_000, 60
RNG = np.random.default_rng(4)
SESSION = RNG.integers(0, SESSIONS, N)
ARRIVED = np.sort(RNG.uniform(0.0, 2_000.0, N))
OWN, OUTPUT = RNG.integers(50, 150, N), RNG.integers(100, 200, N)


def played(capacity: int, limit: int = 1 << 40) -> tuple[np.ndarray, np.ndarray]:
    """Prompt and cached tokens of each call with a cache of so many tokens beside the head: what was used longest ago loses its end first.

    Prompts longer than `limit` lose their end.
    """
    held: OrderedDict[int, int] = OrderedDict()
    history = dict.fromkeys(range(SESSIONS), 0)
    prompt, cached = np.zeros(N, dtype=np.int64), np.zeros(N, dtype=np.int64)
    for i in range(N):
        s = int(SESSION[i])
        history[s] = 0 if history[s] > 3_000 else history[s]
        prompt[i] = min(HEAD + history[s] + OWN[i], limit)
        cached[i] = min(HEAD + min(held.pop(s, 0), history[s]), prompt[i] - 1)
        history[s] += int(OWN[i] + OUTPUT[i])
        held[s] = min(history[s], int(prompt[i] + OUTPUT[i]) - HEAD)
        over = sum(held.values()) - capacity
        for other in list(held):
            lost = min(max(over, 0), held[other])
            held[other] -= lost
            over -= lost
    return prompt, cached


def pool(prompt: np.ndarray, cached: np.ndarray) -> Pool:
    """One replica that answers at once."""
    none = np.full(N, -1, dtype=np.int64)
    calls = Calls(ARRIVED, none, prompt, cached, OUTPUT.astype(np.int64), np.zeros(N, dtype=np.int64), np.zeros(N, dtype=np.int64),
                  np.ones(N, dtype=np.int64), np.ones(N), np.zeros(N, np.bool_))
    ms = np.full(N, 0.001)
    return Pool("m", np.arange(N), calls, ARRIVED, ms, ms, 0.0 * ms, ("a",), (-np.inf,), None, 1, SESSION.astype(np.int64))


@pytest.mark.parametrize(("now", "other"), [(30_000, 60_000), (60_000, 30_000), (60_000, 120_000)])
def test_another_size_gives_the_hits_of_a_cache_that_is_played(now: int, other: int) -> None:
    prompt, cached = played(now)
    truth = played(other)[1]
    found = resized(pool(prompt, cached), now, other / now)
    assert found is not None
    moved = abs(float(truth.mean() - cached.mean()))
    assert moved > 100.0
    # Four fifths of what the size changes, and of the right turns.
    assert abs(float(found.mean() - truth.mean())) < 0.2 * moved
    assert np.corrcoef(found - cached, truth - cached)[0, 1] > 0.7


def test_the_same_size_changes_nothing() -> None:
    prompt, cached = played(60_000)
    found = resized(pool(prompt, cached), 60_000, 1.0)
    assert found is not None
    assert (found == cached).all()


def test_shorter_prompts_push_out_less_of_the_others() -> None:
    prompt, cached = played(45_000)
    cut, truth = played(45_000, limit=1_500)
    found = trimmed(pool(prompt, cached), 45_000, np.minimum(prompt, 1_500))
    assert found is not None
    as_they_were = np.minimum(cached, cut - 1)
    back = float(truth.mean() - as_they_were.mean())
    assert back > 50.0
    assert abs(float(found.mean() - truth.mean())) < 0.25 * back
    assert np.corrcoef(found - as_they_were, truth - as_they_were)[0, 1] > 0.7
    assert (found < cut).all()


def test_a_limit_above_all_prompts_changes_nothing() -> None:
    prompt, cached = played(45_000)
    assert (trimmed(pool(prompt, cached), 45_000, prompt) == cached).all()


def test_without_conversations_or_a_capacity_nothing_is_told() -> None:
    made = pool(*played(60_000))
    assert resized(replace(made, session=np.full(N, -1, dtype=np.int64)), 60_000, 2.0) is None
    assert resized(made, 1 << 40, 2.0) is None
    assert trimmed(made, 1 << 40, made.calls.prompt_tokens) is None


def test_where_no_capacity_is_told_a_limit_may_bring_back_all_that_turns_left() -> None:
    """A cache of 20,000 tokens pushes most of the history out; prompts of 1,500 tokens in one without an end find all of it."""
    prompt, cached = played(20_000)
    untold: Any = SimpleNamespace(pool=pool(prompt, cached), setup=Setup(kv_tokens=UNLIMITED_KV))
    found = all_found(untold, np.minimum(prompt, 1_500))
    assert found is not None
    assert cached.mean() < 0.8 * found.mean()
    assert found.mean() == pytest.approx(played(1 << 40, 1_500)[1].mean(), rel=0.1)
    assert all_found(untold, prompt) is None
    told: Any = SimpleNamespace(pool=untold.pool, setup=Setup(kv_tokens=20_000))
    assert all_found(told, np.minimum(prompt, 1_500)) is None
