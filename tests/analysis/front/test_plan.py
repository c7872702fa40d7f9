"""The cheapest set that meets the SLO: found among sets with known effects, its steps add up, and what is not met is said."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

from overrun.analysis.front import plan_text
from overrun.analysis.front.plan import LOST_PRICE, STEP_PRICE, Ask, Plan, _Fix, _Search, price_of
from overrun.analysis.front.text_layout import render
from overrun.analysis.whatif.facts import Facts
from overrun.analysis.whatif.fixes import together
from overrun.analysis.whatif.prediction import Effect, Prediction, WhatIfError
from overrun.analysis.words.finding import Predicted

# What each fix leaves of the judged metric, and what it costs.
LEFT: Mapping[str, tuple[float, Mapping[str, float]]] = {
    "prefix_cache": (0.7, {}),
    "chunked_prefill": (0.6, {}),
    "replicas": (0.3, {"replicas_factor": 2.0}),
    "cap": (0.9, {"truncated_ratio": 0.05}),
    "admission": (1.2, {"rejected_ratio": 0.2}),
}
BEFORE = 10_000.0


def asked(facts: Any, fix: str, texts: Mapping[str, str | None]) -> Prediction:
    """Fixes that multiply, as an engine far from its knee has them."""
    assert fix == "together"
    names = [name for name, _ in together.read(texts["fixes"] or "")]
    if "cap" in names and len(names) > 1:
        raise WhatIfError("the cap is not combined")
    after = BEFORE * float(np.prod([LEFT[name][0] for name in names]))
    cost: dict[str, float] = {}
    for name in names:
        cost |= LEFT[name][1]
    predicted = Predicted(
        metric="ttft",
        quantile=0.95,
        before=BEFORE,
        after=after,
        interval=(0.9 * after, 1.1 * after),
        touched_ratio=1.0,
        cost=cost,
    )
    effect = Effect(
        metric="ttft", quantile=0.95, before=BEFORE, after=after, interval=predicted.interval
    )
    return Prediction(
        fix="together",
        title=" and ".join(names),
        method="simulated",
        assumption="",
        parameters={},
        requests=100,
        predicted=predicted,
        effects=[effect],
        cost=cost,
        goodput_before=0.5,
        goodput_after=1.0,
    )


def found(limit_ms: float, *names: str, ask: Ask = asked) -> Plan:
    made = Plan(
        metric="ttft", percentile=95.0, limit_ms=limit_ms, start=None, end=None, requests=100
    )
    facts: Facts = object()  # type: ignore[assignment]
    _Search(facts, ask, made, {"ttft": limit_ms}).fill([_Fix(name, ()) for name in names])
    return made


def test_one_free_step_is_enough() -> None:
    plan = found(8_000.0, *LEFT)
    assert [step.whatif for step in plan.steps] == ["chunked_prefill"]
    assert (plan.meets, plan.certain, plan.price) == (True, True, STEP_PRICE)


def test_two_free_steps_are_cheaper_than_twice_the_replicas() -> None:
    plan = found(4_500.0, *LEFT)
    assert {step.whatif for step in plan.steps} == {"prefix_cache", "chunked_prefill"}
    assert plan.after_ms == pytest.approx(4_200.0)
    assert not plan.certain  # 4,620 at the upper end
    assert plan.steps[0].predicted.before == BEFORE
    assert plan.steps[1].predicted.before == plan.steps[0].predicted.after
    assert plan.steps[1].predicted.after == plan.after_ms
    assert any(one.fixes == ["replicas"] and one.meets for one in plan.considered)
    assert together.read(plan.fixes or "")


def test_what_makes_it_worse_is_no_step_and_a_refusal_is_kept_as_one() -> None:
    plan = found(1_500.0, *LEFT)
    assert {step.whatif for step in plan.steps} == {"prefix_cache", "chunked_prefill", "replicas"}
    assert all("admission" not in one.fixes or len(one.fixes) == 1 for one in plan.considered)


def test_a_set_that_brings_no_more_requests_within_the_limits_is_no_plan() -> None:
    def no_better(facts: Any, fix: str, texts: Mapping[str, str | None]) -> Prediction:
        return msgspec.structs.replace(asked(facts, fix, texts), goodput_after=0.5)

    plan = found(100.0, *LEFT, ask=no_better)
    assert plan.steps == []
    assert "brings more requests within the limits" in plan.reasons["steps"]


def test_the_nearest_set_is_shown_where_none_meets() -> None:
    plan = found(100.0, *LEFT)
    assert not plan.meets
    assert plan.after_ms == pytest.approx(1_260.0)
    assert "comes nearest" in plan.reasons["meets"]
    assert render(plan_text.document(plan), 80).startswith("No set of fixes meets every limit.")


def test_nothing_that_helps_is_said() -> None:
    plan = found(100.0, "admission")
    assert plan.steps == []
    assert render(plan_text.document(plan)).startswith("No plan: no fix that can be computed here")


def test_the_text_fits_eighty_columns_and_ends_with_the_command() -> None:
    text = render(plan_text.document(found(4_500.0, *LEFT)), 80)
    assert "1. " in text
    assert "overrun whatif together --fixes 'chunked_prefill+prefix_cache'" in text
    assert max(map(len, text.splitlines())) <= 80


def test_prices_are_in_todays_serving_cost() -> None:
    assert price_of({}, 1) == STEP_PRICE
    assert price_of({"replicas_factor": 1.5}, 1) == pytest.approx(0.5 + STEP_PRICE)
    assert price_of({"truncated_ratio": 0.01}, 0) == pytest.approx(0.01 * LOST_PRICE)
    assert price_of({"duplicate_ratio": 0.1, "tokens_saved_ratio": 0.5}, 0) == pytest.approx(0.1)
