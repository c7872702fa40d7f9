"""small_chunks: fires when prompts of the same size take more steps, silent when the engine is slower altogether, busier, or reads as before."""

import numpy as np
import pytest

from overrun.analysis.words.slo import Slo
from tests.analysis.diagnosis.rules.cases import causes, of, run, the
from tests.analysis.diagnosis.rules.engine_world import LATE, N, engine

LONG = (np.arange(N) // 2) % 2 == 0
TIGHT = Slo(e2e_ms=400.0)
# Prompts of 200 tokens fit into one step before and now, those of 4,000 take many more.
SMALL = np.where(LATE & LONG, 0.2, 0.05)


def test_fires_when_long_prompts_take_four_times_as_long_to_read() -> None:
    found = run(engine(read_ms=SMALL, token_ms=2.0), slo=TIGHT)
    finding = the(found, "small_chunks")
    assert (found.verdict.stage, found.verdict.cause) == ("prefill", "small_chunks")
    assert causes(found) == ["small_chunks"]
    assert finding.evidence["by_size"]
    assert finding.evidence["quick"] == pytest.approx(finding.evidence["ratio"])
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    assert finding.fix.predicted.after < finding.fix.predicted.before


def test_what_all_prompts_lose_alike_may_be_another_build() -> None:
    found = run(engine(read_ms=np.where(LATE, 0.2, 0.05), token_ms=2.0), slo=TIGHT)
    assert (found.verdict.cause, found.verdict.cause_status) == ("small_chunks", "not_known")
    assert "another build or kernel" in found.verdict.sentence


def test_silent_when_answers_are_slower_as_well() -> None:
    slower = engine(read_ms=SMALL, token_ms=np.where(LATE, 4.0, 2.0))
    assert "small_chunks" not in causes(run(slower, slo=TIGHT))


def test_silent_when_the_quickest_are_read_as_before() -> None:
    some = np.where(np.arange(N) % 8 == 1, SMALL, 0.05)
    assert "small_chunks" not in causes(run(engine(read_ms=some, token_ms=2.0), slo=TIGHT))


def test_nothing_is_said_without_a_baseline() -> None:
    assert (
        of(run(engine(read_ms=0.2, token_ms=2.0), slo=TIGHT, baseline="none"), "small_chunks")
        is None
    )
