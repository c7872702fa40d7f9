"""engine_stops: an engine that stands still is found without times of tokens; a queue in front of it, and a long prompt, are none."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.words.slo import Slo
from tests.analysis.builders import calls_of, requests
from tests.analysis.diagnosis.rules.cases import of, run, the

N, CALM, EVERY_S = 1_000, 500, 11.0
TTFT = Slo(ttft_ms=400.0)
START = np.cumsum(np.random.default_rng(3).exponential(0.4, N))
TOKENS = np.random.default_rng(4).integers(20, 80, N)
FAULT_S = float(START[CALM])


def worked(
    begin_s: np.ndarray,
    work_s: np.ndarray,
    pause_s: float,
    stops_s: np.ndarray | None = None,
) -> np.ndarray:
    """When work that begins then is done, where the engine stands still for `pause_s` at these moments, or after each 11 s of the second half."""
    at = begin_s.copy()
    left = work_s.copy()
    every = np.arange(FAULT_S, START[-1] + 60.0, EVERY_S)
    for stop in every if stops_s is None else stops_s:
        inside = (at >= stop) & (at < stop + pause_s)
        at = np.where(inside, stop + pause_s, at)
        crosses = (at < stop) & (at + left > stop)
        left = np.where(crosses, left - (stop - at), left)
        at = np.where(crosses, stop + pause_s, at)
    done: np.ndarray = at + left
    return done


def rows_of(
    wait_s: np.ndarray,
    prefill_s: np.ndarray,
    decode_s: np.ndarray,
    input_tokens: np.ndarray | int = 800,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    first = 1e3 * (wait_s + prefill_s)
    rows = requests(
        N,
        start_s=START,
        network_ms=1e3 * wait_s,
        prefill_ms=1e3 * prefill_s,
        decode_ms=1e3 * decode_s,
        ttft_network_ms=1e3 * wait_s,
        ttft_prefill_ms=1e3 * prefill_s,
        output_tokens=TOKENS,
        input_tokens=input_tokens,
    )
    return rows, calls_of(rows, ttft_ms=first, output_tokens=TOKENS)


def paused(pause_s: float) -> tuple[np.ndarray, np.ndarray]:
    first = worked(START, np.full(N, 0.05), pause_s)
    return first - START, worked(first, 0.02 * (TOKENS - 1.0), pause_s) - first


@pytest.mark.parametrize("pause_s", [1.6, 0.9, 0.0])
def test_calls_that_wait_together_while_answers_stand_still_are_stops(pause_s: float) -> None:
    first, decode = paused(pause_s)
    rows, calls = rows_of(first - 0.05, np.full(N, 0.05), decode)
    found = run(rows, slo=TTFT, calls=[calls])
    assert (found.verdict.cause == "engine_pauses") == (pause_s > 0.0)
    if pause_s:
        assert found.verdict.stage == "decode"
        evidence = the(found, "engine_pauses").evidence
        assert 600.0 * pause_s < evidence["length_ms"] < 1_000.0 * pause_s
        assert evidence["lost_else"] < 0.1
        assert of(found, "gateway_queue") is None


def test_a_front_end_that_takes_one_after_the_other_is_no_stop() -> None:
    free, wait = 0.0, np.zeros(N)
    for i in range(N):
        took = 0.001 if i < CALM else 0.3
        wait[i] = max(0.0, free - START[i])
        free = START[i] + wait[i] + took
    _, decode = paused(0.0)
    rows, calls = rows_of(wait, np.full(N, 0.05), decode)
    found = run(rows, slo=TTFT, calls=[calls])
    assert of(found, "engine_pauses") is None


def test_a_prompt_that_is_read_for_as_long_is_no_stop() -> None:
    first, decode = paused(1.6)
    rows, calls = rows_of(np.zeros(N), first, decode)
    found = run(rows, slo=TTFT, calls=[calls])
    assert of(found, "engine_pauses") is None


def test_prompts_that_became_long_stop_the_others_and_are_no_stops_of_the_engine() -> None:
    """One prompt in nine has 2,300 tokens more, which are read in one step: beside it calls wait, and answers lose as much."""
    long = (np.random.default_rng(5).random(N) < 0.11) & (np.arange(N) >= CALM)
    step_s = 0.24
    alone = np.full(N, 0.05)
    first = np.where(long, START + 0.05 + step_s, worked(START, alone, step_s, START[long] + 1e-6))
    decode = worked(first, 0.02 * (TOKENS - 1.0), step_s, START[long]) - first
    prefill = np.where(long, 0.05 + step_s, 0.05)
    rows, calls = rows_of(
        np.maximum(first - START - prefill, 0.0), prefill, decode, np.where(long, 3_100, 800)
    )
    found = run(rows, slo=Slo(ttft_ms=200.0), calls=[calls])
    assert of(found, "engine_pauses") is None
    assert found.verdict.stage == "prefill"
