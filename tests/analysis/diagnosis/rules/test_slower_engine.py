"""slower_engine: fires when tokens take longer at the same load, silent when load, clocks or one replica explain it, or nothing is known of before."""

import numpy as np
import pytest

from overrun.analysis.words.slo import Slo
from tests.analysis.diagnosis.rules.cases import causes, of, run, the
from tests.analysis.diagnosis.rules.engine_world import LATE, N, engine

TIGHT = Slo(e2e_ms=1_400.0)
SLOWER = np.where(LATE, 18.0, 10.0)


def test_fires_when_tokens_take_nearly_twice_as_long_in_equal_batches() -> None:
    found = run(engine(token_ms=SLOWER), slo=TIGHT)
    finding = the(found, "slower_engine")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "decode",
        "slower_engine",
        ["slower_engine"],
    )
    assert finding.evidence["pace_at_equal_load"] == pytest.approx(1.8)
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    assert finding.fix.predicted.after < finding.fix.predicted.before


def test_lower_clocks_come_first() -> None:
    clocks = {float(t): 1.98e9 if t < N / 2 else 1.1e9 for t in range(0, N, 15)}
    found = run(engine(token_ms=SLOWER), slo=TIGHT, gauges={"gpu_clock": clocks})
    assert found.verdict.cause == "gpu_throttled"
    assert "slower_engine" not in causes(found)


def test_silent_at_the_former_pace() -> None:
    found = run(engine(token_ms=10.0), slo=Slo(e2e_ms=900.0))
    assert of(found, "slower_engine") is None


def test_nothing_is_said_without_a_baseline() -> None:
    found = run(engine(token_ms=40.0), slo=TIGHT, baseline="none")
    assert of(found, "slower_engine") is None
