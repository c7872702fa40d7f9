"""straggler_replica: fires on the replica that is slower at the same work, is silent when it has longer answers or all are slower."""

import numpy as np
import pytest

from tests.analysis.rules.cases import E2E, causes, of, run, the
from tests.analysis.rules.fleet import LATE, N, fleet

REPLICA = np.arange(N) % 4


def test_fires_on_the_slow_replica_with_its_factor() -> None:
    frame, calls = fleet(REPLICA, token_ms=np.where(LATE & (REPLICA == 2), 40.0, 10.0))
    found = run(frame, calls=[calls], slo=E2E)
    finding = the(found, "straggler_replica")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == ("decode", "straggler_replica", ["straggler_replica"])
    assert (finding.service, finding.evidence["instance"]) == ("gpu-2", "gpu-2")
    # Tokens four times as slow behind the same prefill of about 100 ms: (100 + 4,000) / (100 + 1,000).
    assert finding.evidence["slower"] == pytest.approx(4_100 / 1_100, rel=0.06)
    assert (finding.evidence["share_of_slow"], finding.evidence["share_of_all"]) == (1.0, pytest.approx(0.25, abs=0.01))
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    # Its requests at its peers' pace: at most 100 + 120 x 10 ms.
    assert finding.fix.predicted.after == pytest.approx(1_300.0, abs=80.0)


def test_who_waits_before_a_slow_replica_waits_for_its_work() -> None:
    slow = LATE & (REPLICA == 2)
    frame, calls = fleet(REPLICA, queue_ms=np.where(slow, 9_000.0, 5.0), token_ms=np.where(slow, 40.0, 10.0))
    found = run(frame, calls=[calls], slo=E2E)
    assert (found.verdict.stage, found.verdict.cause) == ("decode", "straggler_replica")


def test_silent_when_all_replicas_became_slower() -> None:
    frame, calls = fleet(REPLICA, token_ms=np.where(LATE & (np.arange(N) % 3 == 0), 40.0, 10.0))
    found = run(frame, calls=[calls], slo=E2E)
    assert found.verdict.stage == "decode"
    assert of(found, "straggler_replica") is None
    assert any(out.what == "straggler_replica" for out in found.verdict.ruled_out)


def test_silent_on_a_replica_that_was_as_slow_before() -> None:
    frame, calls = fleet(REPLICA, queue_ms=np.where(LATE & (np.arange(N) % 3 == 0), 6_000.0, 5.0), token_ms=np.where(REPLICA == 2, 15.0, 10.0))
    assert of(run(frame, calls=[calls], slo=E2E), "straggler_replica") is None


def test_engines_without_names_are_not_compared() -> None:
    frame, calls = fleet(REPLICA, token_ms=np.where(LATE & (REPLICA == 2), 40.0, 10.0))
    assert of(run(frame, calls=[calls.drop("engine_instance")], slo=E2E), "straggler_replica") is None
