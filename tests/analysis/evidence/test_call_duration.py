"""Calls whose first token nobody saw: what waited longer, and what was written more slowly? Exact figures, and twins that differ in one fact."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.diagnosis.diagnose import Diagnosed
from overrun.analysis.evidence.call_duration import untimed, whole_calls
from overrun.analysis.evidence.calls import Calls
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import calls_of, requests
from tests.analysis.diagnosis.rules.cases import causes, of, run, the

N = 600
LATE = np.arange(N) >= 300
TOKENS = np.random.default_rng(3).integers(20, 400, N)
SLO = Slo(e2e_ms=6_000.0)


def calls(wait_ms: float, pace_ms: float, tokens: np.ndarray = TOKENS) -> Calls:
    unknown = [None] * len(tokens)
    return Calls(
        pl.DataFrame(
            {
                "start_s": np.arange(len(tokens)) * 1.0,
                "e2e_ms": wait_ms + pace_ms * tokens,
                "output_tokens": tokens,
                "model": "m",
                "error": np.zeros(len(tokens)),
                "prefill_ms": unknown,
                "decode_ms": unknown,
                "ttft_ms": unknown,
            },
            schema_overrides=dict.fromkeys(("prefill_ms", "decode_ms", "ttft_ms"), pl.Float64),
        )
    )


def answers(*, wait_ms: float = 500.0, pace_ms: float = 10.0) -> Diagnosed:
    """Answers without a first token; since the onset they wait and are written as given, before in 500 ms and 10 ms a token."""
    noise = np.exp(np.random.default_rng(4).normal(0.0, 0.1, N))
    took = noise * np.where(LATE, wait_ms + pace_ms * TOKENS, 500.0 + 10.0 * TOKENS)
    return run(
        requests(
            N,
            start_s=np.arange(N) * 1.0,
            generation_ms=took,
            input_tokens=500,
            output_tokens=TOKENS,
        ),
        slo=SLO,
    )


def test_wait_and_pace_are_told_apart() -> None:
    found = whole_calls(calls(500.0, 10.0), calls(800.0, 15.0))
    assert found is not None
    assert found == pytest.approx((500.0, 10.0, 800.0, 15.0), rel=1e-6)
    assert found.ratio == pytest.approx(1.5)


def test_one_stuck_call_bends_nothing() -> None:
    stuck = calls(500.0, 10.0)
    took = np.where(np.arange(N) == 7, 300_000.0, stuck.of("e2e_ms"))
    found = whole_calls(stuck, Calls(stuck.frame.with_columns(e2e_ms=took)))
    assert found is not None
    assert found.ratio == pytest.approx(1.0, abs=0.02)


def test_answers_of_one_length_or_too_few_tell_nothing() -> None:
    assert (
        whole_calls(calls(500.0, 10.0, np.full(N, 100)), calls(800.0, 15.0, np.full(N, 100)))
        is None
    )
    assert whole_calls(calls(500.0, 10.0, TOKENS[:79]), calls(500.0, 10.0)) is None


def test_who_saw_a_first_token_has_no_need_of_it() -> None:
    seen = calls(500.0, 10.0)
    assert untimed(seen).all()
    assert not untimed(Calls(seen.frame.with_columns(ttft_ms=pl.lit(400.0)))).any()


def test_slower_tokens_without_a_first_token_are_a_sag() -> None:
    found = answers(pace_ms=20.0)
    assert (found.verdict.stage, causes(found)) == ("generation", ["token_rate_sag"])
    assert the(found, "token_rate_sag").evidence["ratio"] == pytest.approx(2.0, rel=0.1)


def test_calls_that_begin_later_without_a_first_token_are_queued() -> None:
    found = answers(wait_ms=3_500.0)
    assert (found.verdict.stage, causes(found)) == ("generation", ["provider_queueing"])
    assert of(found, "token_rate_sag") is None


def test_longer_prompts_are_found_in_whole_calls() -> None:
    """Own engines that only their clients see, and of which they record no first token: prompts of five times the length, and answers that wait for them."""
    work = np.where(LATE, 5_000, 1_000)
    took = np.exp(np.random.default_rng(4).normal(0.0, 0.1, N)) * np.where(
        LATE, 3_000.0 + 20.0 * TOKENS, 500.0 + 10.0 * TOKENS
    )
    found = run(
        requests(
            N,
            start_s=np.arange(N) * 1.0,
            generation_ms=took,
            input_tokens=work,
            output_tokens=TOKENS,
        ),
        slo=SLO,
    )
    assert (found.verdict.stage, found.verdict.cause) == ("generation", "prompt_bloat")


def test_quick_checks_beside_the_answers_hold_no_end_of_the_line() -> None:
    """Every answer waits 2 s more since the onset, a check of 6 tokens before it takes 80 ms as ever: with it the line would be steeper, not higher."""
    noise = np.exp(np.random.default_rng(4).normal(0.0, 0.1, N))
    took = noise * np.where(LATE, 2_500.0 + 10.0 * TOKENS, 500.0 + 10.0 * TOKENS)
    frame = requests(
        N, start_s=np.arange(N) * 1.0, generation_ms=took, input_tokens=500, output_tokens=TOKENS
    )
    checks = calls_of(frame, model="guard", duration_ms=80.0, output_tokens=6).with_columns(
        span_id=pl.col("span_id") + 10_000
    )
    found = run(
        frame, calls=[pl.concat([calls_of(frame), checks], how="diagonal_relaxed")], slo=SLO
    )
    assert found.verdict.cause == "provider_queueing"
    assert of(found, "token_rate_sag") is None
