"""retry_storm: fires on repeats of slow calls, is silent on an agent's steps and on retries of refused calls."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.repeated_calls import amplification, attempts
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import calls_of, requests
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the

N = 600
LATE = np.arange(N) >= 300


def storm(error_type: str | None, *, grows: bool = False) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Requests whose call is asked again after 1.5 s from the 300th on; `grows` gives the second call a longer prompt."""
    wait = np.where(LATE, 4_000.0, 5.0)
    frame = requests(N, queue_ms=wait, prefill_ms=100.0, decode_ms=500.0)
    last = calls_of(frame, span_id=np.full(N, 2))
    first = calls_of(
        frame, span_id=np.full(N, 3), input_tokens=np.where(LATE, 300 if grows else 500, 500)
    ).with_columns(
        start_ns=last["start_ns"] - 1_500_000_000,
        error=pl.lit(error_type is not None),
        error_type=pl.lit(error_type, pl.String),
        queue_ns=pl.lit(None, pl.Int64),
        prefill_ns=pl.lit(None, pl.Int64),
        decode_ns=pl.lit(None, pl.Int64),
        engine_instance=pl.lit(None, pl.String),
    )
    return frame, pl.concat([first.filter(pl.Series(LATE)), last], how="diagonal_relaxed")


@pytest.mark.parametrize("error_type", [None, "openai.APITimeoutError"])
def test_fires_on_repeats_of_slow_calls(error_type: str | None) -> None:
    frame, calls = storm(error_type)
    found = run(frame, calls=[calls], slo=E2E)
    finding = the(found, "retry_storm")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "queue",
        "retry_storm",
        ["retry_storm"],
    )
    # Every question is asked twice, 1.5 s apart.
    assert (finding.evidence["amplification_now"], finding.evidence["amplification_before"]) == (
        pytest.approx(2.0, abs=0.01),
        1.0,
    )
    assert finding.evidence["lost_ms"] == pytest.approx(1_500.0, rel=0.01)
    assert finding.evidence["after_error_ratio"] == 0.0


def test_a_client_finds_the_wait_behind_its_own_repeats_in_the_first_token() -> None:
    """No engine reports: the first token takes 4 s more, of which a provider's queue could be as well, were not every question asked twice."""
    first = np.where(LATE, 4_105.0, 105.0) + np.arange(N) % 7
    frame = requests(
        N, first_token_ms=first, ttft_first_token_ms=first, decode_ms=500.0, tpot_ms=5.0
    )
    last = calls_of(frame, span_id=np.full(N, 2))
    again = calls_of(frame, span_id=np.full(N, 3)).with_columns(
        start_ns=last["start_ns"] - 1_500_000_000,
        error=pl.lit(True),
        error_type=pl.lit("openai.APITimeoutError"),
        ttft_ns=pl.lit(None, pl.Int64),
    )
    found = run(
        frame,
        calls=[pl.concat([again.filter(pl.Series(LATE)), last], how="diagonal_relaxed")],
        slo=E2E,
    )
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "first_token",
        "retry_storm",
        ["retry_storm"],
    )
    fix = the(found, "retry_storm").fix
    assert fix is not None
    assert fix.predicted is not None
    # Nobody sees the engine: what is slow takes as long as what is not, and not 1.5 s less.
    assert fix.predicted.after == pytest.approx(611.0, abs=15.0)
    assert any(
        out.what == "provider_queueing" and "it is a consequence of retry_storm" in out.figure
        for out in found.verdict.ruled_out
    )


def test_what_made_the_calls_slow_comes_before_their_repeats() -> None:
    """Cached tokens fall from 150 of 500 to none, and every question is asked twice from then on: the repeats double the work, the cache adds less."""
    frame, calls = storm(None)
    cached = (
        pl.when(pl.col("start_ns") < int(frame["start_ns"][300]) - 1_500_000_000)
        .then(150)
        .otherwise(0)
    )
    rows = frame.with_columns(
        cached_tokens=pl.Series(np.where(LATE, 0, 150)),
        prefill_ns=pl.Series(np.where(LATE, 500_000_000, 350_000_000)),
    )
    asked = calls.with_columns(
        cached_tokens=cached,
        prefill_ns=pl.when(pl.col("prefill_ns").is_null())
        .then(None)
        .otherwise(pl.when(cached > 0).then(350_000_000).otherwise(500_000_000)),
    )
    found = run(rows, calls=[asked], slo=E2E)
    assert (found.verdict.cause, causes(found)) == ("prefix_cache_lost", ["prefix_cache_lost"])
    figures = {out.what: out.figure for out in found.verdict.ruled_out}
    assert "it is a consequence of prefix_cache_lost" in figures["retry_storm"]


@pytest.mark.parametrize(("lost_from", "cause"), [(300, "prefix_cache_lost"), (420, "retry_storm")])
def test_a_cache_that_was_lost_before_calls_were_repeated_is_why_they_are(
    lost_from: int, cause: str
) -> None:
    """Four times as much to read is little beside what calls write, and from the 360th on every question is asked four times. A cache that is lost only
    behind the repeats is none of their reasons."""
    lost, again = np.arange(N) >= lost_from, np.arange(N) >= 360
    cached = np.where(lost, 0, 3_000)
    frame = requests(
        N,
        queue_ms=np.where(LATE, 4_000.0, 5.0),
        prefill_ms=np.where(lost, 4.0, 1.0),
        decode_ms=2_000.0,
        input_tokens=4_000,
        output_tokens=200,
        cached_tokens=cached,
    )
    last = calls_of(frame, span_id=np.full(N, 2))
    tried = [
        calls_of(frame, span_id=np.full(N, 3 + nth))
        .with_columns(
            start_ns=last["start_ns"] - (1 + nth) * 1_500_000_000,
            error=pl.lit(True),
            error_type=pl.lit("openai.APITimeoutError"),
            **{name: pl.lit(None, pl.Int64) for name in ("queue_ns", "prefill_ns", "decode_ns")},
            engine_instance=pl.lit(None, pl.String),
        )
        .filter(pl.Series(again))
        for nth in range(3)
    ]
    found = run(frame, calls=[pl.concat([*tried, last], how="diagonal_relaxed")], slo=E2E)
    assert found.verdict.cause == cause


def test_silent_when_the_second_call_has_read_more() -> None:
    frame, calls = storm(None, grows=True)
    assert of(run(frame, calls=[calls], slo=E2E), "retry_storm") is None


def test_silent_when_the_first_call_was_refused() -> None:
    frame, calls = storm("openai.RateLimitError")
    assert of(run(frame, calls=[calls], slo=E2E), "retry_storm") is None


def test_attempts_count_while_requests_are_slow_however_long_the_calm_around_them_is() -> None:
    """Of 600 questions a second apart the 90th to 119th are slow and asked twice: 1.05 attempts a question in all, 2 while they are slow."""

    def calls(start_s: np.ndarray) -> Calls:
        n = len(start_s)
        return Calls(
            pl.DataFrame(
                {
                    "trace_key": start_s.astype(np.int64),
                    "session": [None] * n,
                    "model": ["m"] * n,
                    "input_tokens": [500] * n,
                    "start_s": start_s,
                    "e2e_ms": [900.0] * n,
                    "error": [False] * n,
                    "http_status": [200] * n,
                    "error_type": [None] * n,
                    "engine_alone": [False] * n,
                    "attempts": [None] * n,
                    "attempts_source": [None] * n,
                    "retry_cause": [None] * n,
                    "wasted_ms": [None] * n,
                },
                schema_overrides={
                    "session": pl.String,
                    "error_type": pl.String,
                    "attempts": pl.Int64,
                    "attempts_source": pl.String,
                    "retry_cause": pl.String,
                    "wasted_ms": pl.Float64,
                },
            )
        )

    asked = np.arange(600.0)
    slow = asked[90:120]
    case: Any = SimpleNamespace(
        calls=calls(np.sort(np.r_[asked, slow + 0.5])),
        slow_calls=calls(slow),
        calls_before=calls(asked),
        usual_calls=calls(asked[:30]),
    )
    assert attempts(case.calls).amplification == pytest.approx(1.05)
    assert amplification(case) == (2.0, 1.0)


def test_a_storm_of_half_a_minute_counts_by_what_it_brought_then() -> None:
    """Of 1,500 requests a second apart the 900th to 939th wait 4 s and are asked twice: the engine's work of the ten minutes since has hardly grown."""
    n = 1_500
    late = (np.arange(n) >= 900) & (np.arange(n) < 940)
    frame = requests(n, queue_ms=np.where(late, 4_000.0, 5.0), prefill_ms=100.0, decode_ms=500.0)
    last = calls_of(frame, span_id=np.full(n, 2))
    first = calls_of(
        frame, span_id=np.full(n, 3), error=True, error_type="openai.APITimeoutError"
    ).with_columns(
        start_ns=last["start_ns"] - 1_500_000_000,
        queue_ns=pl.lit(None, pl.Int64),
        prefill_ns=pl.lit(None, pl.Int64),
        decode_ns=pl.lit(None, pl.Int64),
        engine_instance=pl.lit(None, pl.String),
    )
    found = run(
        frame,
        calls=[pl.concat([first.filter(pl.Series(late)), last], how="diagonal_relaxed")],
        slo=Slo(e2e_ms=2_500.0, percentile=99.0, goodput_target=0.99),
    )
    assert (found.verdict.stage, causes(found)) == ("queue", ["retry_storm"])
    assert the(found, "retry_storm").evidence["share_of_excess"] == pytest.approx(1.0, abs=0.02)


def test_attempts_are_counted_per_question() -> None:
    frame = pl.DataFrame(
        {
            "trace_key": [1, 1, 1, 2, 3, 3],
            "session": [None, None, None, "s", "s", "s"],
            "model": ["m"] * 6,
            "input_tokens": [10, 10, 20, 7, 7, None],
            "start_s": [0.0, 1.0, 2.0, 0.0, 30.0, 31.0],
            "e2e_ms": [900.0] * 6,
            "error": [False] * 6,
            "http_status": [None] * 6,
            "error_type": [None] * 6,
            "engine_alone": [False] * 6,
            "attempts": [None] * 6,
            "attempts_source": [None] * 6,
            "wasted_ms": [None] * 6,
            "retry_cause": [None] * 6,
        },
        schema_overrides={
            "http_status": pl.Int64,
            "error_type": pl.String,
            "attempts_source": pl.String,
            "retry_cause": pl.String,
        },
    )
    found = attempts(Calls(frame))
    assert found.repeat.tolist() == [False, True, False, False, True, False]
    assert found.after_ms[found.repeat].tolist() == [1_000.0, 30_000.0]
    assert found.amplification == pytest.approx(6 / 4)


@pytest.mark.parametrize(
    ("gap_s", "e2e_ms", "repeats"),
    [(0.0, 900.0, 0), (0.02, 900.0, 0), (0.5, 900.0, 1), (0.02, 10.0, 1)],
)
def test_what_begins_beside_a_call_is_no_repeat_of_it(
    gap_s: float, e2e_ms: float, repeats: int
) -> None:
    """Several samples of one answer, or follow-up questions that are dropped when it is there, begin with it; who asks again waits, or was refused at once."""
    frame = pl.DataFrame(
        {
            "trace_key": [1, 1, 2, 2],
            "session": [None] * 4,
            "model": ["m"] * 4,
            "input_tokens": [10, 10, None, 10],
            "start_s": [0.0, gap_s, 9.0, 9.0 + gap_s],
            "e2e_ms": [e2e_ms] * 4,
            "error": [False, False, True, False],
            "http_status": [None] * 4,
            "error_type": [None, None, "asyncio.CancelledError", None],
            "engine_alone": [False] * 4,
            "attempts": [None] * 4,
            "attempts_source": [None] * 4,
            "wasted_ms": [None] * 4,
            "retry_cause": [None] * 4,
        },
        schema_overrides={
            "session": pl.String,
            "http_status": pl.Int64,
            "attempts_source": pl.String,
            "retry_cause": pl.String,
            "wasted_ms": pl.Float64,
        },
    )
    assert int(attempts(Calls(frame)).repeat.sum()) == 2 * repeats
