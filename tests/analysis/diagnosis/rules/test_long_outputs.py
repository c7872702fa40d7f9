"""long_outputs: fires with exact numbers, is silent on the twin, and says when data are few."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.longer_answers import token_slope_ms
from overrun.analysis.numbers.statistics.effect_size import cliffs_delta
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import calls_of, requests
from tests.analysis.diagnosis.rules.cases import of, run, the

N = 500
SLOW = np.arange(N) % 10 == 9


def answers(
    tokens: np.ndarray,
    token_ms: np.ndarray | float = 10.0,
    stage: str = "decode",
    **columns: object,
) -> pl.DataFrame:
    spent = tokens * token_ms
    return requests(
        N,
        prefill_ms=200.0,
        output_tokens=tokens,
        ttft_ms=200.0,
        **{f"{stage}_ms": spent},
        **columns,
    )


def test_fires_on_long_answers_with_exact_numbers() -> None:
    found = run(answers(np.where(SLOW, 600, 100), max_tokens=2048, truncated=SLOW.tolist()))
    finding = of(found, "long_outputs")
    assert finding is not None
    # 600 instead of 100 tokens at 10 ms: all 5,000 ms of the excess is length.
    evidence = finding.evidence
    assert (evidence["length_ms"], evidence["speed_ms"], evidence["cross_ms"]) == (
        pytest.approx(5000.0),
        0.0,
        0.0,
    )
    assert (evidence["share_of_excess"], evidence["cliffs_delta"]) == (pytest.approx(1.0), 1.0)
    assert (evidence["output_tokens_tail"], evidence["output_tokens_reference"]) == (600.0, 100.0)
    fix = finding.fix
    assert fix is not None
    assert fix.predicted is not None
    # 1.5 x 100 tokens in steps of 16 is 160; decode of 600 tokens shrinks by 440/599 of 6,000 ms.
    assert "max_tokens=160" in fix.title
    assert "2,048" in fix.detail
    assert fix.predicted.after == pytest.approx(200.0 + 6000.0 * 159 / 599)
    # A tenth of the requests write 440 tokens less of 600, the others 100.
    assert fix.predicted.cost == {
        "truncated_ratio": 0.1,
        "tokens_saved_ratio": pytest.approx(0.1 * 440 / (0.1 * 600 + 0.9 * 100)),
    }
    assert (found.verdict.stage, found.verdict.cause) == ("decode", "long_outputs")
    assert evidence["truncated_ratio_now"] == 0.1


def test_silent_when_the_same_time_comes_from_slower_tokens() -> None:
    found = run(answers(np.full(N, 100), np.where(SLOW, 60.0, 10.0)))
    assert found.verdict.stage == "decode"
    assert of(found, "long_outputs") is None


def test_silent_where_the_longest_answers_are_as_long_as_ever() -> None:
    # One request in ten writes 200 tokens and, before the onset, another one searches for 1.5 s: these were the slowest. Then each token takes 15 ms, not 5.
    late = np.arange(N) >= 250
    tokens = np.where(np.arange(N) % 10 == 9, 200, 100)
    searches = np.where(~late & (np.arange(N) % 10 == 4), 1500.0, 50.0)
    found = run(answers(tokens, np.where(late, 15.0, 5.0), retrieval_ms=searches))
    assert found.verdict.status == "over_budget"
    assert of(found, "long_outputs") is None
    # Answers that did get longer: the same slow requests with 600 tokens, at the former pace.
    found = run(answers(np.where(late & (tokens > 100), 600, tokens), 5.0, retrieval_ms=searches))
    assert of(found, "long_outputs") is not None


def test_who_waits_for_the_engine_that_others_keep_writing_on_need_not_get_a_longer_answer() -> (
    None
):
    """From the 250th on every third answer has 500 tokens, and the others wait 3 s for their first one."""
    late = np.arange(N) >= 250
    long = late & (np.arange(N) % 3 == 0)
    tokens, wait = np.where(long, 500, 100), np.where(late & ~long, 3_000.0, 5.0)
    rows = {"queue_ms": wait, "ttft_queue_ms": wait, "prefill_ms": 100.0, "ttft_prefill_ms": 100.0}
    found = run(
        requests(N, **rows, decode_ms=10.0 * tokens, output_tokens=tokens, tpot_ms=10.0),
        slo=Slo(ttft_ms=1_500.0),
    )
    assert (found.verdict.stage, found.verdict.cause) == ("queue", "long_outputs")
    assert "instead of 100, so other requests wait" in found.verdict.sentence
    # The same wait beside answers as long as ever has another cause.
    same = run(
        requests(N, **rows, decode_ms=1_000.0, output_tokens=100, tpot_ms=10.0),
        slo=Slo(ttft_ms=1_500.0),
    )
    assert of(same, "long_outputs") is None


def test_a_count_of_thought_that_one_request_sends_is_not_everybodys() -> None:
    thought = [400 if n == int(np.flatnonzero(SLOW)[0]) else None for n in range(N)]
    finding = the(run(answers(np.where(SLOW, 600, 100), reasoning_tokens=thought)), "long_outputs")
    assert finding.evidence["share_of_excess"] == pytest.approx(
        1.0 - 400.0 / SLOW.sum() / 500.0, abs=0.01
    )


def test_length_and_speed_are_told_apart() -> None:
    # 200 x 20 - 100 x 10 = 3,000 = 1,000 length + 1,000 speed + 1,000 cross: length is a third, no cause.
    assert (
        of(run(answers(np.where(SLOW, 200, 100), np.where(SLOW, 20.0, 10.0))), "long_outputs")
        is None
    )
    # 500 x 12 - 100 x 10 = 5,000 = 4,000 + 200 + 800: four fifths.
    finding = of(run(answers(np.where(SLOW, 500, 100), np.where(SLOW, 12.0, 10.0))), "long_outputs")
    assert finding is not None
    assert finding.evidence["share_of_excess"] == pytest.approx(0.8)
    parts = [finding.evidence[name] for name in ("length_ms", "speed_ms", "cross_ms")]
    assert parts == pytest.approx([4000.0, 200.0, 800.0])


def test_unsplit_generation_is_judged_by_its_slope() -> None:
    rng = np.random.default_rng(3)
    tokens = np.where(SLOW, 600, rng.integers(50, 150, N))
    found = run(answers(tokens, 10.0, "generation"), slo=Slo(e2e_ms=2500.0))
    finding = of(found, "long_outputs")
    assert finding is not None
    assert finding.stage == "generation"
    assert finding.evidence["token_ms_reference"] == pytest.approx(10.0)


def test_missing_token_counts_are_said() -> None:
    found = run(
        answers(np.where(SLOW, 600, 100)).with_columns(output_tokens=pl.lit(None, pl.Int64))
    )
    assert of(found, "long_outputs") is None
    assert "gen_ai.usage.output_tokens" in found.skipped["long_outputs"]


def test_cliffs_delta_is_that_of_all_pairs() -> None:
    slow, rest = np.array([3.0, 5.0, 5.0]), np.array([1.0, 5.0, 9.0, 2.0])
    pairs = [np.sign(a - b) for a in slow for b in rest]
    assert cliffs_delta(slow, rest) == pytest.approx(np.mean(pairs))


def test_slope_is_zero_without_variation_and_never_negative() -> None:
    assert token_slope_ms(np.array([1.0, 2.0]), np.array([5.0, 5.0])) == 0.0
    assert token_slope_ms(np.array([2.0, 1.0]), np.array([5.0, 6.0])) == 0.0
    assert token_slope_ms(np.array([10.0, 30.0]), np.array([1.0, 2.0])) == pytest.approx(20.0)


def test_a_small_window_is_judged_by_all_requests_over_the_limit() -> None:
    # 100 requests: the band around P95 holds 4, but 20 are over the limit, and each of them writes 600 tokens instead of 100.
    slow = np.arange(100) % 5 == 4
    tokens = np.where(slow, 600, 100)
    found = run(
        requests(
            100, prefill_ms=200.0, ttft_ms=200.0, output_tokens=tokens, decode_ms=tokens * 10.0
        )
    )
    finding = of(found, "long_outputs")
    assert finding is not None
    assert finding.evidence["n_tail"] == finding.evidence["n_breaching"] == 20
    assert finding.evidence["share_of_excess"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("model", "tokens", "further", "named"), [("guard-70b", 2, 1, True), ("m", 100, 5, False)]
)
def test_a_side_task_that_became_a_model_call_writes_no_further_answer(
    model: str, tokens: int, further: int, named: bool
) -> None:
    """Slow requests write some 500 tokens more: in their one answer, beside a guardrail of two tokens, or in five further answers."""
    slow = SLOW & (np.arange(N) >= N // 2)
    rows = answers(np.where(slow, 600, 100), model="m")
    first = calls_of(rows, output_tokens=np.where(slow & named, 600, 100))
    more = [
        calls_of(rows, output_tokens=np.full(N, tokens), model=[model] * N)
        .filter(pl.Series(slow))
        .with_columns(span_id=pl.col("span_id") + 10_000 * k)
        for k in range(1, further + 1)
    ]
    found = run(
        rows,
        calls=[pl.concat([first, *(one.select(first.columns) for one in more)])],
        slo=Slo(e2e_ms=2500.0),
    )
    assert (of(found, "long_outputs") is not None) is named


def test_a_cap_holds_for_each_call_of_a_request_with_several() -> None:
    """Slow requests write 1,000 tokens in two calls, 250 and then 750 at 10 ms each; of the usual 200, a cap of 304 cuts the second call alone."""
    tokens = np.where(SLOW, 1_000, 200)
    rows = requests(
        N,
        prefill_ms=200.0,
        output_tokens=tokens,
        ttft_ms=200.0,
        decode_ms=tokens * 10.0,
        llm_calls=np.where(SLOW, 2, 1),
    )
    last = np.where(SLOW, 750, 200)
    second = calls_of(
        rows,
        output_tokens=last,
        duration_ms=200.0 + 10.0 * (last - 1),
        queue_ms=None,
        prefill_ms=None,
        decode_ms=None,
        engine_instance=None,
        ttft_ms=200.0,
    )
    first = (
        calls_of(
            rows,
            output_tokens=np.where(SLOW, 250, 0),
            duration_ms=2_690.0,
            queue_ms=None,
            prefill_ms=None,
            decode_ms=None,
            engine_instance=None,
            ttft_ms=200.0,
        )
        .filter(pl.Series(SLOW))
        .with_columns(span_id=pl.col("span_id") + 10_000, start_ns=pl.col("start_ns") - 10**9)
    )
    finding = of(run(rows, calls=[second, first]), "long_outputs")
    assert finding is not None
    assert finding.fix is not None
    assert (finding.fix.parameters, finding.fix.predicted.before) == (
        {"max_tokens": 304},
        pytest.approx(10_200.0),
    )  # type: ignore[union-attr]
    assert finding.fix.predicted.after == pytest.approx(10_200.0 - 10.0 * (750 - 304))  # type: ignore[union-attr]


@pytest.mark.parametrize("given_up", [True, False])
def test_what_an_engine_wrote_for_attempts_that_were_given_up_is_no_longer_answer(
    given_up: bool,
) -> None:
    """Slow requests write 600 tokens instead of 100 in two calls: the first of them, of 500, failed for its caller or did not."""
    frame = answers(np.where(SLOW, 600, 100))
    last = calls_of(frame, output_tokens=100)
    first = (
        calls_of(frame, output_tokens=500, error=given_up)
        .with_columns(span_id=pl.col("span_id") + 10_000)
        .filter(pl.Series(SLOW))
    )
    found = run(frame, calls=[pl.concat([last, first], how="diagonal_relaxed")])
    assert (of(found, "long_outputs") is None) is given_up
