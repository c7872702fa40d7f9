"""no_timeout_fallback: lists what a cut would buy, never as the cause, and is silent where few requests are far over."""

import numpy as np
import pytest

from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import E2E, of, run, the

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
    assert (finding.fix.predicted.before, finding.fix.predicted.after) == (
        20_000.0,
        pytest.approx(3_125.0),
    )
    assert finding.fix.predicted.cost == {"fallback_ratio": 0.1}
    assert finding.fix.parameters == {
        "timeout_ms": 2_500.0,
        "fallback_ms": 625.0,
        "until": "end",
    }  # what the what-if of that name is asked


def test_silent_when_the_cut_comes_above_the_percentile() -> None:
    """One in 25 takes 20 s and every tenth a little over the limit: P95 is 2.8 s, and cutting at 2.5 s with a fallback of 0.6 s leaves it there."""
    few = np.where(np.arange(N) % 25 == 1, 20_000.0, np.where(SLOW, 2_800.0, 500.0))
    assert of(run(requests(N, generation_ms=few), slo=E2E), "no_timeout_fallback") is None


def test_silent_when_nobody_is_far_over() -> None:
    assert (
        of(
            run(requests(N, generation_ms=np.where(SLOW, 4_000.0, 500.0)), slo=E2E),
            "no_timeout_fallback",
        )
        is None
    )
