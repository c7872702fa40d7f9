"""Budgets scaled to the limit, stage rows, and overrun shares that sum to one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from overrun.analysis.numbers.stages.budget import (
    GROUP_OF,
    StageTimes,
    budgets_for,
    overrun_shares,
    stage_rows,
    stage_shares,
    stage_times,
)
from overrun.analysis.words.errors import BudgetError
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import frame_of, requests

CHAT = Slo(ttft_ms=1500, e2e_ms=2500)


def times(**ms: list[float]) -> StageTimes:
    arrays = {stage: np.array(value) for stage, value in ms.items()}
    return StageTimes("e2e", sum(arrays.values()), arrays)


def test_published_split_is_that_of_a_2500_ms_turn() -> None:
    assert budgets_for(CHAT, "e2e").group_ms == {
        "network+gateway": 150,
        "retrieval": 300,
        "prompt+guardrail": 150,
        "model": 1600,
        "tool+post": 300,
    }


def test_split_scales_to_the_limit_and_sums_to_it() -> None:
    assert sum(budgets_for(Slo(e2e_ms=5000), "e2e").group_ms.values()) == pytest.approx(5000)
    ttft = budgets_for(Slo(ttft_ms=1000), "ttft").group_ms
    assert sum(ttft.values()) == pytest.approx(1000)
    # 600 of 1,500 ms to the first token are the model's: 400 of 1,000.
    assert ttft["model"] == pytest.approx(400)
    assert budgets_for(Slo(tpot_ms=50), "tpot").group_ms == {}


def test_configured_budgets_replace_groups_and_add_stages() -> None:
    budgets = budgets_for(CHAT, "e2e", {"*": {"retrieval": 500, "queue": 100}})
    assert budgets.group_ms["retrieval"] == 500
    assert budgets.stage_ms == {"queue": 100}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [("retreival", 1, "'retrieval'"), ("queue", 0, "above 0"), ("other", 5, "neither a stage")],
)
def test_wrong_budget_is_refused_with_the_nearest_name(name: str, value: float, says: str) -> None:
    with pytest.raises(BudgetError, match=says):
        budgets_for(CHAT, "e2e", {"/chat": {name: value}})


@given(hnp.arrays(np.float64, (5, 20), elements=st.floats(0, 5000)))
def test_overrun_shares_sum_to_one_over_groups_and_over_stages(ms: np.ndarray) -> None:
    parts = times(
        **dict(zip(("network", "retrieval", "queue", "decode", "tool"), ms.tolist(), strict=True))
    )
    budgets = budgets_for(CHAT, "e2e")
    shares = overrun_shares(parts, budgets)
    if shares is None:
        assert (parts.total_ms <= 2500 + 1e-6).all()
        return
    assert sum(shares.values()) == pytest.approx(1.0)
    assert sum((stage_shares(parts, budgets) or {}).values()) == pytest.approx(1.0)


def test_overrun_share_is_the_excess_over_the_budget() -> None:
    # Retrieval 400 is 100 over its 300, the model 1,900 is 300 over its 1,600: a quarter and three quarters.
    shares = overrun_shares(
        times(retrieval=[400.0], queue=[1000.0], decode=[900.0]), budgets_for(CHAT, "e2e")
    )
    assert shares is not None
    assert (shares["retrieval"], shares["model"]) == (pytest.approx(0.25), pytest.approx(0.75))


def test_stage_takes_its_groups_share_in_proportion_to_its_time() -> None:
    shares = stage_shares(times(queue=[3000.0], decode=[1000.0]), budgets_for(CHAT, "e2e"))
    assert shares == {"queue": pytest.approx(0.75), "decode": pytest.approx(0.25)}


def test_nothing_over_gives_no_share() -> None:
    assert overrun_shares(times(decode=[900.0]), budgets_for(CHAT, "e2e")) is None


def test_stages_sum_to_the_total_and_the_rest_is_unattributed() -> None:
    frame = frame_of(
        requests(3, queue_ms=[1.0, 2.0, 3.0], decode_ms=10.0, e2e_ms=[11.0, 12.0, 20.0])
    )
    parts = stage_times(frame.rows, "e2e")
    assert sum(parts.ms.values()).tolist() == pytest.approx(parts.total_ms.tolist())
    assert parts.ms["other"].tolist() == [0.0, 0.0, 7.0]
    assert set(parts.ms) == {"queue", "decode", "other"}


def test_path_to_the_first_token_has_its_own_columns() -> None:
    frame = frame_of(requests(2, queue_ms=5.0, decode_ms=90.0, ttft_queue_ms=[4.0, 5.0]))
    parts = stage_times(frame.rows, "ttft")
    assert parts.ms["queue"].tolist() == [4.0, 5.0]
    assert "decode" not in parts.ms


def test_rows_stand_per_group_then_its_stages() -> None:
    parts = times(retrieval=[100.0] * 300, queue=[1000.0] * 300, decode=[900.0] * 300)
    means = {stage: float(value.mean()) for stage, value in parts.ms.items()}
    rows = stage_rows(parts, budgets_for(CHAT, "e2e"), parts, means, means)
    assert [(row.stage, row.group) for row in rows] == [
        (None, "network+gateway"),
        (None, "retrieval"),
        ("retrieval", "retrieval"),
        (None, "prompt+guardrail"),
        (None, "model"),
        ("queue", "model"),
        ("decode", "model"),
        (None, "tool+post"),
    ]
    model = rows[4]
    assert (model.budget_ms, model.p95_ms, model.tail_ms, model.over, model.breach_share) == (
        1600,
        1900,
        1900,
        True,
        1.0,
    )
    assert (rows[5].budget_ms, rows[5].over) == (None, False)
    assert "group" in rows[5].reasons["budget_ms"]
    assert GROUP_OF["queue"] == "model"


def test_row_percentiles_need_their_least_n() -> None:
    parts = times(decode=[1.0] * 58)
    row = stage_rows(
        parts,
        budgets_for(CHAT, "e2e"),
        parts.take(np.zeros(58, bool)),
        {"decode": 1.0},
        {"decode": 1.0},
    )[-2]
    assert (row.p90_ms, row.p95_ms) == (1.0, None)
    assert "59" in row.reasons["p95_ms"]
