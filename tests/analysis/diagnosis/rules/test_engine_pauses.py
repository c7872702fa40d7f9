"""engine_pauses: fires when one clock stops all answers, with its period; silent when each stops for itself."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.words.slo import Slo
from tests.analysis.diagnosis.rules.cases import of, run, the
from tests.analysis.diagnosis.rules.hosted import LATE, N, hosted

TOKENS = np.random.default_rng(8).integers(60, 240, N)
PACE_MS, LENGTH_MS, EVERY_MS = 10.0, 200.0, 1_300.0
FIRST_MS = 400.0
STARTS_MS = np.arange(N) * 500.0


def stopped(ticks: np.ndarray) -> pl.DataFrame:
    """Answers of which each late one is stopped so many times."""
    writing = PACE_MS * (TOKENS - 1.0) + LENGTH_MS * ticks
    frame = hosted(FIRST_MS, writing / 99.0)
    return frame.with_columns(
        tpot_ns=pl.Series((1e6 * writing / (TOKENS - 1.0)).astype(np.int64)),
        itl_max_ns=pl.Series(
            (1e6 * np.where(ticks > 0, PACE_MS + LENGTH_MS, PACE_MS + 1.0)).astype(np.int64)
        ),
        output_tokens=pl.Series(TOKENS),
    )


def by_one_clock(frame_first_ms: np.ndarray) -> np.ndarray:
    ticks = np.zeros(N, np.int64)
    for i in np.flatnonzero(LATE):
        begin, writing = STARTS_MS[i] + frame_first_ms[i], PACE_MS * (TOKENS[i] - 1.0)
        end = begin + writing
        tick = (begin // EVERY_MS + 1.0) * EVERY_MS
        while tick <= end:
            ticks[i] += 1
            end += LENGTH_MS
            tick += EVERY_MS
    return ticks


def first_ms() -> np.ndarray:
    return hosted(FIRST_MS)["ttft_first_token_ns"].to_numpy() / 1e6


def test_fires_on_one_clock_with_its_period_and_length() -> None:
    found = run(stopped(by_one_clock(first_ms())), slo=Slo(tpot_ms=10.8))
    evidence = the(found, "engine_pauses").evidence
    assert (found.verdict.stage, found.verdict.cause) == ("decode", "engine_pauses")
    assert evidence["every_s"] == pytest.approx(EVERY_MS / 1e3, rel=0.01)
    assert evidence["length_ms"] == pytest.approx(LENGTH_MS)
    assert evidence["together"][0] > 0.9 > evidence["by_chance"]
    assert "TPOT" in found.verdict.sentence
    fix = the(found, "engine_pauses").fix
    assert fix is not None
    assert fix.predicted is not None
    assert fix.predicted.before < 20.0
    assert fix.predicted.after < fix.predicted.before


def test_silent_when_each_stream_stops_for_itself() -> None:
    ticks = np.where(LATE, np.random.default_rng(9).poisson(1.2, N), 0)
    assert of(run(stopped(ticks), slo=Slo(tpot_ms=10.8)), "engine_pauses") is None


def test_silent_when_streams_do_not_stop() -> None:
    frame = hosted(FIRST_MS, np.where(LATE, 14.0, 10.0), itl_max_ms=20.0)
    assert of(run(frame, slo=Slo(tpot_ms=11.0)), "engine_pauses") is None
