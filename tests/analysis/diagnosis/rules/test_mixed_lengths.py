"""mixed_lengths: fires when short answers run beside more long ones and slow down with them, silent when they do not."""

import numpy as np
import polars as pl

from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import E2E, of, run, the

# Every 2 s a short answer, and beside it another call: long in one of twelve before and in half of them since the onset.
N = 1200
LATE = np.arange(N) >= 600
SHORT = np.arange(N) % 2 == 0
PAIR = np.arange(N) // 2
LONG = ~SHORT & np.where(LATE, PAIR % 2 == 0, PAIR % 12 == 0)


def pairs(slows_down: bool) -> pl.DataFrame:
    beside = np.r_[LONG[1:], False]
    slow = beside if slows_down else np.where(LATE, 6, 1) > (PAIR * 7) % 12
    tokens = np.where(SHORT, 50, np.where(LONG, 400, 60))
    pace = np.where(SHORT & slow & LATE, 70.0, 12.0)
    spent = np.where(LONG, 2_300.0, pace * (tokens - 1))
    return requests(
        N,
        start_s=PAIR * 5.0 + np.where(SHORT, 0.2, 0.0),
        queue_ms=1.0,
        prefill_ms=50.0,
        decode_ms=spent,
        output_tokens=tokens,
        tpot_ms=pace,
    )


def test_fires_when_short_answers_slow_down_beside_long_ones() -> None:
    finding = the(run(pairs(True), slo=E2E), "mixed_lengths")
    assert finding.evidence["token_ms_per_long"] > 10.0
    assert finding.evidence["long_share_now"] - finding.evidence["long_share_before"] > 0.1


def test_silent_when_they_slow_down_at_other_times() -> None:
    found = run(pairs(False), slo=E2E)
    assert found.verdict.status == "over_budget"
    assert of(found, "mixed_lengths") is None
