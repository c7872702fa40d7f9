"""Derived budgets as a person reads them and as the settings file takes them."""

import tomllib
from datetime import UTC, datetime

import numpy as np
import pytest

from overrun.analysis.front.budget_answer import BudgetView, budget_view
from overrun.analysis.front.budget_text import document, to_toml
from overrun.analysis.front.questions import Question
from overrun.analysis.front.text_layout import render
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from overrun.collector.config import Settings
from tests.analysis.builders import insert, requests, store

RNG = np.random.default_rng(5)


def view(limit_ms: float) -> BudgetView:
    con = store()
    insert(
        con,
        requests(
            3_000,
            prefill_ms=RNG.lognormal(5, 0.3, 3_000),
            retrieval_ms=RNG.lognormal(4.6, 0.5, 3_000),
            decode_ms=300.0,
            other_ms=20.0,
        ),
    )
    return budget_view(con, Window(), Slo(e2e_ms=limit_ms))


def test_the_allocation_is_a_table_that_the_settings_file_takes() -> None:
    made = view(1_000.0)
    table = tomllib.loads(to_toml(made, "/chat"))
    budgets = table["budgets"]["/chat"]
    assert set(budgets) == {"retrieval", "model"}
    assert made.derived is not None
    assert sum(budgets.values()) + made.derived.stage_ms["other"] == pytest.approx(1_000.0, abs=0.2)
    asked = Question.read(
        {"route": "/chat"}, Settings(budgets=table["budgets"]), now=datetime.now(UTC)
    )
    assert asked.budgets == {"/chat": budgets}


def test_it_says_whether_the_limit_can_be_kept() -> None:
    assert "Achievable: E2E P95 of the healthy requests is" in render(document(view(1_000.0)))
    assert "No allocation: no healthy window" in render(document(view(400.0)))


def test_a_limit_that_half_of_the_requests_miss_is_not_achievable() -> None:
    con = store()
    slow = np.arange(3_000) >= 1_500
    insert(
        con,
        requests(
            3_000,
            prefill_ms=300.0,
            retrieval_ms=np.where(slow, 4_000.0, 100.0),
            decode_ms=np.where(slow, 300.0, 30.0),
        ),
    )
    made = budget_view(con, Window(), Slo(e2e_ms=500.0))
    assert made.derived is not None
    assert made.derived.achievable is True
    made.derived.achievable, made.derived.median_ms = False, 640.0
    text = render(document(made))
    assert "Not achievable: the medians of the stages alone sum to 640 ms." in text
    assert "BREACHES 1,500 of 3,000 requests" in text
    assert "retrieval: within its budget of" in text
    assert "worked out anew" not in text
    few = budget_view(con, Window(), Slo(e2e_ms=500.0), {"*": {"retrieval": 10_000.0}})
    assert "  retrieval (budget 10.0 s): no effect on them" in render(document(few))


def test_nothing_to_derive_from_is_a_comment_with_the_reason() -> None:
    made = budget_view(store(), Window(), Slo(e2e_ms=1.0))
    assert to_toml(made, None).startswith("# no budget can be derived: no request carries")
    assert render(document(made)).startswith("No budget can be derived: no request carries")
