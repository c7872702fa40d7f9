"""Clip to budget: exact on the recorded stage times."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from overrun.analysis.numbers.stages.budget import StageTimes
from overrun.analysis.whatif.fixes import clip as clip_fix
from overrun.analysis.whatif.fixes.clip import clip
from overrun.analysis.whatif.prediction import WhatIfError
from overrun.analysis.whatif.quantile_gain import effect
from overrun.analysis.words.slo import Slo
from tests.analysis.whatif.builders import calls, facts_of, requests_of


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@given(
    hnp.arrays(np.float64, st.tuples(st.just(2), st.integers(1, 100)), elements=st.floats(0, 1e5)),
    st.floats(0, 1e5),
)
def test_after_is_the_quantile_of_clipped_sums(ms: np.ndarray, limit_ms: float) -> None:
    times = StageTimes("e2e", ms[0] + ms[1], {"queue": ms[0], "decode": ms[1]})
    result = clip(times, "queue", limit_ms, metric="e2e", percentile=95.0, rng=rng())
    expected = np.percentile(np.minimum(ms[0], limit_ms) + ms[1], 95.0)
    assert result.after == pytest.approx(float(expected), abs=1e-6)
    assert result.after <= result.before + 1e-6
    assert result.interval is not None
    assert result.interval[0] <= result.interval[1]
    assert result.touched_ratio <= float((ms[0] > limit_ms).mean())


def test_stage_that_took_no_time_changes_nothing() -> None:
    times = StageTimes("e2e", np.arange(100.0), {"decode": np.arange(100.0)})
    result = clip(times, "tool", 0.0, metric="e2e", percentile=95.0, rng=rng())
    assert (result.before, result.touched_ratio) == (result.after, 0.0)


def test_interval_is_that_of_a_plain_bootstrap() -> None:
    values = np.random.default_rng(5).lognormal(6.0, 0.8, 400)
    result = effect(values, values, metric="e2e", percentile=95.0, cost={}, rng=rng())
    draws = np.random.default_rng(6).integers(0, 400, (20_000, 400))
    plain = np.percentile(np.percentile(values[draws], 95.0, axis=1), [2.5, 97.5])
    assert result.interval == pytest.approx(plain.tolist(), rel=0.05)


def test_interval_of_one_request_is_the_request() -> None:
    result = effect(
        np.array([7.0]), np.array([5.0]), metric="e2e", percentile=95.0, cost={}, rng=rng()
    )
    assert (result.before, result.after, result.interval, result.touched_ratio) == (
        7.0,
        5.0,
        (5.0, 5.0),
        1.0,
    )


def test_without_a_limit_each_request_is_held_to_the_budget_of_its_own_route() -> None:
    spent = np.random.default_rng(3).lognormal(5.5, 0.8, 300)
    routes = ["/chat", "/report", "/free"] * 100
    both = calls(300, e2e_ms=1000.0 + spent, ttft_ms=300.0, route=routes)
    facts = facts_of(
        both, requests=requests_of(both, retrieval_ms=spent, decode_ms=1000.0), percentile=95.0
    )
    facts.budgets = {"/chat": {"retrieval": 100.0}, "/report": {"retrieval": 600.0}}
    answer = clip_fix.predict(facts, stage="retrieval")
    # The published split of a limit of 2,500 ms gives retrieval 300 ms where no table does.
    held = np.minimum(
        spent, [{"/chat": 100.0, "/report": 600.0}.get(route, 300.0) for route in routes]
    )
    assert answer.predicted is not None
    assert answer.predicted.after == pytest.approx(float(np.percentile(1000.0 + held, 95.0)))
    assert answer.title == "Limit retrieval to 100 ms to 600 ms, by request"
    assert answer.parameters == {"stage": "retrieval"}


def test_a_stage_without_a_budget_needs_a_limit() -> None:
    facts = facts_of(calls(100, e2e_ms=1000.0, ttft_ms=300.0), metric="tpot", slo=Slo(tpot_ms=50.0))
    with pytest.raises(
        WhatIfError, match="retrieval has no budget where TPOT is judged: give limit_ms"
    ):
        clip_fix.predict(facts, stage="retrieval")


def test_each_request_is_over_its_own_limit() -> None:
    before, after = np.array([100.0, 200.0, 300.0, 400.0]), np.array([100.0, 150.0, 150.0, 150.0])
    result = effect(
        before,
        after,
        metric="e2e",
        percentile=50.0,
        cost={},
        rng=rng(),
        limits_ms=np.array([120.0, 120.0, 250.0, np.inf]),
    )
    assert (result.over_before_ratio, result.over_after_ratio) == (0.5, 0.25)
