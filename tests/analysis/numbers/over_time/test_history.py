"""Rollups: percentiles within the stated bound of the exact ones, buckets that add up in any order, and minutes that are counted once."""

from datetime import timedelta
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overrun.analysis.numbers.over_time.history import ERROR_BOUND, bucket_quantile, history
from overrun.analysis.numbers.requests.request_list import ListError
from overrun.analysis.numbers.window import Window
from overrun.collector.lifecycle import rollups
from overrun.collector.lifecycle.rollups import (
    MINUTE_NS,
    OPEN_NS,
    expire,
    roll_up,
    rolled_up_through,
)
from overrun.collector.store.database import set_meta
from tests.analysis.builders import T0_NS, at, insert, requests, store

RNG = np.random.default_rng(9)
GAMMA = 1.01 / 0.99


def filled(n: int = 5_000, minutes: float = 300.0) -> tuple[duckdb.DuckDBPyConnection, np.ndarray]:
    con = store()
    e2e = RNG.lognormal(6.0, 1.2, n)
    insert(
        con,
        requests(
            n,
            start_s=np.sort(RNG.uniform(0, minutes * 60.0, n)),
            prefill_ms=e2e,
            error=RNG.random(n) < 0.02,
            route=["/a", "/b"] * (n // 2),
        ),
    )
    return con, e2e


def fold(con: duckdb.DuckDBPyConnection, now_ns: int) -> None:
    while roll_up(con, now_ns):
        pass


def test_percentiles_through_rollups_are_within_the_bound_of_the_exact_ones() -> None:
    con, _ = filled()
    fold(
        con, T0_NS + 200 * MINUTE_NS + OPEN_NS
    )  # two thirds are folded, the rest is read from the requests
    found = history(con, Window(), "e2e")
    exact = con.sql("select e2e_ms from v_requests where status = 'ok'").pl()["e2e_ms"].to_numpy()
    assert found.n == len(exact)
    assert found.rolled_up_until == at(200 * 60)
    for p, value in ((0.5, found.p50), (0.95, found.p95), (0.99, found.p99)):
        assert value == pytest.approx(np.quantile(exact, p), rel=ERROR_BOUND + 1e-9)
    assert (found.requests, found.errors) == (5_000, 5_000 - len(exact))
    for point in found.points:
        mine = (
            con.sql(
                "select e2e_ms from v_requests where status = 'ok' and start >= $a and start < $b",
                params={"a": point.start, "b": point.start + timedelta(seconds=found.step_s)},
            )
            .pl()["e2e_ms"]
            .to_numpy()
        )
        assert point.n == len(mine)
        if point.p50 is not None:
            assert point.p50 == pytest.approx(np.quantile(mine, 0.5), rel=ERROR_BOUND + 1e-9)


def test_folding_changes_no_answer() -> None:
    con, _ = filled(2_000)
    raw = history(con, Window(route="/a"), "e2e")
    fold(con, T0_NS + 10_000 * MINUTE_NS)
    folded = history(con, Window(route="/a"), "e2e")
    assert raw.reasons["rolled_up_until"]
    assert ([p.p50 for p in folded.points], folded.p95, folded.requests) == (
        [p.p50 for p in raw.points],
        raw.p95,
        raw.requests,
    )


def test_minutes_that_were_folded_one_by_one_become_one_piece_and_say_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    con, _ = filled(2_000, minutes=40.0)
    raw = history(con, Window(), "e2e")
    monkeypatch.setattr("overrun.collector.lifecycle.rollups.PACK_ROWS", 600)
    con.execute(
        f"attach '{tmp_path / 'file.db'}' as file"
    )  # row groups are what a checkpoint of a file leaves
    con.execute("set global max_vacuum_tasks = 0")
    con.execute("copy from database memory to file")
    con.execute("use file")
    pieces = []
    for minute in range(42):
        fold(con, T0_NS + minute * MINUTE_NS + OPEN_NS)
        con.execute("checkpoint file")
        pieces.append(
            con.sql(
                "select count(distinct row_group_id) from pragma_storage_info('rollups')"
            ).fetchall()[0][0]
        )
    assert pieces[:5] == [0, 1, 2, 3, 4]
    assert max(pieces) < 20  # once they are enough they are one
    folded = history(con, Window(), "e2e")
    assert ([p.p50 for p in folded.points], folded.p99, folded.requests) == (
        [p.p50 for p in raw.points],
        raw.p99,
        raw.requests,
    )
    assert con.sql("select count(*), count(distinct minute_ns) from rollup_counts").fetchall() == [
        (80, 40)
    ]  # two routes


def test_history_outlives_its_requests_until_its_own_retention() -> None:
    con, _ = filled(2_000)
    fold(con, T0_NS + 10_000 * MINUTE_NS)
    before = history(con, Window(), "e2e")
    con.execute("delete from requests")
    after = history(con, Window(), "e2e")
    assert (after.n, after.p99, after.errors) == (before.n, before.p99, before.errors)
    expire(con, T0_NS + 150 * MINUTE_NS)
    assert 0 < history(con, Window(), "e2e").n < before.n


def test_a_minute_is_folded_once_and_open_ones_are_left() -> None:
    con, _ = filled(2_000)
    now = T0_NS + 100 * MINUTE_NS + OPEN_NS + 30 * 10**9
    fold(con, now)
    fold(con, now)
    assert rolled_up_through(con) == T0_NS + 100 * MINUTE_NS
    folded = con.sql("select sum(requests) from rollup_counts").fetchall()[0][0]
    assert (
        folded
        == con.sql(
            f"select count(*) from requests where start_ns < {now - OPEN_NS - 30 * 10**9}"
        ).fetchall()[0][0]
    )


def test_a_first_rollup_skips_what_cannot_be_and_what_is_empty() -> None:
    """One request of 1970 in a file of an earlier version: once 83,132 steps of the writer."""
    con, _ = filled(2_000)
    con.execute(
        "create temp table odd as select * replace (1::bigint as start_ns) from requests limit 1"
    )
    con.execute("insert into requests select * from odd")
    con.execute("create temp table late as select * from requests where start_ns > 1 limit 1")
    late = T0_NS + 40_000 * MINUTE_NS
    con.execute(f"insert into requests select * replace ({late} as start_ns) from late")
    steps = 1
    while roll_up(con, late + 60 * MINUTE_NS):
        steps += 1
    assert steps < 20
    assert rolled_up_through(con) == late + 60 * MINUTE_NS - OPEN_NS
    assert con.sql("select sum(requests) from rollup_counts").fetchall() == [(2_001,)]


def test_a_watermark_in_the_future_is_taken_back_and_minutes_are_folded_again() -> None:
    con, _ = filled(2_000)
    whole = store()
    rows = con.sql("from requests").to_arrow_table()
    whole.execute("insert into requests by name select * from rows")
    del rows
    end = T0_NS + 10_000 * MINUTE_NS
    fold(whole, end)
    fold(con, T0_NS + 100 * MINUTE_NS + OPEN_NS)
    set_meta(con, "rolled_up_through", str(T0_NS + 50_000 * MINUTE_NS))  # a clock was ahead
    fold(con, end)
    assert rolled_up_through(con) == end - OPEN_NS
    asked = "select minute_ns, sum(requests) from rollup_counts group by all order by all"
    assert con.sql(asked).fetchall() == whole.sql(asked).fetchall()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=60),
    st.floats(0.0, 1.0),
    st.integers(0, 1_000),
)
def test_buckets_keep_the_bound_whatever_the_values_and_however_they_are_merged(
    values: list[float], p: float, seed: int
) -> None:
    buckets = np.ceil(np.log(values) / np.log(GAMMA)).astype(int)
    shuffled = np.random.default_rng(seed).permutation(buckets)
    parts = np.array_split(shuffled, 3)
    merged: dict[int, int] = {}
    for part in parts:
        for bucket, n in zip(*np.unique(part, return_counts=True), strict=True):
            merged[int(bucket)] = merged.get(int(bucket), 0) + int(n)
    keys = sorted(merged)
    middle = np.array([2.0 * GAMMA**key / (GAMMA + 1.0) for key in keys])
    found = bucket_quantile(middle, np.array([merged[key] for key in keys]), p)
    assert found == pytest.approx(np.quantile(values, p), rel=ERROR_BOUND + 1e-6)


def test_unknown_metric_and_empty_store_are_told() -> None:
    with pytest.raises(ListError):
        history(store(), Window(), "speed")
    assert history(store(), Window(), "e2e").reasons["p95"] == "no request in the window"


def test_names_beyond_the_limit_are_folded_together_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rollups, "MOST_NAMES", 5)
    con, cut = store(), list[int]()
    n = 400
    named = ["/usual" if i % 2 else f"/flood/{i}" for i in range(n)]
    e2e = RNG.lognormal(6.0, 1.0, n)
    insert(
        con, requests(n, start_s=np.linspace(0, 590, n), prefill_ms=e2e, route=named, tenant=named)
    )
    while roll_up(con, T0_NS + 60 * MINUTE_NS, cut=cut.append):
        pass
    kept = con.execute("select minute_ns, count(*) from rollup_counts group by all").fetchall()
    assert len(kept) == 10
    assert {names for _, names in kept} == {6}  # five, and the others
    assert con.execute(
        "select sum(requests), count(distinct minute_ns) from rollup_counts where route = '/usual'"
    ).fetchall() == [(n // 2, 10)]
    assert sum(cut) == n // 2 - 10 * 4
    whole = history(con, Window(), "e2e")
    assert (whole.requests, whole.n) == (n, n)
    assert whole.p95 == pytest.approx(np.quantile(e2e, 0.95), rel=ERROR_BOUND + 1e-9)
    usual = history(con, Window(route="/usual"), "e2e")
    assert (usual.n, usual.missed) == (n // 2, sum(cut))
    assert "put together as (other)" in usual.reasons["missed"]
    assert (whole.missed, "missed" in whole.reasons) == (0, False)
    early = Window(end=at(0), route="/usual")
    assert history(con, early, "e2e").missed == 0
    assert history(con, Window(route="(other)"), "e2e").missed == 0
    one = history(con, Window(instance="vllm-0", route="/usual"), "e2e")
    assert one.missed == n // 2 + sum(cut)
    assert "not kept by instance" in one.reasons["missed"]
