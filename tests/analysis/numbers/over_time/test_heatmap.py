"""The heat map: every successful request is in exactly one cell, and the cell is the right one."""

import msgspec
import numpy as np
import pytest

from overrun.analysis.numbers.over_time.heatmap import BASE_MS, MOST_COLUMNS, Heatmap, heatmap
from overrun.analysis.numbers.requests.request_list import ListError
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import T0, at, insert, requests, store

SLO = Slo(ttft_ms=100.0)


def test_every_successful_request_is_counted_in_its_own_cell() -> None:
    con, rng = store(), np.random.default_rng(1)
    values = np.exp(rng.normal(np.log(400.0), 1.5, 500))
    insert(con, requests(500, every_s=1.0, other_ms=values))
    found = heatmap(con, Window(start=T0, end=at(500)), SLO, "e2e")
    assert found.n == sum(map(sum, found.counts)) == 500
    stored = np.rint(values * 1e6) / 1e6
    edges = np.array(found.edges_ms)
    for row in range(len(found.counts)):
        inside = (stored >= edges[row]) & (stored < edges[row + 1])
        assert sum(found.counts[row]) == inside.sum()
    columns = np.arange(500) // found.step_s
    assert [
        sum(row[c] for row in found.counts) for c in range(len(found.counts[0]))
    ] == np.bincount(columns).tolist()


def test_usual_metrics_always_show_50_ms_to_30_s() -> None:
    con = store()
    insert(con, requests(10, other_ms=1000.0))
    found = heatmap(con, Window(start=T0, end=at(60)), SLO, "e2e")
    assert found.edges_ms[0] == BASE_MS
    assert found.edges_ms[-1] >= 30_000.0
    assert found.labels_ms[:3] == [50.0, 100.0, 200.0]
    assert found.labels_ms[-1] == 30_000.0


def test_extremes_count_in_the_outermost_rows() -> None:
    con = store()
    insert(con, requests(3, other_ms=[0.0, 1e-6, 9e6]))
    found = heatmap(con, Window(start=T0, end=at(60)), SLO, "e2e")
    assert (sum(found.counts[0]), sum(found.counts[-1]), found.n) == (2, 1, 3)


@pytest.mark.parametrize("edge", [50.0, 100.0, 500.0, 5000.0])
def test_a_value_on_an_edge_belongs_to_the_row_above(edge: float) -> None:
    con = store()
    insert(con, requests(1, other_ms=[edge]))
    found = heatmap(con, Window(start=T0, end=at(60)), SLO, "e2e")
    row = next(i for i, counts in enumerate(found.counts) if sum(counts))
    assert found.edges_ms[row] <= edge * (1 + 1e-9)
    assert edge < found.edges_ms[row + 1] * (1 - 1e-9)


def test_failed_requests_and_those_without_the_metric_are_not_drawn() -> None:
    con = store()
    insert(con, requests(4, other_ms=10.0, error=[True, False, False, False]))
    found = heatmap(con, Window(start=T0, end=at(60)), SLO, "ttft")
    assert (found.counts, found.n) == ([], 0)
    assert "TTFT" in found.reasons["counts"]


@pytest.mark.parametrize("seconds", [1, 89, 3601, 86_400, 9_000_000])
def test_columns_are_bounded(seconds: int) -> None:
    con = store()
    insert(con, requests(2, start_s=[0, seconds - 0.5], other_ms=10.0))
    found = heatmap(con, Window(start=T0, end=at(seconds)), SLO, "e2e")
    assert len(found.counts[0]) <= MOST_COLUMNS + 1
    assert found.n == 2


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ListError):
        heatmap(store(), Window(), SLO, "latency")


def test_it_survives_the_wire() -> None:
    con = store()
    insert(con, requests(10, other_ms=1000.0))
    found = heatmap(con, Window(start=T0, end=at(60)), SLO, "e2e")
    assert msgspec.json.decode(msgspec.json.encode(found), type=Heatmap) == found
