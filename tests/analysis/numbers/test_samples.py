"""Reading part of the engines' samples gives what reading all of them gives: the same rates, totals and ends."""

import duckdb
import numpy as np
import polars as pl
import pytest

from overrun.analysis.numbers import window
from overrun.analysis.numbers.latency.histograms import Increments, load
from overrun.analysis.numbers.window import read_samples
from tests.analysis.builders import at, gauge, store
from tests.analysis.numbers.quality.test_checks import histogram

DAY_S = 86_400
EDGES = [0.1, 1.0]


@pytest.fixture
def con() -> duckdb.DuckDBPyConnection:
    """A day of one instance, scraped every minute: a gauge that is the minute's number, a counter that rises by 600 a minute, a histogram by six values."""
    made = store()
    gauge(made, "running", {60.0 * i: float(i) for i in range(DAY_S // 60)})
    gauge(made, "output_tokens", {60.0 * i: 600.0 * i for i in range(DAY_S // 60)})
    made.execute(
        "update points set kind = 2, temporality = 2, monotonic = true where indicator = 'output_tokens'"
    )
    histogram(
        made,
        "ttft",
        EDGES,
        {600.0 * i: [10.0 * i, 20.0 * i, 30.0 * i] for i in range(DAY_S // 600)},
        total=1.0,
    )
    return made


def samples(
    con: duckdb.DuckDBPyConnection, start_s: float, end_s: float, indicator: str
) -> pl.DataFrame:
    return read_samples(con, "metric_points", at(start_s), at(end_s), None, indicators=[indicator])


def ttft(con: duckdb.DuckDBPyConnection, start_s: float, end_s: float) -> Increments:
    return load(con, at(start_s), at(end_s), ["ttft"])["ttft"]


def test_the_first_sample_of_a_window_has_its_rate_from_the_one_before_it(
    con: duckdb.DuckDBPyConnection,
) -> None:
    found = samples(con, 3_600, 3_900, "output_tokens")
    assert found["value"].to_list() == [10.0] * 6
    whole = con.sql(
        "select epoch_us(time) as time_us, value from v_metric_points where indicator = 'output_tokens'"
    ).pl()
    assert found.join(whole, on=["time_us", "value"], how="anti").is_empty()


def test_a_window_with_very_many_samples_is_read_in_part_and_says_the_same(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ttft(con, 0, DAY_S)
    monkeypatch.setattr(window, "MOST_SAMPLES", 300)
    running, rates, part = (
        samples(con, 0, DAY_S, "running"),
        samples(con, 0, DAY_S, "output_tokens"),
        ttft(con, 0, DAY_S),
    )
    assert 100 < running.height < 300
    assert running["value"].to_list()[:5] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert running["value"].to_list()[-4:] == [1436.0, 1437.0, 1438.0, 1439.0]
    np.testing.assert_allclose(rates["value"].to_numpy(), 10.0)
    assert len(part.counts) < len(whole.counts)
    assert part.counts.sum(axis=0).tolist() == pytest.approx(
        whole.counts.sum(axis=0).tolist(), rel=0.1
    )
    assert (part.from_us[1:] == part.to_us[:-1]).all()


def test_an_hour_of_the_day_is_read_whole_where_the_day_is_not(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "MOST_SAMPLES", 300)
    assert samples(con, 36_000, 39_600, "running")["value"].to_list() == [
        float(minute) for minute in range(600, 661)
    ]


def test_delta_histograms_are_read_whole(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    con.execute("update points set temporality = 1 where kind = 3")
    whole = ttft(con, 0, DAY_S)
    monkeypatch.setattr(window, "MOST_SAMPLES", 300)
    assert ttft(con, 0, DAY_S).counts.tolist() == whole.counts.tolist()


def test_edges_that_change_on_the_way_keep_what_both_have(con: duckdb.DuckDBPyConnection) -> None:
    histogram(
        con,
        "e2e",
        [0.5, 1.0, 2.0],
        {0.0: [0.0, 0.0, 0.0, 0.0], 60.0: [1.0, 2.0, 3.0, 4.0]},
        total=1.0,
    )
    histogram(
        con,
        "e2e",
        [1.0, 4.0],
        {120.0: [5.0, 6.0, 7.0], 180.0: [7.0, 9.0, 11.0], 240.0: [1.0, 0.0, 0.0]},
        total=1.0,
    )
    found = load(con, at(0), at(300), ["e2e"])["e2e"]
    assert (found.edges.tolist(), found.counts.tolist()) == (
        [1.0],
        [[3.0, 7.0], [2.0, 7.0], [1.0, 0.0]],
    )
    assert [
        (int(a), int(b))
        for a, b in zip(
            found.from_us - found.from_us[0], found.to_us - found.from_us[0], strict=True
        )
    ] == [(0, 60_000_000), (120_000_000, 180_000_000), (180_000_000, 240_000_000)]
