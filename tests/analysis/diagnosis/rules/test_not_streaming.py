"""not_streaming: fires when the client's first token comes at the end, silent when the engine's does too, or thought comes first."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.words.slo import Slo
from tests.analysis.builders import calls_of, requests
from tests.analysis.diagnosis.rules.cases import causes, of, run, the

N = 400
LATE = np.arange(N) >= 200
TTFT = Slo(ttft_ms=1_500.0)


def answers(held: np.ndarray, **columns: object) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Prefill 200 ms, decode 4 s; where `held`, the client sees its first token at the very end."""
    late = np.where(held, 4_000.0, 0.0)
    frame = requests(
        N,
        prefill_ms=200.0,
        decode_ms=4_000.0,
        ttft_prefill_ms=200.0,
        ttft_decode_ms=late,
        output_tokens=200,
        tpot_ms=20.0,
        ttft_ms=200.0 + late,
        **columns,
    )
    return frame, calls_of(frame, ttft_client_ms=200.0 + late, ttft_engine_ms=200.0)


def test_fires_on_a_stream_that_is_held_back() -> None:
    frame, calls = answers(LATE)
    found = run(frame, calls=[calls], slo=TTFT)
    finding = the(found, "not_streaming")
    assert (found.verdict.cause, causes(found)) == ("not_streaming", ["not_streaming"])
    assert (finding.evidence["held_ratio_slow"], finding.evidence["held_ratio_before"]) == (
        1.0,
        0.0,
    )
    assert (
        finding.evidence["first_token_client_ms"],
        finding.evidence["first_token_engine_ms"],
    ) == (4_200.0, 200.0)
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    assert finding.fix.predicted.after == pytest.approx(200.0)


def test_silent_when_hidden_thought_comes_first() -> None:
    frame, calls = answers(LATE, reasoning_tokens=np.where(LATE, 190, 0))
    found = run(frame, calls=[calls], slo=TTFT)
    assert of(found, "not_streaming") is None


def test_silent_when_first_tokens_were_as_late_before() -> None:
    frame, calls = answers(np.ones(N, dtype=bool))
    slower = frame.with_columns(
        ttft_prefill_ns=pl.when(pl.Series(LATE)).then(9_000_000_000).otherwise(200_000_000)
    )
    slower = slower.with_columns(ttft_ns=pl.col("ttft_prefill_ns") + pl.col("ttft_decode_ns"))
    assert of(run(slower, calls=[calls], slo=Slo(ttft_ms=5_000.0)), "not_streaming") is None


def test_silent_when_calls_wait_before_the_engine_has_them() -> None:
    waited = np.where(LATE, 6_000.0, 0.0)
    frame = requests(
        N,
        network_ms=waited,
        prefill_ms=200.0,
        decode_ms=4_000.0,
        ttft_network_ms=waited,
        ttft_prefill_ms=200.0,
        output_tokens=200,
        tpot_ms=20.0,
        ttft_ms=200.0 + waited,
    )
    found = run(
        frame,
        calls=[calls_of(frame, ttft_client_ms=200.0 + waited, ttft_engine_ms=200.0)],
        slo=TTFT,
    )
    assert of(found, "not_streaming") is None
    assert found.verdict.stage == "network"


def test_without_an_engine_the_rest_tells_a_held_stream_from_a_late_one() -> None:
    for held in (True, False):
        first = np.where(LATE, 50_000.0, 500.0)
        rest = np.where(LATE & held, 1.0, 4_000.0)
        frame = requests(
            N,
            first_token_ms=first,
            generation_ms=rest,
            ttft_first_token_ms=first,
            output_tokens=200,
            tpot_ms=rest / 199.0,
            ttft_ms=first,
        )
        calls = calls_of(
            frame, ttft_client_ms=first, ttft_engine_ms=None, prefill_ms=None, decode_ms=None
        )
        finding = of(run(frame, calls=[calls], slo=TTFT), "not_streaming")
        assert (finding is not None) == held


def test_uncounted_answers_are_as_long_as_they_take_to_write() -> None:
    for held in (True, False):
        first = np.where(LATE, 4_500.0, 500.0)
        rest = np.where(LATE & held, 1.0, 4_000.0)
        frame = requests(
            N,
            first_token_ms=first,
            generation_ms=rest,
            ttft_first_token_ms=first,
            output_tokens=None,
            ttft_ms=first,
        )
        calls = calls_of(
            frame, ttft_client_ms=first, ttft_engine_ms=None, prefill_ms=None, decode_ms=None
        )
        assert (of(run(frame, calls=[calls], slo=TTFT), "not_streaming") is not None) == held
    frame, calls = answers(LATE, reasoning_tokens=None)
    counted = [side.with_columns(output_tokens=pl.lit(None, pl.Int64)) for side in (frame, calls)]
    assert of(run(counted[0], calls=[counted[1]], slo=TTFT), "not_streaming") is not None


def test_quick_checks_that_do_not_stream_are_no_part_of_what_could() -> None:
    """Two checks a request, of 5 tokens each and without a first token: of the calls that could be held all were."""
    frame, calls = answers(LATE)
    checks = [
        calls_of(
            frame,
            model="guard",
            duration_ms=90.0,
            output_tokens=5,
            ttft_ns=None,
            engine_instance=None,
            queue_ns=None,
            prefill_ns=None,
            decode_ns=None,
        ).with_columns(span_id=pl.col("span_id") + k * 10_000)
        for k in (1, 2)
    ]
    finding = the(
        run(frame, calls=[pl.concat([calls, *checks], how="diagonal_relaxed")], slo=TTFT),
        "not_streaming",
    )
    assert (finding.evidence["held_ratio_slow"], finding.evidence["held_ratio_before"]) == (
        1.0,
        0.0,
    )
    assert finding.evidence["share_of_excess"] == pytest.approx(1.0)
