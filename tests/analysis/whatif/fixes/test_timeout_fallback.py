"""Timeout and fallback: min(L, T + fallback), in the request as in the call."""

import pytest

from overrun.analysis.whatif.fixes import timeout_fallback
from tests.analysis.whatif.builders import calls, facts_of, requests_of


def test_late_calls_end_with_the_fallback_and_early_ones_stay() -> None:
    slow = calls(10, ttft_ms=100.0, e2e_ms=[1000.0] * 4 + [9000.0] * 6)
    # Each request spends 500 ms beside its call.
    facts = facts_of(slow, requests=requests_of(slow, e2e_ms=[1500.0] * 4 + [9500.0] * 6))
    answer = timeout_fallback.predict(facts, timeout_ms=2000.0, fallback_ms=300.0)
    assert answer.predicted is not None
    assert (answer.predicted.before, answer.predicted.after) == (9500.0, pytest.approx(2800.0))
    assert answer.predicted.touched_ratio == answer.cost["fallback_ratio"] == 0.6
    assert answer.method == "exact"


def test_a_call_just_over_the_timeout_may_still_be_quicker_than_its_fallback() -> None:
    facts = facts_of(calls(10, ttft_ms=100.0, e2e_ms=2100.0))
    answer = timeout_fallback.predict(facts, timeout_ms=2000.0, fallback_ms=300.0)
    assert answer.predicted is not None
    assert answer.predicted.after == 2100.0


def test_a_stream_that_has_begun_is_left_alone() -> None:
    facts = facts_of(calls(10, ttft_ms=[100.0] * 4 + [5000.0] * 6, e2e_ms=9000.0))
    answer = timeout_fallback.predict(
        facts, timeout_ms=2000.0, fallback_ms=300.0, until="first_token"
    )
    assert answer.predicted is not None
    assert (answer.predicted.before, answer.predicted.after) == (9000.0, pytest.approx(2300.0))
    assert answer.cost["fallback_ratio"] == 0.6


@pytest.mark.parametrize(
    ("timeout_ms", "after", "cut"),
    [(2000.0, 750.0 + 2300.0, 1.0), (500.0, 800.0, 1.0), (9500.0, 9750.0, 0.0)],
)
def test_what_is_tried_again_is_not_needed_after_a_fallback(
    timeout_ms: float, after: float, cut: float
) -> None:
    # Each request gives a call up after 700 ms, of which the engine's first token came at 5 s, and asks again 50 ms later for 9 s.
    second = [k % 2 == 1 for k in range(20)]
    made = calls(
        20,
        start_s=[k // 2 * 20.0 + 0.75 * again for k, again in enumerate(second)],
        request=[k // 2 for k in range(20)],
        trace_id=[f"{k // 2:x}" for k in range(20)],
        ttft_ms=[8000.0 if again else 5000.0 for again in second],
        e2e_ms=[9000.0 if again else 700.0 for again in second],
        error=[not again for again in second],
        error_type=[None if again else "openai.APITimeoutError" for again in second],
    )
    facts = facts_of(made, requests=requests_of(made, ttft_ms=8750.0, e2e_ms=9750.0, error=False))
    for until in ("first_token", "end"):
        answer = timeout_fallback.predict(
            facts, timeout_ms=timeout_ms, fallback_ms=300.0, until=until
        )
        assert answer.predicted is not None
        assert answer.cost["fallback_ratio"] == cut
        # Between two attempts lie 50 ms that no call spent, and which stay.
        assert answer.predicted.after == pytest.approx(after + 50.0 * (timeout_ms == 500.0))


def test_without_first_tokens_it_says_what_to_record() -> None:
    answer = timeout_fallback.predict(
        facts_of(calls(10)), timeout_ms=2000.0, fallback_ms=300.0, until="first_token"
    )
    assert answer.predicted is None
    assert "stream" in answer.reasons["predicted"]


def test_too_few_requests_give_no_figure() -> None:
    answer = timeout_fallback.predict(facts_of(calls(5)), timeout_ms=2000.0, fallback_ms=300.0)
    assert answer.predicted is None
    assert "needs at least 6" in answer.reasons["predicted"]
