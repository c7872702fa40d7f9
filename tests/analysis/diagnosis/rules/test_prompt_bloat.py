"""prompt_bloat: fires with exact numbers, is silent on the twin, and says when data are few."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.diagnosis.rules.prompt_bloat import turn_growth
from overrun.analysis.evidence.calls import Calls
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import calls_of, requests
from tests.analysis.diagnosis.rules.cases import causes, of, run, the
from tests.analysis.diagnosis.rules.hosted import hosted

N = 600
LATE = np.arange(N) >= 300
TTFT = Slo(ttft_ms=1500.0)


def prompts(
    n_in: np.ndarray, token_ms: np.ndarray | float = 0.2, stage: str = "prefill"
) -> pl.DataFrame:
    spent = 100.0 + n_in * token_ms
    return requests(
        N,
        **{f"{stage}_ms": spent, f"ttft_{stage}_ms": spent},
        decode_ms=500.0,
        input_tokens=n_in.astype(int),
    )


@pytest.mark.parametrize("stage", ["prefill", "first_token"])
def test_fires_on_longer_prompts_with_exact_numbers(stage: str) -> None:
    n_in = np.where(LATE, 9_000.0, 1_000.0)
    found = run(prompts(n_in, stage=stage), slo=TTFT)
    finding = the(found, "prompt_bloat")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        stage,
        "prompt_bloat",
        ["prompt_bloat"],
    )
    # 8,000 tokens more at 0.2 ms: 1.6 s.
    assert (finding.evidence["input_tokens_slow"], finding.evidence["input_tokens_reference"]) == (
        9_000.0,
        1_000.0,
    )
    assert finding.evidence["prefill_ms_per_new_token"] == pytest.approx(0.2)
    assert finding.evidence["input_ms"] == pytest.approx(1_600.0)
    assert finding.evidence["cliffs_delta"] == 1.0
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    assert finding.fix.predicted.after == pytest.approx(300.0)
    assert finding.fix.predicted.cost == {"trimmed_ratio": 0.5}


def test_a_prompt_that_is_asked_again_is_no_longer_one() -> None:
    rows = prompts(np.where(LATE, 9_000.0, 3_000.0))
    once = calls_of(rows, input_tokens=np.full(N, 3_000))
    again = [
        once.filter(pl.Series(LATE)).with_columns(span_id=pl.col("span_id") + 10_000 * k)
        for k in (1, 2)
    ]
    found = run(rows, calls=[pl.concat([once, *again])], slo=TTFT)
    assert found.verdict.stage == "prefill"
    assert of(found, "prompt_bloat") is None


def test_silent_when_the_same_prompts_are_read_more_slowly() -> None:
    found = run(prompts(np.full(N, 1_000.0), np.where(LATE, 1.8, 0.2)), slo=TTFT)
    assert found.verdict.stage == "prefill"
    assert of(found, "prompt_bloat") is None


def test_missing_token_counts_are_said() -> None:
    rows = prompts(np.where(LATE, 9_000.0, 1_000.0)).with_columns(
        input_tokens=pl.lit(None, pl.Int64)
    )
    assert "gen_ai.usage.input_tokens" in run(rows, slo=TTFT).skipped["prompt_bloat"]


def test_growth_per_turn_is_the_slope_of_the_logarithm() -> None:
    turn = np.tile(np.arange(1, 6), 20)
    frame = pl.DataFrame({"turn": turn, "input_tokens": 1000.0 * 1.5**turn})
    assert turn_growth(Calls(frame)) == pytest.approx(0.5)
    assert turn_growth(Calls(frame.head(20))) is None


@pytest.mark.parametrize(
    ("longer", "named"), [(1.5, ["under_capacity", "prompt_bloat"]), (1.1, ["under_capacity"])]
)
def test_longer_prompts_of_everybody_count_beside_the_load_from_a_tenth_on(
    longer: float, named: list[str]
) -> None:
    late = np.arange(800) >= 400
    n_in = np.where(np.arange(800) % 2 == 0, 800, 1_200) * np.where(late, longer, 1.0)
    decode = np.where(late, 2_400.0, 1_200.0)
    # 1.5 times as many requests; 500 tokens more at 0.2 ms beside answers of 1.2 s: ln 1.07 of ln 1.5 + ln 1.07 is a seventh of the growth.
    rows = requests(
        800,
        start_s=np.cumsum(np.where(late, 1.0 / 1.5, 1.0)),
        queue_ms=np.where(late, 600.0, 0.0),
        prefill_ms=0.2 * n_in,
        decode_ms=decode,
        tpot_ms=decode / 100.0,
        output_tokens=101,
        input_tokens=n_in.astype(np.int64),
    )
    assert causes(run(rows, slo=Slo(e2e_ms=2500.0))) == named


@pytest.mark.parametrize(
    ("longer", "named"), [(1.15, ["under_capacity", "prompt_bloat"]), (1.05, ["under_capacity"])]
)
def test_prompts_of_everybody_count_from_a_tenth_more_though_the_slow_ones_are_few_and_differ_by_less_than_a_fifth(
    longer: float, named: list[str]
) -> None:
    late = np.arange(800) >= 400
    n_in = np.where(np.arange(800) % 2 == 0, 4_000, 6_000) * np.where(late, longer, 1.0)
    decode = np.where(late, 2_400.0, 1_200.0)
    rows = requests(
        800,
        start_s=np.cumsum(np.where(late, 1.0 / 1.5, 1.0)),
        queue_ms=np.where(late, 600.0, 0.0),
        prefill_ms=0.2 * n_in,
        decode_ms=decode,
        tpot_ms=decode / 100.0,
        output_tokens=101,
        input_tokens=n_in.astype(np.int64),
    )
    assert causes(run(rows, slo=Slo(e2e_ms=2500.0))) == named


def test_what_longer_prompts_add_to_the_reading_of_others_is_theirs() -> None:
    n_in = np.random.default_rng(2).lognormal(7.0, 0.8, N) * np.where(LATE, 2.0, 1.0)
    # All prompts twice as long, so each is read beside twice as much: 1.5 s more than its own tokens take.
    spent = 0.2 * n_in + np.where(LATE, 1_500.0, 0.0)
    found = run(
        requests(
            N,
            prefill_ms=spent,
            ttft_prefill_ms=spent,
            decode_ms=500.0,
            input_tokens=n_in.astype(int),
        ),
        slo=TTFT,
    )
    assert causes(found) == ["prompt_bloat"]
    evidence = the(found, "prompt_bloat").evidence
    assert (
        evidence["input_ms"] < 0.5 * evidence["share_of_excess"] * evidence["claims_ms"]["prefill"]
    )
    assert evidence["share_of_excess"] > 0.9


def test_prompts_that_are_longer_slow_each_others_reading_though_the_engine_has_no_more_to_do() -> (
    None
):
    """A tenth fewer requests, of 2,400 tokens instead of 1,500: writing is nearly all of the work, so that has shrunk, and what is read has grown by 1.44."""
    n = 1_000
    late = np.arange(n) >= 500
    start = np.r_[np.arange(500) * 0.9, 450.0 + np.arange(500) * 1.0]
    tokens = np.where(late, 2_400, 1_500) + np.random.default_rng(3).integers(0, 100, n)
    read = 100.0 + 0.01 * tokens + np.where(late, 900.0, 0.0)
    rows = requests(
        n,
        start_s=start,
        prefill_ms=read,
        ttft_prefill_ms=read,
        ttft_ms=read,
        decode_ms=990.0,
        input_tokens=tokens,
        output_tokens=100,
        tpot_ms=10.0,
    )
    found = run(rows, slo=Slo(ttft_ms=500.0))
    assert (found.verdict.stage, causes(found)) == ("prefill", ["prompt_bloat"])
    assert the(found, "prompt_bloat").evidence["share_of_excess"] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    ("recorded", "named"), [(True, ["token_rate_sag"]), (False, ["prompt_bloat"])]
)
def test_conversations_that_have_grown_older_make_no_prompt_of_the_same_turn_longer(
    recorded: bool, named: list[str]
) -> None:
    """60 users ask every 10 s, all from the first moment on, in conversations of ten turns that add 300 tokens each; from 80 s on tokens come a third as fast.

    Nobody had come further than the eighth turn by then: prompts have 2,050 tokens on average before and 2,550 behind it. Unrecorded, that is bloat."""
    user, turn = (
        part.T.ravel() for part in np.meshgrid(np.arange(60), np.arange(20), indexing="ij")
    )
    start, n_in = 10.0 * turn + user / 6.0, 1_000 + 300 * (turn % 10)
    talks = [
        f"{who}-{nth // 10}" if recorded else None for who, nth in zip(user, turn, strict=True)
    ]
    rows = hosted(
        100.0 + 0.2 * n_in,
        np.where(start >= 80.0, 30.0, 10.0),
        start_s=start,
        input_tokens=n_in,
        session=talks,
    )
    assert causes(run(rows, slo=Slo(e2e_ms=2500.0))) == named
