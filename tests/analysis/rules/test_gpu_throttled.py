"""gpu_throttled: fires when clocks fall and tokens slow down, silent when either stays."""

import numpy as np
import pytest

from tests.analysis.rules.cases import E2E, causes, of, run, the
from tests.analysis.rules.engine_world import LATE, N, engine

SLOWER = np.where(LATE, 40.0, 10.0)


def clocks(before: float, now: float) -> dict[str, dict[float, float]]:
    return {"gpu_clock": {float(t): before if t < N / 2 else now for t in range(0, N, 15)}}


def test_fires_when_clocks_fall_and_tokens_slow_down() -> None:
    found = run(engine(token_ms=SLOWER), slo=E2E, gauges=clocks(1.98e9, 0.99e9))
    finding = the(found, "gpu_throttled")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == ("decode", "gpu_throttled", ["gpu_throttled"])
    assert finding.evidence["clock_fall"] == pytest.approx(0.5)


def test_silent_when_clocks_stayed() -> None:
    found = run(engine(token_ms=SLOWER), slo=E2E, gauges=clocks(1.98e9, 1.98e9))
    assert of(found, "gpu_throttled") is None
    assert any(out.what == "gpu_throttled" for out in found.verdict.ruled_out)


def test_an_xid_error_counts_without_clocks() -> None:
    gauges = {"gpu_xid": {float(t): 0.0 if t < N / 2 else 79.0 for t in range(0, N, 15)}}
    assert the(run(engine(token_ms=SLOWER), slo=E2E, gauges=gauges), "gpu_throttled").evidence["xid_errors"] is True


def test_silent_without_gpu_metrics() -> None:
    assert of(run(engine(token_ms=SLOWER), slo=E2E), "gpu_throttled") is None
