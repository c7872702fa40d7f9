"""serial_orchestrator: fires when own time follows the requests in flight, silent when it does not."""

import numpy as np
import polars as pl
import pytest

from analysis.rules.serial_orchestrator import rank_correlation
from tests.analysis.builders import requests
from tests.analysis.rules.cases import E2E, causes, of, run, the

N = 800
LATE = np.arange(N) >= 400
K = np.arange(N) % 10


def app(by_load: bool) -> pl.DataFrame:
    """Bursts of ten requests, of which the k-th waits k x 500 ms inside the application since the onset, or any of them."""
    order = K if by_load else np.random.default_rng(4).permutation(K)
    own = np.where(LATE, 500.0 * order, 5.0)
    return requests(N, start_s=(np.arange(N) // 10) * 12.0 + 0.4 * K, other_ms=own, first_token_ms=200.0, decode_ms=300.0, service="bff", instance="bff-0")


def test_fires_when_own_time_follows_the_requests_in_flight() -> None:
    found = run(app(True), slo=E2E)
    finding = the(found, "serial_orchestrator")
    assert (found.verdict.stage, found.verdict.cause, causes(found)) == ("other", "serial_orchestrator", ["serial_orchestrator"])
    assert finding.service == "bff"
    assert finding.evidence["load_correlation"] > 0.5
    assert finding.fix is not None
    assert finding.fix.predicted is not None
    assert finding.fix.predicted.after < 700.0


def test_time_that_does_not_follow_the_load_is_only_without_a_span() -> None:
    found = run(app(False), slo=E2E)
    assert of(found, "serial_orchestrator") is None
    assert found.verdict.cause == "unattributed_time"


def test_one_request_in_ten_does_not_tell_who_was_in_flight() -> None:
    found = run(app(True), slo=E2E, coverage=0.1)
    assert of(found, "serial_orchestrator") is None
    assert "10 % of the requests are stored" in found.skipped["serial_orchestrator"]
    assert found.verdict.cause == "unattributed_time"


def test_rank_correlation_is_spearmans() -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0])
    assert rank_correlation(x, x**3) == pytest.approx(1.0)
    assert rank_correlation(x, -x) == pytest.approx(-1.0)
    assert rank_correlation(x, np.ones(4)) == 0.0
