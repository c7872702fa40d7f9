"""head_of_line: fires when later requests pass those that wait; silent on a queue that all wait in, and for engines with a queue of their own."""

import numpy as np
import polars as pl
import pytest

from tests.analysis.builders import calls_of, requests
from tests.analysis.diagnosis.rules.cases import E2E, of, run, the

N, WORKERS, EVERY_S = 600, 5, 0.5
START = np.arange(N) * EVERY_S
LATE = np.arange(N) >= 300


def served(*, reserved: bool) -> pl.DataFrame:
    """Requests of 1 s at five workers; in the second half one of 90 takes 30 s, and tasks are given out in turn, or when a worker is free."""
    free, waits = np.zeros(WORKERS), np.zeros(N)
    takes = np.where(LATE & (np.arange(N) % 91 == 90), 30.0, 1.0)
    for at in range(N):
        worker = at % WORKERS if reserved else int(np.argmin(free))
        begin = max(START[at], free[worker])
        waits[at], free[worker] = begin - START[at], begin + takes[at]
    return requests(
        N, start_s=START, queue_ms=1e3 * waits + 2.0, generation_ms=1e3 * np.minimum(takes, 1.0)
    )


def outside(frame: pl.DataFrame) -> list[pl.DataFrame]:
    """The calls of requests whose queue is no engine's."""
    none = pl.lit(None, pl.Int64)
    return [calls_of(frame).with_columns(queue_ns=none, prefill_ns=none, decode_ns=none)]


def test_fires_where_later_requests_pass() -> None:
    frame = served(reserved=True)
    found = run(frame, calls=outside(frame), slo=E2E)
    finding = the(found, "head_of_line")
    assert (found.verdict.stage, found.verdict.cause) == ("queue", "head_of_line")
    assert finding.evidence["served_first_ratio"] == pytest.approx(0.8, abs=0.05)
    assert of(found, "under_capacity") is None


def test_silent_where_all_wait_in_their_order() -> None:
    slow = np.where(LATE, 6_000.0 + 20.0 * (np.arange(N) - 300), 5.0)
    frame = requests(N, start_s=START, queue_ms=slow, generation_ms=1_000.0)
    assert of(run(frame, calls=outside(frame), slo=E2E), "head_of_line") is None


def test_silent_for_an_engine_with_a_queue_of_its_own() -> None:
    assert of(run(served(reserved=True), slo=E2E), "head_of_line") is None
