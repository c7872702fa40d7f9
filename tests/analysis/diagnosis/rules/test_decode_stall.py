"""decode_stall: fires when prefill of others slows tokens more than before, silent when tokens are slower whatever is read beside them."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.prefill_stalls import Held, held, odds_ratio, unchunked
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the
from tests.analysis.diagnosis.rules.engine_world import LATE, N, engine


def test_fires_when_reading_others_prompts_stalls_answers() -> None:
    # Since the onset each token read beside an answer costs it 0.5 ms: 4,000 of them 2 s.
    found = run(engine(prefill_cost=np.where(LATE, 0.5, 0.0)), slo=E2E)
    finding = the(found, "decode_stall")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "decode",
        "decode_stall",
        ["decode_stall"],
    )
    assert finding.evidence["odds_ratio"] > 20.0
    assert finding.evidence["odds_interval"][0] > 1.5
    assert finding.evidence["prefill_ms"] > finding.evidence["batch_ms"]
    assert "--enable-chunked-prefill" in (finding.fix.detail if finding.fix else "")


def test_silent_when_slow_tokens_come_whatever_is_read() -> None:
    slow = LATE & (np.random.default_rng(1).random(N) < 0.5)
    found = run(engine(token_ms=np.where(slow, 42.0, 10.0)), slo=E2E)
    assert found.verdict.stage == "decode"
    assert of(found, "decode_stall") is None
    assert any(out.what == "decode_stall" for out in found.verdict.ruled_out)


# Rounds of three calls: an answer, 500 ms later a prompt (long in every second round), and 300 ms after that somebody's first token.
ROUNDS = 300
ROUND = np.repeat(np.arange(ROUNDS), 3)
WHO = np.tile(np.arange(3), ROUNDS)
LONG = ROUND % 2 == 0


def rounds(*, read_ms: float, stalls_ms: np.ndarray, waits_ms: np.ndarray) -> pl.DataFrame:
    """A long prompt is read for `read_ms`; meanwhile the answer stalls for `stalls_ms` and who comes waits for `waits_ms` (shape (900,))."""
    start_s = ROUND * 4.0 + np.array([0.0, 0.5, 0.8])[WHO]
    queue = np.where((WHO == 2) & LONG, waits_ms, 1.0)
    prefill = np.where((WHO == 1) & LONG, read_ms, np.where(WHO == 2, 400.0, 20.0))
    decode = np.where(WHO == 0, 990.0 + np.where(LONG, stalls_ms, 0.0), 10.0 * 9)
    n_in, out = np.where((WHO == 1) & LONG, 10_000, 200), np.where(WHO == 0, 100, 10)
    return requests(
        3 * ROUNDS,
        start_s=start_s,
        queue_ms=queue,
        prefill_ms=prefill,
        decode_ms=decode,
        ttft_queue_ms=queue,
        ttft_prefill_ms=prefill,
        input_tokens=n_in,
        output_tokens=out,
        tpot_ms=decode / (out - 1),
    )


def test_names_the_stall_where_first_tokens_wait_for_prompts_in_front() -> None:
    late = ROUND >= ROUNDS // 2
    # The prompt is read for 1 s; who comes 300 ms later waited for a step of 30 ms, and waits for the 699 ms that are left since the onset.
    found = run(
        rounds(
            read_ms=1000.0,
            stalls_ms=np.where(late, 1000.0, 200.0),
            waits_ms=np.where(late, 701.0, 30.0),
        ),
        slo=Slo(ttft_ms=1050.0),
    )
    finding = the(found, "decode_stall")
    assert (found.verdict.stage, found.verdict.cause) == ("queue", "decode_stall")
    assert finding.evidence["waited_out_ratio"] == 1.0
    assert "arrive meanwhile wait" in found.verdict.sentence


def test_silent_where_first_tokens_wait_as_they_always_did() -> None:
    # Everything waits 700 ms behind a long prompt before and after; since the onset all wait 700 ms more, whatever is read.
    late = ROUND >= ROUNDS // 2
    found = run(
        rounds(
            read_ms=1000.0,
            stalls_ms=np.full(3 * ROUNDS, 200.0),
            waits_ms=np.where(late, 1400.0, 500.0),
        ),
        slo=Slo(ttft_ms=1500.0),
    )
    assert of(found, "decode_stall") is None


def test_who_waits_a_reading_out() -> None:
    # A prompt is read from 0 to 1 s. Two come at 0.2 s (0.8 s are left): one is taken up at 1 s, one after 40 ms; the last comes as 10 ms are left.
    frame = pl.DataFrame(
        {
            "engine_instance": ["a"] * 4,
            "start_s": [0.0, 0.2, 0.2, 0.99],
            "queue_ms": [0.0, 800.0, 40.0, 10.0],
            "prefill_ms": [1000.0, 20.0, 20.0, 20.0],
            "decode_ms": [100.0] * 4,
            "ttft_ms": [1000.0, 820.0, 60.0, 30.0],
        }
    )
    found = held(Calls(frame), usual_ms=10.0)
    assert found.ms.tolist() == pytest.approx([0.0, 800.0, 40.0, 10.0])
    assert (found.share, found.n) == (0.5, 2)
    assert (
        held(
            Calls(frame.with_columns(engine_instance=pl.Series(["a", "b", "c", "d"]))),
            usual_ms=10.0,
        ).n
        == 0
    )


def test_prompts_are_read_in_one_piece_where_nearly_all_wait_them_out_and_few_did() -> None:
    def of_share(share: float, n: int = 50) -> Held:
        return Held(np.zeros(n), share, n)

    assert unchunked(of_share(0.1), of_share(0.95)) is True
    assert unchunked(of_share(0.9), of_share(0.95)) is False
    assert unchunked(of_share(0.1), of_share(0.6)) is False
    assert unchunked(None, of_share(0.95)) is True
    assert unchunked(of_share(0.1), of_share(0.95, 10)) is None
    assert unchunked(of_share(0.1, 10), of_share(0.95)) is None


def served(
    growth: float, *, chunk: int = 250, n: int = 3_600, calm: int = 1_800, long: float = 0.125
) -> pl.DataFrame:
    """Calls on an engine whose step takes 8 ms and 0.5 ms for every running call, or 0.04 ms for every token read if that is more. Answers have 60 tokens,
    prompts 200 or (the share `long` of them) 8,000. It reads `chunk` tokens a step for the first `calm` calls, which come five a second, and then all
    prompts that wait in one piece, of calls that come `growth` times as often."""
    rng, late = np.random.default_rng(5), np.arange(n) >= calm
    came = np.cumsum(rng.exponential(200.0, n) / np.where(late, growth, 1.0))
    n_in = np.where(rng.random(n) < long, 8_000, 200)
    taken, first, ended, unread, unwritten = (
        np.zeros(n),
        np.zeros(n),
        np.zeros(n),
        n_in.copy(),
        np.full(n, 59),
    )
    now, coming, reading, writing = 0.0, 0, [], []
    while coming < n or reading or writing:
        now = now if reading or writing else max(now, came[coming])
        while coming < n and came[coming] <= now:
            taken[coming] = now
            reading, coming = [*reading, coming], coming + 1
        left = chunk if coming <= calm else int(n_in.sum())
        read = left
        for one in reading:
            unread[one], left = max(0, unread[one] - left), max(0, left - unread[one])
        now += max(8.0 + 0.5 * (len(reading) + len(writing)), 0.04 * (read - left))
        unwritten[writing] -= 1
        ended[[one for one in writing if not unwritten[one]]] = now
        done = [one for one in reading if not unread[one]]
        first[done] = now
        reading, writing = (
            [one for one in reading if unread[one]],
            [*(one for one in writing if unwritten[one]), *done],
        )
    queue, prefill, decode = taken - came, first - taken, ended - first
    return requests(
        n,
        start_s=came / 1e3,
        queue_ms=queue,
        prefill_ms=prefill,
        decode_ms=decode,
        ttft_queue_ms=queue,
        ttft_prefill_ms=prefill,
        input_tokens=n_in,
        output_tokens=60,
        tpot_ms=decode / 59.0,
    )


@pytest.mark.parametrize(("growth", "long"), [(1.2, 0.125), (1.3, 0.17)])
def test_batches_that_grow_because_answers_stand_still_are_not_the_load(
    growth: float, long: float
) -> None:
    """With more requests than before, which this engine would hardly feel if it still read in chunks: 8 or 14 calls run at a time instead of 5."""
    found = run(served(growth, long=long), slo=Slo(e2e_ms=2_000.0))
    assert (found.verdict.cause, causes(found)) == ("decode_stall", ["decode_stall"])
    assert any(
        out.what == "under_capacity" and "read in one piece" in out.figure
        for out in found.verdict.ruled_out
    )


def streams(gap_ms: np.ndarray, pace: np.ndarray | float = 10.0) -> pl.DataFrame:
    """Rounds as a client alone sees them: answers of 100 tokens whose longest gap is `gap_ms`, `pace` ms a token otherwise; prompts and others are short."""
    answer = WHO == 0
    gap = np.where(answer, gap_ms, 12.0)
    decode = np.where(answer, 99.0 * np.full(3 * ROUNDS, pace) + gap, 90.0)
    out = np.where(answer, 100, 10)
    return requests(
        3 * ROUNDS,
        start_s=ROUND * 4.0 + np.array([0.0, 0.5, 0.8])[WHO],
        first_token_ms=100.0,
        decode_ms=decode,
        ttft_ms=100.0,
        tpot_ms=decode / (out - 1),
        itl_max_ms=gap,
        input_tokens=np.where((WHO == 1) & LONG, 10_000, 200),
        output_tokens=out,
    )


def test_a_client_names_it_where_streams_stop_for_its_own_prompts() -> None:
    late = ROUND >= ROUNDS // 2
    found = run(streams(np.where(late, np.where(LONG, 2000.0, 400.0), 40.0)), slo=E2E)
    finding = the(found, "decode_stall")
    assert (found.verdict.stage, causes(found)) == ("decode", ["decode_stall"])
    assert finding.evidence["gap_ratio_slow"] > 5.0 > finding.evidence["gap_ratio_usual"]
    assert finding.fix is not None
    assert (
        finding.fix.reasons["predicted"]
        == "the prompts that the engine reads beside an answer are not recorded: trace the engine"
    )


def test_a_stream_that_slows_down_or_stops_by_itself_is_none() -> None:
    late = ROUND >= ROUNDS // 2
    slower = run(streams(np.where(late, 40.0, 12.0), pace=np.where(late, 30.0, 10.0)), slo=E2E)
    assert causes(slower) == ["token_rate_sag"]
    # The same gaps, in every third round: they have nothing to do with the long prompts of every second one.
    stops = run(streams(np.where(late, np.where(ROUND % 3 == 0, 2000.0, 400.0), 40.0)), slo=E2E)
    assert of(stops, "decode_stall") is None


def test_odds_ratio_and_its_interval() -> None:
    # 30 of 40 against 10 of 40: (30.5 x 30.5) / (10.5 x 10.5) = 8.44.
    odds = odds_ratio(np.r_[np.ones(30), np.zeros(10)], np.r_[np.ones(10), np.zeros(30)])
    assert odds.ratio == pytest.approx(8.44, abs=0.01)
    assert odds.low == pytest.approx(
        np.exp(np.log(8.44) - 1.96 * np.sqrt(2 / 30.5 + 2 / 10.5)), rel=0.01
    )
