"""Joint goodput against a plain loop."""

from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overrun.analysis.front.report import build
from overrun.analysis.front.report_document import render
from overrun.analysis.numbers.outcomes.burn_rate import burn
from overrun.analysis.numbers.outcomes.goodput import clearly_below, design_effect, goodput, judge
from overrun.analysis.numbers.over_time.series import series
from overrun.analysis.numbers.statistics.proportion import wilson
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import T0, T0_NS, at, insert, requests, store

MS = st.one_of(st.none(), st.integers(0, 3000).map(float))
ROW = st.tuples(st.booleans(), MS, MS, MS, MS, st.one_of(st.none(), st.integers(0, 3)))
LIMIT = st.one_of(st.none(), st.sampled_from([500.0, 1500.0]))


def table(rows: list[tuple[object, ...]]) -> pl.DataFrame:
    names = {
        "error": pl.Boolean,
        "ttft_ms": pl.Float64,
        "itl_ms": pl.Float64,
        "tpot_ms": pl.Float64,
        "e2e_ms": pl.Float64,
    }
    return pl.DataFrame(rows, schema=names | {"output_tokens": pl.Int64}, orient="row")


def plain(rows: list[tuple[object, ...]], limits: dict[str, float]) -> tuple[int, int, int]:
    good = bad = unmeasurable = measured = 0
    for error, ttft, itl, tpot, e2e, tokens in rows:
        values = {"ttft": ttft, "itl": itl, "tpot": tpot, "e2e": e2e}
        if tokens is not None and tokens <= 1:
            values["itl"] = values["tpot"] = 0.0
        if error:
            bad += 1
        elif any(values[metric] is None for metric in limits):
            unmeasurable += 1
        else:
            measured += 1
            if all(values[metric] <= limit for metric, limit in limits.items()):
                good += 1
            else:
                bad += 1
    if unmeasurable and not measured:
        return 0, 0, len(rows)  # what fails does not decide what no successful request carries
    return good, bad, unmeasurable


@settings(deadline=None)
@given(st.lists(ROW, max_size=30), LIMIT, LIMIT, LIMIT, LIMIT)
def test_goodput_is_that_of_a_plain_loop(rows, ttft, itl, tpot, e2e) -> None:
    slo = Slo(ttft_ms=ttft, itl_ms=itl, tpot_ms=tpot, e2e_ms=e2e)
    result = goodput(judge(table(rows), slo), 10.0)
    good, bad, unmeasurable = plain(rows, slo.limits())
    assert (result.good, result.bad, result.unmeasurable) == (good, bad, unmeasurable)
    assert result.ratio == (good / (good + bad) if good + bad else None)
    assert result.rps == (good / 10.0 if good + bad else None)
    assert (result.ratio is None) == ("ratio" in result.reasons)


def test_which_limit_failed_is_counted_alone_and_together() -> None:
    rows = [
        (False, 900.0, None, 10.0, 9.0, 5),
        (False, 900.0, None, 10.0, 9000.0, 5),
        (True, None, None, None, 1.0, None),
    ]
    failed = goodput(judge(table(rows), Slo(ttft_ms=500, e2e_ms=5000)), 1.0).failed_by
    assert (failed.ttft, failed.e2e, failed.tpot, failed.error) == (2, 1, 0, 1)


def test_itl_limit_is_unmeasurable_without_token_gaps() -> None:
    result = goodput(judge(table([(False, 1.0, None, 1.0, 9.0, 5)] * 4), Slo(itl_ms=50)), 1.0)
    assert (result.unmeasurable, result.ratio) == (4, None)
    assert "itl missing" in result.reasons["ratio"]


def test_one_token_answers_pass_tpot() -> None:
    assert goodput(judge(table([(False, 1.0, None, None, 9.0, 1)]), Slo(tpot_ms=10)), 1.0).good == 1


def test_request_at_the_limit_is_good() -> None:
    assert (
        goodput(judge(table([(False, 500.0, None, None, 9.0, 5)]), Slo(ttft_ms=500)), 1.0).good == 1
    )


def test_slow_requests_that_come_in_runs_tell_less_than_as_many_alone() -> None:
    rng = np.random.default_rng(3)
    alone = rng.random(2_000) < 0.065
    runs = np.repeat(rng.random(200) < 0.065, 50)
    assert design_effect(alone) < 1.6
    # A run is one draw: fifty requests of it tell as much as one.
    assert design_effect(runs) == pytest.approx(50.0, rel=0.5)
    assert alone.mean() > 0.05
    assert clearly_below(~alone, 0.95)
    assert wilson(int((~runs).sum()), len(runs), 1.645)[1] < 0.93
    assert not clearly_below(~runs, 0.93)
    assert clearly_below(np.zeros(59, np.bool_), 0.95)
    assert not clearly_below(np.ones(0, np.bool_), 0.95)
    # Of windows that are at the target as slow requests come in runs of five, few are called below it.
    windows = [~np.repeat(rng.random(200) < 0.05, 5) for _ in range(400)]
    assert np.mean([wilson(int(met.sum()), 1_000, 1.645)[1] < 0.95 for met in windows]) > 0.15
    assert np.mean([clearly_below(met, 0.95) for met in windows]) < 0.1


def test_wilson_interval_is_the_published_one() -> None:
    # 10 of 100 at z = 1.96: 0.0552 to 0.1744 (Newcombe 1998, method 3).
    assert wilson(10, 100) == pytest.approx((0.0552, 0.1744), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 10)[0] == 0.0


def with_headers(
    headers: dict[int, dict[str, str]], n: int = 100, **columns: Any
) -> duckdb.DuckDBPyConnection:
    """n requests, and on the root span of some of them captured headers {number of the request: {attribute: text}}."""
    con = store()
    insert(con, requests(n, **columns))
    for shape, (index, told) in enumerate(headers.items()):
        con.execute(
            """insert into shapes by name select $shape::int as shape, 1::ubigint as source_id, 2::utinyint as kind, 0::utinyint as status,
               0::uinteger as flags, 0::utinyint as stage, 0::utinyint as role, $keys::varchar[] as keys""",
            {"shape": shape, "keys": list(told)},
        )
        con.execute(
            """insert into spans by name select $shape as seq, 1::ubigint as trace_hi, $lo::ubigint as trace_lo, 1::ubigint as span_id, 0::ubigint as parent_id,
               $start as start_ns, 1 as duration_ns, 'POST' as name, $shape::int as shape, $values as attribute_values""",
            {
                "shape": shape,
                "lo": index + 1,
                "start": T0_NS + index * 10**9,
                "values": "\x1f".join(told.values()),
            },
        )
    return con


def test_a_limit_that_a_request_came_with_replaces_the_common_one() -> None:
    header = "http.request.header.x-slo-ttft-ms"
    con = with_headers(
        {
            0: {header: "50", "other": "1"},
            1: {header: '["900"]'},
            2: {"x-slo-e2e-ms": "80"},
            3: {"http.request.header.x_slo_ttft_ms": "5"},
            4: {header: "fast"},
            5: {header: "0"},
            6: {"x-slo-tpot-ms": "1e300"},
            7: {"x-slo-price-ms": "1"},
        },
        prefill_ms=100.0,
        ttft_prefill_ms=100.0,
        decode_ms=50.0,
    )
    # The course over time and the burn rate judge by the same limits.
    course, spent = (
        series(con, Window(), Slo(ttft_ms=200.0), "ttft"),
        burn(con, Window(start=T0, end=at(100)), Slo(ttft_ms=200.0), at(100)),
    )
    assert sum(
        point.requests * (1.0 - (point.goodput_ratio or 0.0)) for point in course.points
    ) == pytest.approx(3.0)
    assert (course.own_limits, course.limit_ms, spent.pairs[0].bad) == (4, 200.0, 3)
    report = build(con, Window(), Slo(ttft_ms=200.0), with_findings=False)
    # 50 and 5 ms are missed by 100 ms, 900 ms is met, 80 ms end to end is missed by 150 ms; a text that is no number above 0 limits nothing.
    assert (report.goodput.good, report.goodput.bad, report.goodput.unmeasurable) == (97, 3, 0)
    assert (report.goodput.failed_by.ttft, report.goodput.failed_by.e2e) == (2, 1)
    assert report.goodput.own_limits == 4
    assert "4 requests carry limits of their own (x-slo headers)" in " ".join(
        render(report).split()
    )
    common = build(
        with_headers({}, prefill_ms=100.0, ttft_prefill_ms=100.0, decode_ms=50.0),
        Window(),
        Slo(ttft_ms=200.0),
        with_findings=False,
    )
    assert (common.goodput.good, common.goodput.own_limits) == (100, 0)
