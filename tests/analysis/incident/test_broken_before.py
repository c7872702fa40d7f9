"""What began just before a window is no part of what its slow requests are compared with."""

import numpy as np
import polars as pl

from tests.analysis.builders import at, requests
from tests.analysis.diagnosis.rules.cases import E2E, run, the

# Ten minutes; retrieval takes 3 s instead of 100 ms in every tenth request from 292 s on. The window begins at 300 s.
N = 1_200
START = np.arange(N) * 0.5
HIT = (START >= 280.0) & (np.arange(N) % 6 == 0)


def test_the_healthy_span_before_ends_where_the_fault_began() -> None:
    rows = requests(
        N,
        start_s=START,
        retrieval_ms=np.where(HIT, 3_000.0, 100.0),
        first_token_ms=200.0,
        decode_ms=300.0,
    )
    found = run(rows, slo=E2E, start=at(300.0), end=at(600.0))
    assert found.verdict.onset is not None
    assert abs((found.verdict.onset - at(280.0)).total_seconds()) < 5.0
    assert found.baseline is not None
    assert found.baseline.end == found.verdict.onset
    assert found.baseline.choice.endswith(f"until {found.verdict.onset:%H:%M:%S} UTC")
    # None of those that it is compared with is slow already.
    assert the(found, "slow_dependency").evidence["reference_ms"] == 100.0


def test_a_span_before_in_which_nothing_began_stays_whole() -> None:
    rows = requests(
        N,
        start_s=START,
        retrieval_ms=np.where(HIT & (START >= 300.0), 3_000.0, 100.0),
        first_token_ms=200.0,
        decode_ms=300.0,
    )
    found = run(rows.filter(pl.Series(START < 600.0)), slo=E2E, start=at(300.0), end=at(600.0))
    assert found.baseline is not None
    assert (found.baseline.start, found.baseline.end) == (at(0.0), at(300.0))
