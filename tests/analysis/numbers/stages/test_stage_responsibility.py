"""Responsibility against brute force over all orders, derived budgets against their law, and the split of the model part without remainder."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overrun.analysis.front.budget_answer import budget_view
from overrun.analysis.numbers.stages.budget import Budgets, StageTimes, stage_times
from overrun.analysis.numbers.stages.model_time_split import model_split
from overrun.analysis.numbers.stages.stage_responsibility import derive, responsibility, shapley
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import frame_of, insert, requests, store

RNG = np.random.default_rng(5)


def times(**ms: np.ndarray) -> StageTimes:
    return StageTimes("e2e", sum(ms.values()), dict(ms))  # type: ignore[arg-type]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(0, 10_000))
def test_shapley_is_the_mean_over_all_orders(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    players = [f"p{i}" for i in range(n)]
    worth = {
        frozenset(s): float(rng.normal())
        for k in range(n + 1)
        for s in itertools.combinations(players, k)
    }
    found = shapley(players, lambda held: worth[held])
    orders = list(itertools.permutations(players))
    for player in players:
        gains = [
            worth[frozenset(order[: order.index(player) + 1])]
            - worth[frozenset(order[: order.index(player)])]
            for order in orders
        ]
        assert found[player] == pytest.approx(np.mean(gains))
    assert sum(found.values()) == pytest.approx(worth[frozenset(players)] - worth[frozenset()])


def test_counts_and_split_of_two_causes() -> None:
    """Of 100 requests, 10 breach by retrieval alone, 6 by decode alone, 4 only by both together (each 600 over budgets that leave 1,000 of room)."""
    retrieval, decode = np.full(100, 200.0), np.full(100, 800.0)
    retrieval[:10], decode[10:16] = 5_000.0, 6_000.0
    retrieval[16:20], decode[16:20] = 900.0, 2_200.0
    budgets = Budgets("e2e", {"retrieval": 300.0, "model": 1_600.0})
    found = {
        row.group: row
        for row in responsibility(
            times(retrieval=retrieval, decode=decode), budgets, 3_000.0, 95.0
        ).groups
    }
    assert (found["retrieval"].necessary, found["retrieval"].sufficient) == (14, 10)
    assert (found["model"].necessary, found["model"].sufficient) == (10, 6)
    assert sum(row.shapley_breaches for row in found.values()) == pytest.approx(0.20)
    assert found["retrieval"].shapley_breaches == pytest.approx(
        0.12
    )  # 10 of its own and half of the 4


def test_split_of_the_percentile_sums_to_what_holding_all_takes_off() -> None:
    parts = times(
        retrieval=RNG.lognormal(5, 1, 800),
        decode=RNG.lognormal(6, 0.8, 800),
        queue=RNG.lognormal(4, 1.5, 800),
    )
    found = responsibility(
        parts, Budgets("e2e", {"retrieval": 150.0, "model": 600.0}), 1_000.0, 95.0
    )
    assert found.before_ms is not None
    assert found.all_held_ms is not None
    assert sum(row.shapley_ms for row in found.groups) == pytest.approx(
        found.before_ms - found.all_held_ms
    )


def test_derived_budgets_sum_to_the_target_and_say_if_it_can_be_met() -> None:
    parts = times(retrieval=RNG.lognormal(5, 0.5, 4_000), decode=RNG.lognormal(6.5, 0.5, 4_000))
    found = derive(parts, 95.0, 2_000.0)
    assert (found.method, found.achievable) == ("euler", True)
    assert sum(found.stage_ms.values()) == pytest.approx(2_000.0)
    ordered = np.sort(parts.total_ms)
    inside = (parts.total_ms >= ordered[int(0.93 * 4_000)]) & (
        parts.total_ms <= ordered[int(0.97 * 4_000)]
    )
    share = parts.ms["retrieval"][inside].mean() / parts.total_ms[inside].mean()
    assert found.stage_ms["retrieval"] == pytest.approx(2_000.0 * share, rel=0.01)
    assert derive(parts, 95.0, 500.0).achievable is False
    assert derive(times(retrieval=np.full(60, 10.0)), 95.0, 100.0).method == "medians"


def test_model_part_splits_without_remainder() -> None:
    rows = requests(
        200,
        queue_ms=RNG.exponential(50, 200),
        prefill_ms=RNG.lognormal(4, 0.5, 200),
        decode_ms=RNG.lognormal(6, 0.6, 200),
        output_tokens=RNG.integers(5, 400, 200),
        input_tokens=RNG.integers(50, 4_000, 200),
        cached_tokens=RNG.integers(0, 50, 200),
    )
    frame = frame_of(rows).rows
    spent = stage_times(frame, "e2e")
    slow, usual = np.argsort(spent.total_ms)[-20:], np.argsort(spent.total_ms)[80:120]
    found = model_split(frame, spent, slow, frame[usual], spent.take(usual))
    assert set(found.parts) == {"queue", "length", "speed", "prompt", "prefill_speed"}
    assert found.total_ms == pytest.approx(
        spent.total_ms[slow].mean() - spent.total_ms[usual].mean()
    )


@pytest.mark.parametrize(
    ("tokens", "token_ms", "part"), [(300, 10.0, "length"), (100, 30.0, "speed")]
)
def test_long_answers_and_slow_tokens_are_told_apart(
    tokens: int, token_ms: float, part: str
) -> None:
    n = np.where(np.arange(200) < 180, 100, tokens)
    frame = frame_of(
        requests(
            200, decode_ms=(n - 1) * np.where(np.arange(200) < 180, 10.0, token_ms), output_tokens=n
        )
    ).rows
    spent = stage_times(frame, "e2e")
    found = model_split(
        frame, spent, np.arange(180, 200), frame[np.arange(0, 180)], spent.take(np.arange(0, 180))
    )
    assert found.parts[part] == pytest.approx(found.total_ms)


def test_view_of_a_store_with_a_healthy_past() -> None:
    con = store()
    slow = np.arange(600) >= 400
    insert(
        con,
        requests(
            600,
            prefill_ms=RNG.lognormal(5, 0.3, 600),
            retrieval_ms=np.where(slow, 4_000.0, 100.0),
            decode_ms=300.0,
        ),
    )
    found = budget_view(con, Window(), Slo(e2e_ms=2_500.0))
    assert (found.metric, found.derived_from) == (
        "e2e",
        "the time before the onset in this window",
    )
    assert found.responsibility is not None
    assert found.responsibility.groups[0].group == "retrieval"
    assert found.derived is not None
    assert sum(found.derived.stage_ms.values()) == pytest.approx(2_500.0)
    assert budget_view(store(), Window(), Slo(e2e_ms=1.0)).reasons["metric"]
