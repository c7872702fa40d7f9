"""Turns in a cache of another size: against a cache that is played call by call, and silent where conversations do not tell."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest

from analysis.whatif.engine import Calls
from analysis.whatif.pool import Pool
from analysis.whatif.reuse import resized

HEAD, N, SESSIONS = 500, 2_000, 60
RNG = np.random.default_rng(4)
SESSION = RNG.integers(0, SESSIONS, N)
ARRIVED = np.sort(RNG.uniform(0.0, 2_000.0, N))
OWN, OUTPUT = RNG.integers(50, 150, N), RNG.integers(100, 200, N)


def played(capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Prompt and cached tokens of each call with a cache of so many tokens beside the head: what was used longest ago loses its end first."""
    held: OrderedDict[int, int] = OrderedDict()
    history = dict.fromkeys(range(SESSIONS), 0)
    prompt, cached = np.zeros(N, dtype=np.int64), np.zeros(N, dtype=np.int64)
    for i in range(N):
        s = int(SESSION[i])
        history[s] = 0 if history[s] > 3_000 else history[s]
        prompt[i] = HEAD + history[s] + OWN[i]
        cached[i] = HEAD + min(held.pop(s, 0), history[s])
        history[s] += int(OWN[i] + OUTPUT[i])
        held[s] = history[s]
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


def test_without_conversations_or_a_capacity_nothing_is_told() -> None:
    made = pool(*played(60_000))
    assert resized(replace(made, session=np.full(N, -1, dtype=np.int64)), 60_000, 2.0) is None
    assert resized(made, 1 << 40, 2.0) is None
