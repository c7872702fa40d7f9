"""A window with too many requests is read as a sample of whole requests, whose weights make it stand for all of them."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime

import duckdb
import numpy as np
import polars as pl
import pytest

from overrun.analysis.front.report import build
from overrun.analysis.front.report_document import render
from overrun.analysis.numbers.comparison.cohorts import cohorts
from overrun.analysis.numbers.coverage.sampling import assess, evened
from overrun.analysis.numbers.statistics import request_sample
from overrun.analysis.numbers.statistics.request_sample import (
    NAMES,
    Plan,
    Sample,
    condition,
    even_part,
    part,
    plan,
    weights,
)
from overrun.analysis.numbers.window import Window, filter_of, load, query
from overrun.analysis.words.slo import parse_slo
from overrun.collector.store.answers import fetch_frame
from tests.analysis.builders import T0, at, insert, requests, store

SLO = parse_slo("ttft:400 e2el:3000")
N = 6_000
WINDOW = Window(start=T0, end=at(N / 10))
FEW = replace(WINDOW, most=1_000)


@pytest.fixture(scope="module")
def con() -> duckdb.DuckDBPyConnection:
    """10 minutes of requests: the second half is slow in a tenth, one in 50 fails, and one tenant has 12 requests."""
    rng = np.random.default_rng(3)
    slow = (np.arange(N) >= N // 2) & (rng.random(N) < 0.1)
    error = rng.random(N) < 0.02
    tenant = np.where(np.arange(N) % 500 == 7, "small", "large")
    made = store()
    insert(
        made,
        requests(
            N,
            every_s=0.1,
            retrieval_ms=np.where(slow, 4_000.0, 100.0) * rng.lognormal(0.0, 0.2, N),
            decode_ms=rng.lognormal(6.5, 0.4, N),
            ttft_retrieval_ms=np.where(slow, 4_000.0, 100.0),
            error=error,
            error_type=[None if not one else "APIError" for one in error],
            tenant=tenant.tolist(),
            output_tokens=rng.integers(1, 400, N),
        ),
    )
    return made


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is many in a store of this size."""
    monkeypatch.setattr(request_sample, "LEAST_EVEN", 500)
    monkeypatch.setattr(request_sample, "LEAST_OF_KIND", 60)
    monkeypatch.setattr(request_sample, "RARE_ROWS", 10)


def test_parts_are_powers_of_two_that_leave_enough() -> None:
    assert [part(n, 500) for n in (0, 499, 999, 1_000, 6_000, 10**9)] == [1, 1, 1, 2, 8, 2**20]


def test_the_same_requests_are_read_again_and_stand_for_all(
    con: duckdb.DuckDBPyConnection,
) -> None:
    first, again = (load(con.cursor(), FEW) for _ in range(2))
    assert first.rows.equals(again.rows)
    sample = first.sample
    assert sample is not None
    assert (sample.requests, sample.every) == (N, 8)
    assert sample.read == first.rows.height < N / 3
    assert first.rows["sample_weight"].sum() == pytest.approx(N)
    failed = first.rows.filter("error")["sample_weight"].sum()
    assert failed == pytest.approx(load(con.cursor(), WINDOW).rows["error"].sum())
    assert (first.start, first.end, first.incomplete) == (WINDOW.start, WINDOW.end, 0)


def test_failed_slow_and_rare_requests_are_kept_more_often(
    con: duckdb.DuckDBPyConnection,
) -> None:
    whole, some = load(con.cursor(), WINDOW).rows, load(con.cursor(), FEW).rows
    slowest = whole["e2e_ms"].quantile(0.995)

    def kept(condition: pl.Expr) -> float:
        return some.filter(condition).height / whole.filter(condition).height

    assert kept(pl.col("tenant") == "small") == 1.0
    assert kept(pl.col("error")) > 0.4
    assert kept(pl.col("e2e_ms") > slowest) > 0.4
    assert kept(~pl.col("error") & (pl.col("e2e_ms") < 1_000.0)) == pytest.approx(1 / 8, rel=0.15)


def test_the_even_part_is_one_trace_in_so_many_of_equal_weight(
    con: duckdb.DuckDBPyConnection,
) -> None:
    frame = load(con.cursor(), FEW)
    even = evened(assess(con.cursor(), frame, weigh=True).applied(frame))
    assert frame.sample is not None
    assert (even.every, even.sample) == (8, None)
    assert even.rows.height == frame.sample.even
    assert (even.rows["trace_key"] % 8 == 0).all()
    assert even.rows["sample_weight"].unique().to_list() == pytest.approx([N / even.rows.height])
    assert not {"is_even", "drawn_weight"} & set(even.rows.columns)
    assert even.having(["provider"]).rows.height == even.rows.height


def test_numbers_of_all_requests_are_those_of_the_whole_window(
    con: duckdb.DuckDBPyConnection,
) -> None:
    whole, some = (build(con.cursor(), one, SLO) for one in (WINDOW, FEW))
    assert some.sample is not None
    assert whole.sample is None
    assert some.window == whole.window
    assert some.goodput == whole.goodput
    assert some.errors == whole.errors
    for metric in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        ours, theirs = getattr(some.latency, metric), getattr(whole.latency, metric)
        assert (ours.n, ours.source, ours.reasons) == (theirs.n, theirs.source, theirs.reasons)
        for name in ("p50", "p75", "p90", "p95", "p99", "p99_9", "max", "p95_interval"):
            assert getattr(ours, name) == (
                None if getattr(theirs, name) is None else pytest.approx(getattr(theirs, name))
            )
    assert [(one.metric, one.n, one.missed, one.met) for one in some.limits] == [
        (one.metric, one.n, one.missed, one.met) for one in whole.limits
    ]


def test_what_is_not_exact_says_of_how_many_it_is(con: duckdb.DuckDBPyConnection) -> None:
    whole, some = (build(con.cursor(), one, SLO) for one in (WINDOW, FEW))
    assert some.sample is not None
    assert some.sample.sentence in " ".join(render(some, width=200).split())
    assert (some.verdict.status, some.verdict.stage, some.verdict.cause) == (
        whole.verdict.status,
        whole.verdict.stage,
        whole.verdict.cause,
    )
    affected = some.verdict.affected, whole.verdict.affected
    assert affected[0] is not None
    assert affected[1] is not None
    assert affected[0].requests == pytest.approx(affected[1].requests, rel=0.2)
    assert affected[0].ratio == affected[1].ratio
    for ours, theirs in zip(some.stages, whole.stages, strict=True):
        assert (ours.stage, ours.group) == (theirs.stage, theirs.group)
        assert (ours.p50_ms, ours.p99_ms) == pytest.approx(
            (theirs.p50_ms, theirs.p99_ms), rel=0.25, abs=1.0
        )


def test_cohorts_of_a_sample_are_those_of_all(con: duckdb.DuckDBPyConnection) -> None:
    whole, some = (cohorts(con.cursor(), one, SLO, "e2e") for one in (WINDOW, FEW))
    assert some.reasons == whole.reasons
    assert some.n_slow == pytest.approx(whole.n_slow / 8, rel=0.4)


def test_the_stated_error_holds_in_95_of_100_draws() -> None:
    draws = 200
    within = within_error(draws)
    assert all(
        hits >= 0.95 * draws - 2.0 * math.sqrt(0.05 * 0.95 * draws) for hits in within.values()
    ), within


def within_error(draws: int) -> dict[str, int]:
    """In how many draws of one window, under other hashes, shares of all sizes are right within the stated error, by the query and the weights that are used."""
    con = duckdb.connect()
    rng = np.random.default_rng(11)
    n = 8_000
    rows = pl.DataFrame(
        {
            "row": np.arange(n),
            "error": rng.random(n) < 0.01,
            "e2e_ms": rng.lognormal(7.0, 0.8, n),
            "ttft_ms": rng.lognormal(5.0, 0.5, n),
            **{name: pl.Series([None] * n, dtype=pl.String) for name in NAMES if name != "tenant"},
            "tenant": np.where(rng.random(n) < 0.004, "small", "large"),
            "half": rng.random(n) < 0.5,
        }
    )
    failed, rare = int(rows["error"].sum()), rows.filter(pl.col("tenant") == "small")
    every = part(n, 500)

    def of(size: float) -> int:
        return min(every, part(size, request_sample.LEAST_OF_KIND))

    edges = [rows[name].quantile(0.99) for name in ("e2e_ms", "ttft_ms")]
    parameters = {
        "every": every,
        "failed_every": of(failed),
        "slow_every": of(0.02 * n),
        "rare_every": of(rare.height),
        "slow_ms": edges[0],
        "slow_ttft_ms": edges[1],
        **{f"rare_{name}": ["small"] if name == "tenant" else [] for name in NAMES},
    }
    made = Plan(n, 0, failed, every, parameters, 0, 1)
    con.execute("create table r as select * from rows")
    shares = {
        "half": pl.col("half"),
        "slow": pl.col("e2e_ms") > 2_000.0,
        "tail": pl.col("e2e_ms") > 5_000.0,
        "small": pl.col("tenant") == "small",
        "failed": pl.col("error"),
    }
    true = {name: rows.select(one.mean()).item() for name, one in shares.items()}
    within = dict.fromkeys([*shares, "half of the even part"], 0)
    # One number is hashed for row and draw. The hash of two mixes them by an exclusive or, and its last bits would give sixteen different draws at most.
    for draw in range(draws):
        chosen = (
            f"select *, {condition()} as drawn_weight, hash(row + {draw * n}) % $every::ubigint = 0 as is_even "
            f"from r where hash(row + {draw * n}) % {condition()} = 0 order by row"
        )
        drawn = fetch_frame(con, chosen, parameters)
        one = Sample(n, drawn.height, every, int(drawn["is_even"].sum()))
        standing = weights(drawn["drawn_weight"].to_numpy(), drawn["error"].to_numpy(), made)
        assert standing.sum() == pytest.approx(n)
        for name, which in shares.items():
            hit = drawn.select(which).to_series().to_numpy()
            found = float(standing[hit].sum()) / n
            within[name] += abs(found - true[name]) <= one.error
        even = drawn.with_columns(
            sample_weight=pl.Series(standing), drawn_weight=pl.Series(standing)
        )
        share = even_part(even, one)["half"].mean()
        within["half of the even part"] += abs(float(share or 0.0) - true["half"]) <= one.error  # type: ignore[arg-type]
    return within


def test_the_plan_counts_all_requests(con: duckdb.DuckDBPyConnection) -> None:
    made = plan(con.cursor(), query("name_counts"), query("sample_extent"), filter_of(WINDOW), N)
    assert (made.requests, made.incomplete, made.every) == (N, 0, 8)
    assert made.parameters["rare_tenant"] == ["small"]
    assert made.parameters["rare_every"] == 1
    assert isinstance(WINDOW.start, datetime)
    assert made.start_us == int(WINDOW.start.timestamp() * 1e6)
