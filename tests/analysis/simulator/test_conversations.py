"""Turns in a cache of another size: against a cache that is played call by call, and silent where conversations do not tell; turns that waited; answers that
prompts carry."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest

from overrun.analysis.simulator.conversations import answered, linked, meant, remembered, shortened
from overrun.analysis.simulator.engine import Calls, Costs, Setup, apart, simulate

HEAD, N, SESSIONS = 500, 2_000, 60
RNG = np.random.default_rng(4)
SESSION = RNG.integers(0, SESSIONS, N)
ARRIVED = np.sort(RNG.uniform(0.0, 2_000.0, N))
EVERY = np.arange(N)
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


COSTS = Costs(1e-9, 0.0, 1e-9, 0.0, 0.0)


def came(prompt: np.ndarray, cached: np.ndarray, session: np.ndarray = SESSION) -> Calls:
    """Calls on one replica that answers at once."""
    none = np.full(N, -1, dtype=np.int64)
    calls = Calls(
        ARRIVED,
        none,
        prompt,
        cached,
        OUTPUT.astype(np.int64),
        np.zeros(N, dtype=np.int64),
        np.zeros(N, dtype=np.int64),
        np.ones(N, dtype=np.int64),
        np.ones(N),
        np.zeros(N, np.bool_),
        **apart(N),
    )
    return linked(calls, session.astype(np.int64), ARRIVED, ARRIVED, ARRIVED + 0.001)


def hits(calls: Calls, setup: Setup) -> np.ndarray:
    """What calls find in such a cache."""
    found = simulate(calls, setup, COSTS).found
    return np.where(
        calls.usual >= 0,
        np.clip(calls.cached_tokens + found - calls.usual, 0, calls.prompt_tokens - 1),
        calls.cached_tokens,
    )


@pytest.mark.parametrize(("now", "other"), [(30_000, 60_000), (60_000, 30_000), (60_000, 120_000)])
def test_another_size_gives_the_hits_of_a_cache_that_is_played(now: int, other: int) -> None:
    prompt, cached = played(now)
    truth = played(other)[1]
    calls, setup = remembered(came(prompt, cached), Setup(kv_tokens=now), COSTS, EVERY)
    assert setup.cache_tokens == pytest.approx(now, rel=0.1)
    found = hits(calls, replace(setup, cache_tokens=int(setup.cache_tokens * other / now)))
    moved = abs(float(truth.mean() - cached.mean()))
    assert moved > 100.0
    # Nine tenths of what the size changes, and of the right turns.
    assert abs(float(found.mean() - truth.mean())) < 0.1 * moved
    assert np.corrcoef(found - cached, truth - cached)[0, 1] > 0.9


def test_the_same_size_changes_nothing() -> None:
    prompt, cached = played(60_000)
    calls, setup = remembered(came(prompt, cached), Setup(kv_tokens=60_000), COSTS, EVERY)
    assert (hits(calls, setup) == cached).all()


def test_an_engine_that_holds_more_than_conversations_is_given_the_room_that_they_had() -> None:
    prompt, cached = played(30_000)
    assert remembered(came(prompt, cached), Setup(kv_tokens=60_000), COSTS, EVERY)[
        1
    ].cache_tokens == pytest.approx(30_000, rel=0.1)


def test_shorter_prompts_push_out_less_of_the_others() -> None:
    prompt, cached = played(45_000)
    cut, truth = played(45_000, limit=1_500)
    calls, setup = remembered(came(prompt, cached), Setup(kv_tokens=45_000), COSTS, EVERY)
    found = hits(shortened(calls, np.minimum(prompt, 1_500)), setup)
    as_they_were = np.minimum(cached, cut - 1)
    back = float(truth.mean() - as_they_were.mean())
    assert back > 50.0
    assert abs(float(found.mean() - truth.mean())) < 0.25 * back
    assert np.corrcoef(found - as_they_were, truth - as_they_were)[0, 1] > 0.7
    assert (found < cut).all()


def test_a_limit_above_all_prompts_changes_nothing() -> None:
    calls = came(*played(45_000))
    same = shortened(calls, calls.prompt_tokens)
    assert all((getattr(same, name) == getattr(calls, name)).all() for name in Calls.__slots__)


def test_calls_before_the_window_met_another_cache() -> None:
    (prompt, small), (_, large) = played(30_000), played(100_000)
    early = ARRIVED < 700.0
    calls = came(prompt, np.where(early, large, small))
    assert remembered(calls, Setup(kv_tokens=100_000), COSTS, np.flatnonzero(~early))[
        1
    ].cache_tokens == pytest.approx(30_000, rel=0.1)


def test_turns_that_find_nothing_where_they_were_kept_do_not_hide_the_cache() -> None:
    # Each conversation keeps to its replica, and three turns in ten begin anew. Were turns sent to either replica, the others would find what they left there.
    rng, room = np.random.default_rng(8), 1_000_000
    prompt, cached = played(room)
    anew = rng.random(N) < 0.3
    calls = replace(came(prompt, cached), pool_to=np.full(N, 2))
    calls = replace(
        calls, cached_tokens=np.where(anew, np.minimum(cached, HEAD), cached), replica=SESSION % 2
    )
    known, setup = remembered(calls, Setup(replicas=2, kv_tokens=room), COSTS, EVERY)
    assert setup.cache_tokens == room
    assert (hits(known, setup) == calls.cached_tokens).all()
    sent, left, truth = rng.integers(0, 2, N), {}, np.zeros(N)
    for i in range(N):
        told, place = prompt[i] - HEAD - OWN[i], (SESSION[i], sent[i])
        truth[i] = 0 if anew[i] else min(left.get(place, 0), told)
        left = {
            key: min(value, told) if key[0] == SESSION[i] else value for key, value in left.items()
        } | {place: prompt[i] + OUTPUT[i] - HEAD}
    found = hits(replace(known, replica=sent), setup) - HEAD
    assert truth.mean() < 0.9 * (calls.cached_tokens - HEAD).mean()
    assert found.mean() == pytest.approx(truth.mean(), rel=0.05)


def sliding(finds: bool) -> Calls:
    """Conversations that forget their oldest turns once they are long, in a cache that holds nearly all; such turns find nothing, or as much as the others."""
    prompt, cached = played(200_000)
    longest, limit = dict.fromkeys(range(SESSIONS), 0), 2_000
    for i in range(N):
        s = int(SESSION[i])
        if longest[s] > limit:
            prompt[i] = limit - OWN[i]
            cached[i] = prompt[i] - OWN[i] if finds else HEAD
        longest[s] = max(longest[s], int(prompt[i]))
    return came(prompt, cached)


def test_a_turn_that_lost_the_head_of_its_history_finds_nothing_in_any_cache() -> None:
    calls = sliding(False)
    shorter = (
        (calls.follows >= 0)
        & (calls.prompt_tokens < 2_000)
        & (calls.cached_tokens == HEAD)
        & (calls.prompt_tokens > 1_800)
    )
    assert shorter.sum() > 300
    assert float((calls.reach[shorter] > 0).mean()) < 0.02
    assert float((sliding(True).reach[shorter] > 0).mean()) > 0.98


def test_hits_that_no_cache_explains_stay_as_they_were() -> None:
    prompt, cached = played(60_000)
    assert (
        remembered(came(prompt, cached, np.full(N, -1)), Setup(kv_tokens=60_000), COSTS, EVERY)[
            1
        ].cache_tokens
        == 0
    )
    # As many hits, of any turns.
    calls = came(prompt, cached)
    mixed = replace(
        calls, cached_tokens=np.where(RNG.random(N) < 0.5, calls.head, calls.head + calls.reach)
    )
    assert remembered(mixed, Setup(kv_tokens=60_000), COSTS, EVERY)[1].cache_tokens == 0
    # None at all: a head that changes, not a cache that is too small.
    assert (
        remembered(
            replace(calls, cached_tokens=np.zeros(N, dtype=np.int64)),
            Setup(kv_tokens=60_000),
            COSTS,
            EVERY,
        )[1].cache_tokens
        == 0
    )


def test_shorter_answers_leave_the_prompts_that_carry_them() -> None:
    calls = came(*played(1 << 40))
    capped = answered(calls, np.minimum(calls.output_tokens, 120))
    young = (calls.follows >= 0) & (calls.follows[calls.follows] < 0)
    lost = (calls.output_tokens - capped.output_tokens)[calls.follows][young]
    assert (calls.prompt_tokens - capped.prompt_tokens)[young].tolist() == lost.tolist()
    # What is read anew stays.
    assert (
        (capped.prompt_tokens - capped.cached_tokens) == (calls.prompt_tokens - calls.cached_tokens)
    ).mean() > 0.95
    # Prompts that grow by something else stay as they are.
    other = replace(calls, prompt_tokens=RNG.integers(500, 4_000, N))
    assert (
        answered(other, np.minimum(other.output_tokens, 120)).prompt_tokens == other.prompt_tokens
    ).all()


def chain(n: int) -> Calls:
    """One conversation of so many turns."""
    every = came(*played(60_000))
    return replace(
        every,
        **{name: getattr(every, name)[:n] for name in Calls.__slots__}
        | {"follows": np.arange(n) - 1},
    )


def test_turns_that_waited_for_an_answer_come_in_their_own_time_when_that_is_there() -> None:
    # A turn every 10 s or later; every fourth answer takes 30 s, and the next turn comes as it ends.
    n = 400
    rng = np.random.default_rng(5)
    pause, took = 10.0 + rng.exponential(5.0, n), np.where(np.arange(n) % 4 == 3, 30.0, 2.0)
    begun = np.zeros(n)
    plan = np.zeros(n)
    for i in range(1, n):
        plan[i] = plan[i - 1] + pause[i]
        begun[i] = max(plan[i], begun[i - 1] + took[i - 1])
    at = meant(chain(n), np.zeros(n, dtype=np.int64), begun, begun + took, begun, begun + took).at_s
    assert (at <= begun + 1e-9).all()
    assert float(np.mean(begun - at)) == pytest.approx(float((begun - plan).mean()), rel=0.2)
    assert meant(
        chain(n), np.zeros(n, dtype=np.int64), begun, begun + 0.1, begun, begun + 0.1
    ).at_s.shape == (1, n)


def test_people_who_read_before_they_ask_come_sooner_after_a_sooner_answer() -> None:
    n = 200
    rng = np.random.default_rng(6)
    pause, took = 1.0 + rng.exponential(4.0, n), rng.lognormal(1.0, 0.8, n)
    begun = np.concatenate([[0.0], np.cumsum(took + pause)[:-1]])
    own = meant(chain(n), np.zeros(n, dtype=np.int64), begun, begun + took, begun, begun + took)
    assert own.lag_s[1:] == pytest.approx(pause[:-1])
    assert (np.diff(own.at_s[0]) > 0.0).all()
    assert own.at_s[0, -1] < 1.0
    # The same pauses between two beginnings tell nothing of answers.
    begun = np.concatenate([[0.0], np.cumsum(12.0 + pause)[:-1]])
    at = meant(
        chain(n),
        np.zeros(n, dtype=np.int64),
        begun,
        begun + np.minimum(took, 11.0),
        begun,
        begun + np.minimum(took, 11.0),
    ).at_s
    assert at.tolist() == [begun.tolist()]
