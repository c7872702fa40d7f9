"""Data quality: each check with data that trips it and a twin that does not."""

from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

from overrun.analysis.front.report import build
from overrun.analysis.numbers.coverage.sampling import assess
from overrun.analysis.numbers.quality import checks as quality
from overrun.analysis.numbers.quality.call_checks import call_checks
from overrun.analysis.numbers.quality.checks import waiting_at_end
from overrun.analysis.numbers.quality.metric_checks import metric_checks
from overrun.analysis.numbers.quality.row import Check
from overrun.analysis.numbers.window import RequestFrame, Window, load
from overrun.analysis.words.slo import DEFAULT, Slo
from tests.analysis.builders import T0_NS, at, frame_of, gauge, insert, requests, store


def good(n: int = 100, **columns: Any) -> pl.DataFrame:
    values = {
        "prefill_ms": 100.0,
        "decode_ms": 900.0,
        "ttft_prefill_ms": 100.0,
        "every_s": 2.0,
    } | columns
    return requests(n, **values)


def checks(
    frame: RequestFrame, slo: Slo, con: duckdb.DuckDBPyConnection | None = None
) -> list[Check]:
    con = con or store()
    return quality.checks(con, frame, slo, assess(con, frame))


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
        ("impossible_times", {"ttft_ms": 900_000.0}, "fail"),  # milliseconds read as seconds
        ("impossible_times", {"ttft_ms": [900_000.0] * 3 + [100.0] * 97}, "warn"),
        (
            "impossible_times",
            {"ttft_ms": 0.1, "ttft_prefill_ms": None, "decode_ms": 2_000.0},
            "fail",
        ),  # seconds read as milliseconds
        (
            "missing_children",
            {"spans": [2] * 5 + [9] * 95, "other_ms": [3_000.0] * 5 + [0.0] * 95},
            "warn",
        ),
        (
            "missing_children",
            {
                "spans": [2] * 5 + [9] * 95,
                "other_ms": [3_000.0] * 5 + [0.0] * 95,
                "llm_calls": [0] * 5 + [1] * 95,
            },
            "warn",
        ),
        ("outliving_spans", {"clipped_spans": [1] * 8 + [0] * 92}, "warn"),
        ("unattributed_time", {"other_ms": 500.0}, "warn"),
        ("incomplete_traces", {"complete": [False] * 5 + [True] * 95}, "warn"),
        ("inferred_parents", {"inferred_ms": 60.0}, "warn"),
        ("clock_skew", {"skewed_spans": [1] * 2 + [0] * 98}, "warn"),
        ("sampling", {"sampling": "tail"}, "fail"),
        ("sampling", {"sampling": "th:e6666666666668", "sample_weight": 10.0}, "warn"),
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
        ("impossible_times", {"ttft_ms": 100.0}),
        (
            "missing_children",
            {"spans": [2] * 5 + [9] * 95},
        ),  # a short request whose time is all accounted for
        # Answered from a cache: quicker than half of what is usual.
        (
            "missing_children",
            {
                "spans": [2] * 5 + [9] * 95,
                "decode_ms": [0.0] * 5 + [900.0] * 95,
                "other_ms": [300.0] * 5 + [0.0] * 95,
                "llm_calls": [0] * 5 + [1] * 95,
            },
        ),
        ("missing_children", {"spans": 2, "other_ms": 3_000.0}),  # as usual on its route
        ("outliving_spans", {"clipped_spans": [1] * 5 + [0] * 95}),
        ("sampling", {"sampling": "th:0", "sample_weight": 1.0}),
    ],
)
def test_twin_that_differs_in_one_fact_passes(check: str, columns: dict[str, Any]) -> None:
    assert status(good(**columns), check) in ("ok", None)


def test_missing_ttft_matters_only_where_it_is_limited() -> None:
    assert (
        status(good(ttft_ms=None, ttft_prefill_ms=None), "ttft_missing", Slo(e2e_ms=1000)) == "ok"
    )


def test_requests_still_waiting_at_the_end_are_told_with_their_number() -> None:
    con = store()
    insert(con, good(every_s=1.0))
    gauge(con, "queue_depth", {40.0: 0.0, 95.0: 30.0, 101.0: 40.0, 140.0: 2.0}, instance="a")
    gauge(con, "queue_depth", {99.0: 5.0}, instance="b")
    frame = load(con, Window())
    assert frame.end == at(100)
    assert waiting_at_end(frame) == 45.0
    worst = checks(frame, DEFAULT)[0]
    assert (worst.check, worst.status) == ("requests_waiting_at_end", "warn")
    assert "45 requests were still waiting" in worst.detail
    assert "31 % of all" in worst.detail


def test_empty_queue_at_the_end_passes() -> None:
    con = store()
    insert(con, good(every_s=1.0))
    gauge(con, "queue_depth", {40.0: 50.0, 99.0: 0.0})
    assert {c.check: c.status for c in checks(load(con, Window()), DEFAULT)}[
        "requests_waiting_at_end"
    ] == "ok"


def test_queue_time_without_a_gauge_is_said() -> None:
    assert (
        status(
            good(queue_ms=np.where(np.arange(100) % 10 == 0, 5000.0, 0.0)),
            "requests_waiting_at_end",
        )
        == "warn"
    )
    assert status(good(queue_ms=1.0), "requests_waiting_at_end") is None


def test_empty_window_has_no_check_that_passes() -> None:
    assert [(c.check, c.status) for c in checks(load(store(), Window()), DEFAULT)] == [
        ("too_few_samples", "fail")
    ]


def loop(workers: int, n: int, seed: int, think_s: float = 0.0) -> pl.DataFrame:
    """`workers` clients, each sending its next request when the last one has ended."""
    rng = np.random.default_rng(seed)
    free, starts, latency = np.zeros(workers), np.zeros(n), rng.lognormal(0.0, 0.5, n)
    for i in range(n):
        worker = int(np.argmin(free))
        starts[i] = free[worker] + (0.002 if i >= workers else 0.0)
        free[worker] = starts[i] + latency[i] + think_s
    return requests(n, start_s=starts, prefill_ms=latency * 1000.0, ttft_prefill_ms=100.0)


@pytest.mark.parametrize("workers", [1, 4, 16])
def test_load_that_waits_for_answers_is_told(workers: int) -> None:
    assert status(loop(workers, 400, workers), "closed_loop_load") == "warn"


@pytest.mark.parametrize("rate", [0.3, 3.0, 15.0])
def test_load_that_does_not_wait_passes(rate: float) -> None:
    rng = np.random.default_rng(5)
    latency = rng.lognormal(0.0, 0.5, 400)
    rows = requests(
        400,
        start_s=np.cumsum(rng.exponential(1.0 / rate, 400)),
        prefill_ms=latency * 1000.0,
        ttft_prefill_ms=100.0,
    )
    assert status(rows, "closed_loop_load") == "ok"


def test_requests_that_end_as_they_start_are_no_load_in_flight() -> None:
    assert status(requests(100, e2e_ms=0.0, prefill_ms=0.0), "closed_loop_load") is None


def test_spoiled_first_tokens_are_left_out_of_the_report_with_the_reason() -> None:
    con = store()
    insert(con, good(ttft_ms=1000.0))
    report = build(con, Window(), DEFAULT)
    assert (report.latency.ttft_ms.p50, report.latency.tpot_ms.p50) == (None, None)
    assert "TTFT equals the whole duration" in report.latency.ttft_ms.reasons["p50"]
    assert report.goodput.ratio is None
    assert report.latency.e2e_ms.p50 == 1000.0
    insert(fine := store(), good())
    assert build(fine, Window(), DEFAULT).latency.ttft_ms.p50 == 100.0


CALL: dict[str, Any] = {
    "ttft_client_ms": 300.0,
    "ttft_engine_ms": None,
    "tpot_ms": 10.0,
    "output_tokens": 11,
    "e2e_ms": 400.0,
    "attempts": 1,
}


def calls(con: duckdb.DuckDBPyConnection, n: int, **columns: Any) -> None:
    """Insert n model calls; milliseconds as `<name>_ms`."""
    data: dict[str, Any] = {}
    for name, value in (CALL | columns).items():
        values = value if isinstance(value, list) else [value] * n
        if name.endswith("_ms"):
            data[f"{name.removesuffix('_ms')}_ns"] = pl.Series(
                [None if v is None else round(v * 1e6) for v in values], dtype=pl.Int64
            )
        else:
            data[name] = pl.Series(values)
    rows = pl.DataFrame(data).rename({"e2e_ns": "duration_ns"}).with_row_index("i")
    failed = "error_type is not null" if "error_type" in columns else "false"
    con.execute(
        f"""insert into llm_calls by name select 1::ubigint as trace_hi, i::ubigint as trace_lo, 1::ubigint as span_id, true as on_path,
            {T0_NS} + i::bigint * 1000000000 as start_ns, 'chat' as service, 'm' as model, 1::utinyint as ttft_source, {failed} as error, rows.* exclude (i)
            from rows"""
    )
    del rows


def call_status(check: str, n: int = 100, **columns: Any) -> str | None:
    con = store()
    calls(con, n, **columns)
    return {found.check: found.status for found in call_checks(con, Window(), n)}.get(check)


@pytest.mark.parametrize(
    ("check", "columns", "grade"),
    [
        (
            "early_role_chunk",
            {"ttft_client_ms": [13.0] * 5 + [300.0] * 95},
            "warn",
        ),  # the time is missing behind it: e2e stays 400 ms
        ("early_role_chunk", {"ttft_client_ms": 20.0, "ttft_engine_ms": 300.0}, "fail"),
        ("impossible_times", {"ttft_client_ms": 300_000.0}, "fail"),  # milliseconds sent as seconds
        ("impossible_times", {"ttft_client_ms": [300_000.0] * 3 + [300.0] * 97}, "warn"),
        (
            "hidden_retries",
            {
                "ttft_engine_ms": [50.0] * 3 + [280.0] * 97,
                "attempts": None,
                "error_type": [None] * 98 + ["InternalServerError"] * 2,
            },
            "warn",
        ),
        (
            "hidden_retries",
            {
                "ttft_engine_ms": [50.0] * 3 + [280.0] * 97,
                "attempts": None,
                "engine_span_id": [None] * 97 + [1] * 3,
            },
            "warn",
        ),
        (
            "hidden_retries",
            {"attempts": None, "error_type": ["RateLimitError"] * 2 + [None] * 98},
            "warn",
        ),
        (
            "hidden_reasoning",
            {"reasoning_tokens": 50, "tpot_reason": ["hidden_reasoning"] * 5 + [None] * 95},
            "warn",
        ),
        (
            "cached_token_convention",
            {"input_tokens": 100, "cached_tokens": [900] * 5 + [50] * 95},
            "warn",
        ),
    ],
)
def test_calls_that_mislead_are_graded(check: str, columns: dict[str, Any], grade: str) -> None:
    assert call_status(check, **columns) == grade


@pytest.mark.parametrize(
    ("check", "columns"),
    [
        (
            "early_role_chunk",
            {"ttft_client_ms": [13.0] * 5 + [300.0] * 95, "e2e_ms": [113.0] * 5 + [400.0] * 95},
        ),  # a cache hit is fast to the end
        ("early_role_chunk", {"ttft_client_ms": 310.0, "ttft_engine_ms": 300.0}),
        (
            "hidden_retries",
            {"ttft_engine_ms": [50.0] * 3 + [280.0] * 97, "attempts": [2] * 3 + [1] * 97},
        ),
        # The engine's front end, or a proxy: nothing fails, and no call comes twice.
        ("hidden_retries", {"ttft_engine_ms": [50.0] * 3 + [280.0] * 97, "attempts": None}),
        ("hidden_retries", {"attempts": 1, "error_type": ["RateLimitError"] * 2 + [None] * 98}),
        ("hidden_reasoning", {"reasoning_tokens": 50}),
        ("cached_token_convention", {"input_tokens": 1000, "cached_tokens": [900] * 5 + [50] * 95}),
    ],
)
def test_calls_that_differ_in_one_fact_pass(check: str, columns: dict[str, Any]) -> None:
    assert call_status(check, **columns) == "ok"


def test_a_first_token_in_another_unit_is_called_that_and_no_buffered_answer() -> None:
    con = store()
    insert(con, requests(100, first_token_ms=900.0, ttft_ms=900.0))  # cut at the end
    calls(con, 100, ttft_client_ms=300_000.0, e2e_ms=900.0)
    report = build(con, Window(), DEFAULT)
    found = {check.check: check for check in report.data_quality}
    assert found["impossible_times"].status == "fail"
    assert "milliseconds, but the conventions want seconds" in found["impossible_times"].detail
    assert "ttft_equals_duration" not in found
    assert (report.latency.ttft_ms.p50, report.latency.e2e_ms.p50) == (None, 900.0)
    assert call_status("impossible_times") is None


def histogram(
    con: duckdb.DuckDBPyConnection,
    indicator: str,
    bounds: list[float],
    samples: dict[float, list[float]],
    total: float | None = None,
    since_s: float | None = None,
) -> None:
    """Insert cumulative histogram samples {seconds after T0: counts}, which say that they count since `since_s` if that is given."""
    for second, counts in samples.items():
        con.execute(
            """insert into points by name select 1 as batch, 1::ubigint as source_id, $time as time_ns, $start as start_ns, $name as name, 's' as unit,
               3::utinyint as kind, 2::utinyint as temporality, true as monotonic, hash($name) as series, 'gpu-0' as instance, $indicator as indicator,
               $bounds::double[] as bounds, $counts::double[] as counts, $sum::double as sum, $count::double as count, map {} as attributes""",
            {
                "time": T0_NS + int(second * 1e9),
                "start": 0 if since_s is None else T0_NS + int(since_s * 1e9),
                "name": f"vllm:{indicator}",
                "indicator": indicator,
                "bounds": bounds,
                "counts": counts,
                "sum": None if total is None else total * second,
                "count": sum(counts),
            },
        )


def metric_status(check: str, con: duckdb.DuckDBPyConnection, slo: Slo) -> str | None:
    return {
        found.check: found.status
        for found in metric_checks(con, load(con, Window(at(0), at(100))), slo)
    }.get(check)


@pytest.mark.parametrize(
    ("counts", "limit_ms", "grade"),
    [
        ([0, 90, 0, 10], 1_000.0, "fail"),
        ([0, 90, 10, 0], 2_000.0, "warn"),
        ([0, 90, 10, 0], 1_000.0, "ok"),
        ([90, 10, 0, 0], 1_000.0, "ok"),
    ],
)
def test_bucket_edges_that_cannot_answer_are_told(
    counts: list[float], limit_ms: float, grade: str
) -> None:
    con = store()
    histogram(con, "ttft", [0.5, 1.0, 5.0], {0.0: [0, 0, 0, 0], 100.0: counts})
    assert metric_status("ttft_histogram_edges", con, Slo(ttft_ms=limit_ms)) == grade


@pytest.mark.parametrize(
    ("bounds", "expected"), [([0.0, 5.0, 10.0, 25.0], "fail"), ([0.0, 0.5, 1.0, 5.0], None)]
)
def test_buckets_of_another_unit_are_told(bounds: list[float], expected: str | None) -> None:
    con = store()
    histogram(con, "ttft", bounds, {0.0: [0] * 5, 100.0: [0, 100, 0, 0, 0]}, total=0.3)
    assert metric_status("histogram_unit_clash", con, Slo(ttft_ms=5_000.0)) == expected


@pytest.mark.parametrize(("last", "expected"), [(30, "warn"), (95, "ok")])
def test_metric_that_stops_while_its_instance_reports_on_is_told(last: int, expected: str) -> None:
    con = store()
    gauge(con, "running", {float(s): 1.0 for s in range(0, 100, 5)})
    gauge(con, "kv_cache_usage", {float(s): 0.5 for s in range(0, last + 1, 5)})
    assert metric_status("vanished_metric", con, DEFAULT) == expected


def test_causes_that_read_a_part_of_the_spans_say_so() -> None:
    frame = frame_of(requests(100, prefill_ms=10.0))
    assert quality.evidence_checks(frame) == []
    many = replace(frame, rows=pl.concat([frame.rows] * 450).with_columns(spans=pl.lit(2)))
    (check,) = quality.evidence_checks(many)
    assert (check.check, check.status) == ("sampled_evidence", "ok")
    assert "all 45,000 requests" in check.detail
    assert "one request in 3 (a share of them is right within 0.8 points" in check.detail


def test_a_ttft_that_became_the_duration_is_what_users_see() -> None:
    late = np.arange(300) >= 40
    held = good(300, ttft_ms=np.where(late, 1_000.0, 100.0), ttft_prefill_ms=None)
    frame = frame_of(held)
    found = checks(frame, DEFAULT)
    assert status(held, "ttft_equals_duration") == "fail"
    # The window's first tenth could tell, so it is no matter of instrumentation.
    mended = {check.check: check for check in quality.held_back(found, frame, None)}
    assert mended["ttft_equals_duration"].status == "warn"
    assert "something buffers the answers" in mended["ttft_equals_duration"].detail
    always = frame_of(good(300, ttft_ms=1_000.0, ttft_prefill_ms=None))
    found = checks(always, DEFAULT)
    assert quality.held_back(found, always, None) == found
    assert quality.held_back(found, always, always) == found
    # Another service that could tell says nothing of this one; the same service in the baseline does.
    assert quality.held_back(found, always, frame_of(good(service="other"))) == found
    assert quality.held_back(found, always, frame_of(good())) != found
