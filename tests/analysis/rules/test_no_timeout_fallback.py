"""no_timeout_fallback: lists what a cut would buy, never as the cause, and is silent where few requests are far over."""

import numpy as np
import pytest

from tests.analysis.builders import requests
from tests.analysis.rules.cases import E2E, of, run, the

N = 400
SLOW = np.arange(N) % 10 == 0


def test_listed_with_exact_replay_and_never_the_cause() -> None:
    found = run(requests(N, generation_ms=np.where(SLOW, 20_000.0, 500.0)), slo=E2E)
    finding = the(found, "no_timeout_fallback")
    assert finding.severity == "info"
    assert found.verdict.cause != "no_timeout_fallback"
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    # min(20 s, 2.5 s + a quarter of it).
    assert (finding.fix.predicted.before, finding.fix.predicted.after) == (20_000.0, pytest.approx(3_125.0))
    assert finding.fix.predicted.cost == {"fallback_ratio": 0.1}


def test_silent_when_nobody_is_far_over() -> None:
    assert of(run(requests(N, generation_ms=np.where(SLOW, 4_000.0, 500.0)), slo=E2E), "no_timeout_fallback") is None
