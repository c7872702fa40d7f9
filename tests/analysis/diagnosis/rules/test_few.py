"""Below ten slow requests nobody is blamed and nobody is cleared: every rule says how many it needs."""

import functools

import numpy as np
import pytest

from overrun.analysis.diagnosis.diagnose import Diagnosed
from overrun.analysis.diagnosis.rules import rules
from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import run

CAUSES = sorted(rules())
N = 100


@functools.cache
def window(slow: int) -> Diagnosed:
    """100 requests, so many of which write ten times as long and wait nine seconds."""
    hit = np.arange(N) % max(1, N // max(slow, 1)) == 0
    hit &= np.cumsum(hit) <= slow
    rows = requests(
        N,
        queue_ms=np.where(hit, 3_000.0, 5.0),
        prefill_ms=20.0,
        decode_ms=np.where(hit, 6_000.0, 600.0),
        ttft_queue_ms=np.where(hit, 3_000.0, 5.0),
        ttft_prefill_ms=20.0,
        ttft_ms=np.where(hit, 3_020.0, 25.0),
        output_tokens=np.where(hit, 600, 60),
    )
    return run(rows, baseline="none")


@pytest.mark.parametrize("slow", [0, 1])
def test_windows_within_the_target_have_no_finding(slow: int) -> None:
    found = window(slow)
    assert (found.verdict.status, found.verdict.cause, found.findings) == (
        "within_budget",
        None,
        [],
    )


@pytest.mark.parametrize("rule", CAUSES)
def test_nine_slow_requests_are_not_enough_for_any_cause(rule: str) -> None:
    found = window(9)
    assert found.verdict.status == "over_budget"
    assert rule in found.skipped
    assert rule not in [finding.rule for finding in found.findings]
    assert rule not in [out.what for out in found.verdict.ruled_out]


def test_29_are() -> None:
    assert not [
        rule for rule, why in window(29).skipped.items() if "a cause needs at least 10" in why
    ]
