"""cold_start: fires on new replicas that are slow in their first minute, silent when they stay slow or were there before."""

import numpy as np
import pytest

from analysis.slo import Slo
from tests.analysis.rules.cases import E2E, causes, of, run, the
from tests.analysis.rules.fleet import LATE, N, fleet

# Starts are half a second apart: the onset is at 300 s, and calls 600 to 719 fall into the minute after it.
REPLICA = np.where(LATE & (np.arange(N) % 3 == 0), 9, np.arange(N) % 2)
YOUNG = (REPLICA == 9) & (np.arange(N) < 720)


def test_fires_on_the_first_minute_of_a_new_replica() -> None:
    frame, calls = fleet(REPLICA, token_ms=np.where(YOUNG, 60.0, 10.0))
    found = run(frame, calls=[calls], slo=Slo(e2e_ms=2_500.0, percentile=99.0, goodput_target=0.99))
    finding = the(found, "cold_start")
    assert (found.verdict.cause, causes(found)) == ("cold_start", ["cold_start"])
    assert finding.evidence["new_instances"] == ["gpu-9"]
    assert finding.evidence["young_calls"] == int(YOUNG.sum()) == 40
    assert finding.evidence["ratio"] == pytest.approx(5.5, abs=0.6)


def test_a_replica_that_is_cold_for_minutes_is_no_straggler_beside() -> None:
    slow = (REPLICA == 9) & LATE
    frame, calls = fleet(REPLICA, token_ms=np.where(slow, 60.0, 10.0))
    found = run(frame, calls=[calls], slo=Slo(e2e_ms=2_500.0, percentile=99.0, goodput_target=0.99))
    assert causes(found) == ["cold_start"]
    assert any(out.what == "straggler_replica" and "follows from cold_start" in out.figure for out in found.verdict.ruled_out)


def test_silent_when_the_replica_was_there_before() -> None:
    replica = np.where(np.arange(N) % 3 == 0, 9, np.arange(N) % 2)
    frame, calls = fleet(replica, token_ms=np.where(LATE & (replica == 9), 60.0, 10.0))
    found = run(frame, calls=[calls], slo=E2E)
    assert of(found, "cold_start") is None
    assert found.verdict.cause == "straggler_replica"
