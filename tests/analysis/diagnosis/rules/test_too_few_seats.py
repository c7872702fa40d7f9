"""too_few_seats: fires when a constant number runs while calls wait and more ran before; silent at the same seats, and behind a full cache."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from overrun.analysis.diagnosis.diagnose import Diagnosed
from overrun.analysis.words.slo import Slo
from overrun.collector.normalise.stages import ROLE
from tests.analysis.builders import calls_of, requests, spans_of
from tests.analysis.diagnosis.rules.cases import of, run, the

N, CALM = 900, 450
TTFT = Slo(ttft_ms=2_000.0)
SERVICE_S = 4.0


def engine(
    seats_now: int, every_s: tuple[float, float] = (0.5, 0.9), seen_by: str = "engine"
) -> pl.DataFrame:
    """First come, first served: 16 seats at first, then others; each call is served for 4 s."""
    gaps = np.where(np.arange(N) < CALM, every_s[0], every_s[1])
    start = np.cumsum(gaps * np.random.default_rng(4).uniform(0.8, 1.2, N))
    ends: list[float] = []
    begins = np.zeros(N)
    for i in range(N):
        seats = 16 if i < CALM else seats_now
        held = sorted(end for end in ends if end > start[i])
        begins[i] = start[i] if len(held) < seats else held[len(held) - seats]
        ends.append(begins[i] + SERVICE_S)
    wait = 1e3 * (begins - start)
    if seen_by == "caller":
        first = wait + 100.0
        return requests(
            N,
            start_s=start,
            first_token_ms=first,
            ttft_first_token_ms=first,
            decode_ms=1e3 * SERVICE_S - 100.0,
            tpot_ms=39.0,
        )
    columns: dict[str, Any] = {"ttft_queue_ms": wait, "ttft_prefill_ms": 100.0}
    return requests(
        N,
        start_s=start,
        queue_ms=wait,
        prefill_ms=100.0,
        decode_ms=1e3 * SERVICE_S - 100.0,
        tpot_ms=39.0,
        **columns,
    )


def test_fires_when_a_constant_number_runs_and_more_ran_before() -> None:
    found = run(engine(4), slo=TTFT)
    finding = the(found, "too_few_seats")
    assert (found.verdict.stage, found.verdict.cause) == ("queue", "too_few_seats")
    assert finding.evidence["seats"] == 4
    assert finding.evidence["flat"][0] > 0.9
    assert finding.evidence["more"] > 0.9 * finding.evidence["calm"]
    assert finding.fix is not None
    assert finding.fix.whatif == "max_sequences"
    assert finding.fix.parameters["sequences"] >= 8
    assert "429" not in (found.verdict.mitigation or "")


def test_calls_that_were_given_up_hold_seats_though_the_engine_reports_no_times() -> None:
    frame = engine(2, every_s=(0.5, 1.6))
    lost = np.random.default_rng(3).random(N) < 0.4
    lost[:CALM] = False
    gone = pl.Series(lost)
    of_engine = ("queue_ns", "prefill_ns", "decode_ns", "engine_instance", "engine_e2e_ns")
    calls = calls_of(frame)
    calls = calls.with_columns(
        *(
            pl.when(gone).then(None).otherwise(pl.col(c)).alias(c)
            for c in of_engine
            if c in calls.columns
        )
    )
    late = pl.when(gone).then(pl.lit("TimeoutError"))
    frame, calls = (f.with_columns(error=gone, error_type=late) for f in (frame, calls))
    found = run(frame, slo=TTFT, calls=[calls])
    assert (found.verdict.stage, found.verdict.cause) == ("queue", "too_few_seats")
    assert the(found, "too_few_seats").evidence["seats"] == 2


def test_silent_when_more_calls_come_to_the_same_seats() -> None:
    found = run(engine(16, every_s=(0.5, 0.22)), slo=TTFT)
    assert of(found, "too_few_seats") is None
    assert found.verdict.cause == "under_capacity"


@pytest.mark.parametrize("usage", [0.95, 0.3])
def test_a_full_cache_is_not_the_seats(usage: float) -> None:
    gauges = {"kv_cache_usage": dict.fromkeys(np.arange(0.0, 600.0, 15.0).tolist(), usage)}
    found = run(engine(4), slo=TTFT, gauges=gauges)
    assert (of(found, "too_few_seats") is None) == (usage > 0.9)


def by_caller(rows: pl.DataFrame, address: str) -> Diagnosed:
    """The verdict on calls to an address, where a page of `gpu-0` counts running calls and no engine sends spans."""
    calls = spans_of(
        rows,
        "chat",
        "generation",
        0.0,
        4_000.0,
        role=ROLE["llm"],
        attributes={"server.address": address},
    )
    page = {"running": dict.fromkeys(np.arange(0.0, 600.0, 15.0).tolist(), 4.0)}
    return run(rows, slo=TTFT, gauges=page, spans=[calls])


def test_callers_see_the_seats_of_an_engine_without_spans() -> None:
    found = by_caller(engine(4, seen_by="caller"), "gpu-0")
    assert (found.verdict.stage, found.verdict.cause) == ("queue", "too_few_seats")
    assert the(found, "too_few_seats").evidence["seats"] == 4


def test_somebody_elses_limit_is_no_seat_of_an_engine() -> None:
    found = by_caller(engine(4, seen_by="caller"), "api.example.com")
    assert of(found, "too_few_seats") is None


def test_silent_when_callers_see_more_calls_at_the_same_seats() -> None:
    found = by_caller(engine(16, every_s=(0.5, 0.22), seen_by="caller"), "gpu-0")
    assert of(found, "too_few_seats") is None


def test_one_seat_less_than_ran_before_now_and_then_is_too_few() -> None:
    """A third ran beside two in some of the former moments, none does now: a seat more or less is no error of the clocks where it never happens now."""
    found = run(engine(2, every_s=(1.7, 1.9)), slo=TTFT)
    assert found.verdict.cause == "too_few_seats"
    evidence = the(found, "too_few_seats").evidence
    assert (evidence["seats"], evidence["more_now"]) == (2, 0)
