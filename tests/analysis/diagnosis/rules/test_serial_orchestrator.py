"""serial_orchestrator: fires when own time follows the requests in flight, silent when it does not."""

import numpy as np
import polars as pl
import pytest

from overrun.analysis.words.slo import Slo
from tests.analysis.builders import requests
from tests.analysis.diagnosis.rules.cases import E2E, causes, of, run, the

N = 800
LATE = np.arange(N) >= 400
K = np.arange(N) % 10


def app(by_load: bool) -> pl.DataFrame:
    """Bursts of ten requests, of which the k-th waits k x 500 ms inside the application since the onset, or any of them."""
    order = K if by_load else np.random.default_rng(4).permutation(K)
    own = np.where(LATE, 500.0 * order, 5.0)
    return requests(
        N,
        start_s=(np.arange(N) // 10) * 12.0 + 0.4 * K,
        other_ms=own,
        first_token_ms=200.0,
        decode_ms=300.0,
        service="bff",
        instance="bff-0",
    )


def test_fires_when_own_time_follows_the_requests_in_flight() -> None:
    found = run(app(True), slo=E2E)
    finding = the(found, "serial_orchestrator")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == (
        "other",
        "serial_orchestrator",
        ["serial_orchestrator"],
    )
    assert finding.service == "bff"
    assert finding.evidence["load_correlation"] > 0.5
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    assert finding.fix.predicted.after < 700.0


@pytest.mark.parametrize("one_at_a_time", [True, False])
def test_who_waits_behind_those_that_came_just_before_waits_for_the_process(
    one_at_a_time: bool,
) -> None:
    """A prompt takes 200 to 600 ms of the process, and the answer 8 s: how many are in flight says nothing of who is before one."""
    rng = np.random.default_rng(8)
    start = np.cumsum(rng.exponential(0.8, N))
    work = np.where(LATE, rng.uniform(0.2, 0.6, N), 0.005)
    free, own = 0.0, np.zeros(N)
    for k in range(N):
        free = max(free, start[k]) + work[k]
        own[k] = free - start[k]
    own = own if one_at_a_time else np.where(LATE, rng.permutation(own), own)
    rows = requests(
        N,
        start_s=start,
        other_ms=1e3 * own,
        first_token_ms=200.0,
        decode_ms=8_000.0,
        service="bff",
        instance="bff-0",
    )
    found = run(rows, slo=Slo(e2e_ms=9_000.0))
    assert (of(found, "serial_orchestrator") is not None) is one_at_a_time


def test_time_that_does_not_follow_the_load_is_only_without_a_span() -> None:
    found = run(app(False), slo=E2E)
    assert of(found, "serial_orchestrator") is None
    assert found.verdict.cause == "unattributed_time"


def test_one_request_in_ten_does_not_tell_who_was_in_flight() -> None:
    found = run(app(True), slo=E2E, coverage=0.1)
    assert of(found, "serial_orchestrator") is None
    assert "10 % of the requests are stored" in found.skipped["serial_orchestrator"]
    assert found.verdict.cause == "unattributed_time"
