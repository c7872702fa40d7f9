"""huge_context: fires on rare enormous prompts beside which others are slow, silent when they always came or nobody overlaps."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.words.slo import Slo
from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the

# A call every half second; every 40th since the onset has 50,000 tokens, which take 5 s to read, and the next ten wait for it.
N = 1600
LATE = np.arange(N) >= 800
PLACE = np.arange(N) % 40
HUGE = LATE & (PLACE == 0)
BEHIND = LATE & (PLACE > 0) & (PLACE <= 9)


def traffic(waits: np.ndarray, tokens: int = 50_000) -> pl.DataFrame:
    wait = np.where(waits, 5_000.0 - 500.0 * ((PLACE - 1) % 10), 5.0)
    rng = np.random.default_rng(3)
    n_in = np.where(HUGE, tokens, rng.integers(900, 1_100, N))
    return requests(
        N,
        start_s=np.arange(N) * 0.5,
        queue_ms=wait,
        prefill_ms=n_in * 0.1,
        decode_ms=300.0,
        input_tokens=n_in,
    )


def test_fires_on_prompts_that_hold_others_up() -> None:
    found = run(traffic(BEHIND), slo=E2E)
    finding = the(found, "huge_context")
    assert (found.verdict.cause, causes(found)) == ("huge_context", ["huge_context"])
    assert (finding.evidence["huge_calls"], finding.evidence["new_tokens_huge"]) == (20, 50_000.0)
    assert finding.evidence["read_ms"] == pytest.approx(5_000.0)
    # Of the slow ones one in seven is a huge prompt itself; the others wait while it is read, more than their neighbours meet one by chance.
    assert 0.6 < finding.evidence["overlap_ratio"] < 0.9


def test_of_a_sample_few_of_the_huge_ones_are_known() -> None:
    """One huge prompt in four is stored: a quarter of the waits fall beside one that is known."""
    rows = traffic(BEHIND).filter(pl.Series(~HUGE | (np.arange(N) // 40 % 4 == 0)))
    assert of(run(rows, slo=E2E), "huge_context") is None
    assert the(run(rows, slo=E2E, coverage=0.25), "huge_context").evidence["overlap_ratio"] > 0.6
    one = traffic(BEHIND).filter(pl.Series(~HUGE | (np.arange(N) // 40 % 20 == 0)))
    assert of(run(one, slo=E2E, coverage=0.05), "huge_context") is None


def test_silent_when_others_are_slow_at_other_times() -> None:
    elsewhere = LATE & (PLACE > 20) & (PLACE <= 29)
    found = run(traffic(elsewhere, tokens=9_000), slo=E2E)
    assert found.verdict.stage == "queue"
    assert of(found, "huge_context") is None


def seen_by_a_client(tokens: int) -> pl.DataFrame:
    """No engine reports: three of four seconds a huge prompt is being read somewhere, and every fourth call since the onset waits for its first token."""
    n_in = np.where(HUGE, tokens, np.random.default_rng(3).integers(900, 1_100, N))
    first = (
        n_in * 0.1
        + np.where(HUGE, 10_000.0, 0.0)
        + np.where(LATE & ~HUGE & (PLACE % 4 == 1), 4_000.0, 0.0)
    )
    return requests(
        N,
        start_s=np.arange(N) * 0.5,
        first_token_ms=first,
        ttft_first_token_ms=first,
        decode_ms=1_000.0,
        tpot_ms=10.0,
        input_tokens=n_in,
    )


def test_a_client_blames_no_prompt_that_is_read_in_no_time() -> None:
    """7,000 tokens at 0.1 ms each are no reason for a wait of seconds, though they wait themselves."""
    assert of(run(seen_by_a_client(7_000), slo=E2E), "huge_context") is None


def test_the_longest_prompts_of_a_window_in_which_all_grew_are_no_huge_ones() -> None:
    """Prompts of all lengths became four times as long: the longest hundredth is far over anything before, and like its own time's others."""
    rng = np.random.default_rng(4)
    tail = np.exp(0.9 * rng.standard_normal(N))
    n_in = np.round(np.where(LATE, 4.0, 1.0) * 800.0 * tail)
    rows = requests(
        N,
        start_s=np.arange(N) * 0.5,
        queue_ms=5.0,
        prefill_ms=n_in * 0.1 * np.where(LATE, 2.0, 1.0),
        decode_ms=300.0,
        input_tokens=n_in,
    )
    found = run(rows, slo=Slo(e2e_ms=900.0))
    assert (found.verdict.cause, causes(found)) == ("prompt_bloat", ["prompt_bloat"])
    assert of(found, "huge_context") is None


def test_the_stalls_that_huge_prompts_bring_follow_from_them() -> None:
    """Nobody waits for a huge prompt, but the answers of 3 s beside it stand still until it is read: the stall explains a little more than the prompt."""
    n_in = np.where(HUGE, 50_000, np.random.default_rng(3).integers(900, 1_100, N))
    stands = np.where(
        BEHIND, 5_000.0 - 500.0 * ((PLACE - 1) % 10), np.where(LATE & (PLACE >= 35), 5_000.0, 0.0)
    )
    answer = 3_000.0 + stands
    frame = requests(
        N,
        start_s=np.arange(N) * 0.5,
        queue_ms=5.0,
        prefill_ms=n_in * 0.1,
        decode_ms=answer,
        input_tokens=n_in,
        tpot_ms=answer / 99.0,
    )
    found = run(frame, slo=Slo(e2e_ms=4_500.0))
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "decode",
        "huge_context",
        ["huge_context"],
    )
    assert any(
        out.what == "decode_stall" and "is a consequence of huge_context" in out.figure
        for out in found.verdict.ruled_out
    )


@pytest.mark.parametrize("whole", [True, False])
def test_where_every_prompt_came_to_be_read_in_one_piece_the_huge_ones_hold_others_up_for_that(
    whole: bool,
) -> None:
    """Rounds of three calls: an answer, half a second later a prompt that is read for a second, 300 ms after that somebody else. Of the later prompts one in
    eight is huge and read for four. Since then who comes waits all of it out, or (not `whole`) behind the huge ones alone."""
    rounds, who = np.repeat(np.arange(300), 3), np.tile(np.arange(3), 300)
    late, huge = rounds >= 150, (rounds >= 150) & (rounds % 8 == 0)
    read = np.where(huge, 4_000.0, 1_000.0)
    waits = np.where(late & (whole | huge), read - 299.0, 30.0)
    queue, prefill = (
        np.where(who == 2, waits, 1.0),
        np.where(who == 1, read, np.where(who == 2, 400.0, 20.0)),
    )
    decode = np.where(who == 0, 990.0 + np.where(late & (whole | huge), read, 200.0), 90.0)
    out = np.where(who == 0, 100, 10)
    rows = requests(
        900,
        start_s=rounds * 8.0 + np.array([0.0, 0.5, 0.8])[who],
        queue_ms=queue,
        prefill_ms=prefill,
        decode_ms=decode,
        ttft_queue_ms=queue,
        ttft_prefill_ms=prefill,
        input_tokens=np.where(who == 1, np.where(huge, 40_000, 4_000), 200),
        output_tokens=out,
        tpot_ms=decode / (out - 1),
    )
    found = run(rows, slo=Slo(ttft_ms=2_000.0))
    assert found.verdict.cause == ("decode_stall" if whole else "huge_context")
