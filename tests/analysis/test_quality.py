"""Data quality: each check with data that trips it and a twin that does not."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from analysis.quality import checks, waiting_at_end
from analysis.slo import DEFAULT, Slo
from analysis.window import Window, load
from tests.analysis.builders import at, frame_of, gauge, insert, requests, store


def good(n: int = 100, **columns: Any) -> pl.DataFrame:
    values = {"prefill_ms": 100.0, "decode_ms": 900.0, "ttft_prefill_ms": 100.0} | columns
    return requests(n, **values)


def status(rows: pl.DataFrame, check: str, slo: Slo = DEFAULT) -> str | None:
    return {found.check: found.status for found in checks(frame_of(rows), slo)}.get(check)


def test_clean_data_passes_every_check() -> None:
    assert {check.status for check in checks(frame_of(good()), DEFAULT)} == {"ok"}


@pytest.mark.parametrize(
    ("check", "columns", "grade"),
    [
        ("too_few_samples", {"n": 58}, "fail"),
        ("ttft_missing", {"ttft_ms": [None] * 10 + [100.0] * 90, "ttft_prefill_ms": None}, "warn"),
        ("ttft_missing", {"ttft_ms": None, "ttft_prefill_ms": None}, "fail"),
        ("ttft_equals_duration", {"ttft_ms": [1000.0] * 10 + [100.0] * 90}, "warn"),
        ("ttft_equals_duration", {"ttft_ms": 1000.0}, "fail"),
        ("impossible_times", {"ttft_ms": 900_000.0}, "warn"),
        ("unattributed_time", {"other_ms": 500.0}, "warn"),
        ("incomplete_traces", {"complete": [False] * 5 + [True] * 95}, "warn"),
        ("inferred_parents", {"inferred_ms": 60.0}, "warn"),
        ("clock_skew", {"skewed_spans": [1] * 2 + [0] * 98}, "warn"),
        ("sampling", {"sampling": "tail"}, "warn"),
    ],
)
def test_spoiled_data_is_graded(check: str, columns: dict[str, Any], grade: str) -> None:
    assert status(good(**columns), check) == grade


@pytest.mark.parametrize(
    ("check", "columns"),
    [
        ("too_few_samples", {"n": 59}),
        ("ttft_missing", {"ttft_ms": [None] * 5 + [100.0] * 95, "ttft_prefill_ms": None}),
        ("ttft_equals_duration", {"ttft_ms": 975.0}),  # 25 ms for 99 tokens is a fast engine
        ("ttft_equals_duration", {"ttft_ms": 1000.0, "output_tokens": 1}),
        ("unattributed_time", {"other_ms": 400.0}),
        ("incomplete_traces", {"complete": [False] + [True] * 99}),
        ("inferred_parents", {"inferred_ms": 50.0}),
        ("clock_skew", {"skewed_spans": [1] + [0] * 99}),
    ],
)
def test_twin_that_differs_in_one_fact_passes(check: str, columns: dict[str, Any]) -> None:
    assert status(good(**columns), check) in ("ok", None)


def test_missing_ttft_matters_only_where_it_is_limited() -> None:
    assert status(good(ttft_ms=None, ttft_prefill_ms=None), "ttft_missing", Slo(e2e_ms=1000)) == "ok"


def test_requests_still_waiting_at_the_end_are_told_with_their_number() -> None:
    con = store()
    insert(con, good())
    gauge(con, "queue_depth", {40.0: 0.0, 95.0: 30.0, 101.0: 40.0, 140.0: 2.0}, instance="a")
    gauge(con, "queue_depth", {99.0: 5.0}, instance="b")
    frame = load(con, Window())
    assert frame.end == at(100)
    assert waiting_at_end(frame) == 45.0
    worst = checks(frame, DEFAULT)[0]
    assert (worst.check, worst.status) == ("requests_waiting_at_end", "warn")
    assert "45 requests were still waiting" in worst.detail
    assert "31% of all" in worst.detail


def test_empty_queue_at_the_end_passes() -> None:
    con = store()
    insert(con, good())
    gauge(con, "queue_depth", {40.0: 50.0, 99.0: 0.0})
    assert {c.check: c.status for c in checks(load(con, Window()), DEFAULT)}["requests_waiting_at_end"] == "ok"


def test_queue_time_without_a_gauge_is_said() -> None:
    assert status(good(queue_ms=np.where(np.arange(100) % 10 == 0, 5000.0, 0.0)), "requests_waiting_at_end") == "warn"
    assert status(good(queue_ms=1.0), "requests_waiting_at_end") is None


def test_empty_window_has_no_check_that_passes() -> None:
    assert [(c.check, c.status) for c in checks(load(store(), Window()), DEFAULT)] == [("too_few_samples", "fail")]
