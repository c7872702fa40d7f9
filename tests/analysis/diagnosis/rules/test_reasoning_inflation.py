"""reasoning_inflation: fires with exact numbers, is silent on the twin, and says nothing without counts."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.words.slo import Slo
from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the

N = 600
SLOW = (np.arange(N) >= 300) & (np.arange(N) % 5 == 0)


def thinking(
    reasoning: np.ndarray, visible: np.ndarray | float, stage: str = "decode"
) -> pl.DataFrame:
    tokens = reasoning + visible
    return requests(
        N,
        prefill_ms=100.0,
        **{f"{stage}_ms": 10.0 * tokens},
        output_tokens=tokens.astype(int),
        reasoning_tokens=reasoning.astype(int),
        tpot_ms=10.0,
    )


@pytest.mark.parametrize("stage", ["decode", "generation"])
def test_fires_on_longer_thought_with_exact_numbers(stage: str) -> None:
    found = run(thinking(np.where(SLOW, 500.0, 100.0), 50.0 + np.arange(N) % 3, stage), slo=E2E)
    finding = the(found, "reasoning_inflation")
    assert (found.verdict.cause, causes(found)) == ("reasoning_inflation", ["reasoning_inflation"])
    # 400 tokens more at 10 ms each are the 4 s.
    assert (
        finding.evidence["reasoning_tokens_slow"],
        finding.evidence["reasoning_tokens_reference"],
    ) == (500.0, 100.0)
    assert finding.evidence["token_ms"] == pytest.approx(10.0)
    assert finding.evidence["share_of_excess"] == pytest.approx(1.0, abs=0.02)
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    assert finding.fix.predicted.after == pytest.approx(1_620.0, abs=10.0)
    # What is left of all thought where none takes more than 100 tokens.
    assert finding.fix.parameters == {
        "factor": pytest.approx(100.0 / (100.0 + 400.0 * SLOW.mean()), abs=1e-3)
    }


def test_who_waits_for_the_engine_that_others_keep_thinking_on_need_not_think_more_himself() -> (
    None
):
    """From the 300th on every third request thinks for 500 tokens, and the others wait 3 s for their first token."""
    late = np.arange(N) >= 300
    deep = late & (np.arange(N) % 3 == 0)
    tokens, wait = np.where(deep, 550, 150), np.where(late & ~deep, 3_000.0, 5.0)
    found = run(
        requests(
            N,
            queue_ms=wait,
            ttft_queue_ms=wait,
            prefill_ms=100.0,
            ttft_prefill_ms=100.0,
            decode_ms=10.0 * tokens,
            output_tokens=tokens,
            reasoning_tokens=tokens - 50,
            tpot_ms=10.0,
        ),
        slo=Slo(ttft_ms=1_500.0),
    )
    assert (found.verdict.cause, causes(found)) == ("reasoning_inflation", ["reasoning_inflation"])
    assert the(found, "reasoning_inflation").evidence["share_of_excess"] == pytest.approx(
        1.0, abs=0.02
    )


def test_silent_when_the_answers_grew_and_not_the_thought() -> None:
    found = run(thinking(np.full(N, 100.0), np.where(SLOW, 450.0, 50.0)), slo=E2E)
    assert of(found, "reasoning_inflation") is None
    assert found.verdict.cause == "long_outputs"


def test_who_tells_of_thought_only_where_there_was_some_had_none_before() -> None:
    """One slow request in two thinks for 900 tokens; who does not think sends no count at all."""
    deep = SLOW & (np.arange(N) % 2 == 0)
    visible = np.where(SLOW & ~deep, 500.0, 50.0)
    rows = thinking(np.where(deep, 900.0, 0.0), visible)
    rows = rows.with_columns(
        reasoning_tokens=pl.when(pl.col("reasoning_tokens") > 0).then(pl.col("reasoning_tokens"))
    )
    finding = the(run(rows, slo=E2E), "reasoning_inflation")
    assert (
        finding.evidence["reasoning_tokens_slow"],
        finding.evidence["reasoning_tokens_reference"],
    ) == (pytest.approx(900.0 * deep.sum() / SLOW.sum()), 0.0)


def test_silent_without_reasoning_counts() -> None:
    rows = thinking(np.where(SLOW, 500.0, 100.0), 50.0).with_columns(
        reasoning_tokens=pl.lit(None, pl.Int64)
    )
    found = run(rows, slo=E2E)
    assert of(found, "reasoning_inflation") is None
    assert found.verdict.cause == "long_outputs"


def test_a_callers_time_per_token_does_not_shorten_the_thought_before_the_first_token() -> None:
    """Thought takes 10 ms a token before the first one is seen. The caller has 200 tokens of answer over its time since then, 3 to 7 ms by its count."""
    reasoning = np.where(SLOW, 500, 100) + np.random.default_rng(2).integers(0, 40, N)
    tokens, first = reasoning + 200, 10.0 * reasoning
    found = run(
        requests(
            N,
            prefill_ms=100.0,
            ttft_prefill_ms=100.0,
            decode_ms=10.0 * tokens,
            ttft_decode_ms=first,
            ttft_ms=100.0 + first,
            output_tokens=tokens,
            reasoning_tokens=reasoning,
            tpot_ms=2_000.0 / (tokens - 1),
        ),
        slo=Slo(ttft_ms=2_500.0),
    )
    finding = the(found, "reasoning_inflation")
    assert causes(found) == ["reasoning_inflation"]
    assert finding.evidence["token_ms"] == pytest.approx(10.0, rel=0.01)
    assert finding.evidence["share_of_excess"] == pytest.approx(1.0, abs=0.02)


def untold(
    *, visible: np.ndarray | float = 150.0, thought: np.ndarray | None = None, held: bool = False
) -> pl.DataFrame:
    """Streams whose output tokens hold thought of which nothing else tells, at 10 ms a token, the first one of the answer after the thought."""
    deep = np.where(SLOW, 500.0, 50.0) if thought is None else thought
    tokens = deep + visible + np.arange(N) % 7
    before, after = 300.0 + 10.0 * deep + 10.0 * (np.arange(N) % 7), 10.0 * visible * np.ones(N)
    if held:
        before, after = before + after, np.full(N, 1.0)
    return requests(
        N,
        first_token_ms=before,
        ttft_first_token_ms=before,
        decode_ms=after,
        output_tokens=tokens.astype(int),
        tpot_ms=after / tokens,
    )


def test_thought_that_nobody_tells_of_is_what_does_not_fit_after_the_first_token() -> None:
    """450 of 650 tokens more, in as much time after the first visible one: 4.5 s before it."""
    found = run(untold(), slo=Slo(e2e_ms=4_000.0))
    finding = the(found, "reasoning_inflation")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "first_token",
        "reasoning_inflation",
        ["reasoning_inflation"],
    )
    assert finding.evidence["unsaid_tokens"] == pytest.approx(450.0, abs=3.0)
    assert finding.evidence["token_ms"] == pytest.approx(10.0, rel=0.01)


def test_a_late_first_token_before_as_many_tokens_is_no_thought() -> None:
    late = untold(thought=np.full(N, 50.0)).with_columns(
        first_token_ns=pl.when(pl.Series(SLOW))
        .then(6_000_000_000)
        .otherwise(pl.col("first_token_ns"))
    )
    late = late.with_columns(e2e_ns=pl.col("first_token_ns") + pl.col("decode_ns"))
    assert of(run(late, slo=Slo(e2e_ms=4_000.0)), "reasoning_inflation") is None


def test_a_stream_that_is_held_back_is_no_thought() -> None:
    assert (
        of(
            run(
                untold(visible=np.where(SLOW, 450.0, 150.0), thought=np.full(N, 50.0), held=True),
                slo=Slo(e2e_ms=4_000.0),
            ),
            "reasoning_inflation",
        )
        is None
    )
