"""huge_context: fires on rare enormous prompts beside which others are slow, silent when they always came or nobody overlaps."""

import numpy as np
import polars as pl
import pytest

from tests.analysis.builders import requests
from tests.analysis.rules.cases import E2E, causes, of, run, the

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
    return requests(N, start_s=np.arange(N) * 0.5, queue_ms=wait, prefill_ms=n_in * 0.1, decode_ms=300.0, input_tokens=n_in)


def test_fires_on_prompts_that_hold_others_up() -> None:
    found = run(traffic(BEHIND), slo=E2E)
    finding = the(found, "huge_context")
    assert (found.verdict.cause, causes(found)) == ("huge_context", ["huge_context"])
    assert (finding.evidence["huge_calls"], finding.evidence["new_tokens_huge"]) == (20, 50_000.0)
    assert finding.evidence["read_ms"] == pytest.approx(5_000.0)
    # Of the slow ones one in seven is a huge prompt itself; the others wait while it is read, more than their neighbours meet one by chance.
    assert 0.6 < finding.evidence["overlap_ratio"] < 0.9


def test_silent_when_others_are_slow_at_other_times() -> None:
    elsewhere = LATE & (PLACE > 20) & (PLACE <= 29)
    found = run(traffic(elsewhere, tokens=9_000), slo=E2E)
    assert found.verdict.stage == "queue"
    assert of(found, "huge_context") is None
