"""client_throttled: fires on waiting in front of calls and on pauses after refusals, silent when the same time has another name."""

import numpy as np
import pytest

from collector.stages import ROLE
from tests.analysis.builders import requests, spans_of
from tests.analysis.rules.cases import E2E, causes, of, run, the

N = 400
LATE = np.arange(N) >= 200
FRAME = requests(N, queue_ms=np.where(LATE, 3_000.0, 5.0), first_token_ms=200.0, decode_ms=300.0)


def test_fires_on_a_semaphore() -> None:
    found = run(FRAME, spans=[spans_of(FRAME, "llm semaphore wait", "queue", 0.0, np.where(LATE, 3_000.0, 5.0))], slo=E2E)
    finding = the(found, "client_throttled")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == ("queue", "client_throttled", ["client_throttled"])
    assert (finding.evidence["held_ms_slow"], finding.evidence["held_ms_reference"]) == (pytest.approx(3_000.0), pytest.approx(5.0))
    assert finding.evidence["operation"] == "llm semaphore wait"


def test_fires_on_back_off_after_refusals() -> None:
    frame = requests(N, other_ms=np.where(LATE, 3_000.0, 5.0), first_token_ms=200.0, decode_ms=300.0)
    refused = spans_of(frame, "chat m", "generation", 0.0, 60.0, span_id=2, role=ROLE["llm"], http_status=429, keep=LATE)
    answered = spans_of(frame, "chat m", "generation", np.where(LATE, 3_060.0, 0.0), 500.0, span_id=3, role=ROLE["llm"])
    found = run(frame, spans=[refused, answered], slo=E2E)
    finding = the(found, "client_throttled")
    assert found.verdict.cause == "client_throttled"
    assert finding.evidence["held_ms_slow"] == pytest.approx(3_000.0, abs=1.0)
    assert finding.evidence["refused_ratio"] == pytest.approx(0.5)


def test_silent_without_a_brake_of_ones_own() -> None:
    found = run(FRAME, spans=[spans_of(FRAME, "prefill_waiting", "queue", 0.0, np.where(LATE, 3_000.0, 5.0))], slo=E2E)
    assert of(found, "client_throttled") is None
