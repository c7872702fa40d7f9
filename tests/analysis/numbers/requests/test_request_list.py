"""The request list, what the store holds, and the parts of the waterfall."""

import msgspec
import numpy as np
import pytest

from overrun.analysis.front import report as reports
from overrun.analysis.front.stage_waterfall import Stages, stages_of
from overrun.analysis.numbers.requests.request_list import (
    ListError,
    RequestList,
    extent,
    holdings,
    list_requests,
)
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import T0, at, insert, requests, store


def test_the_slowest_come_first_with_their_stages() -> None:
    con = store()
    insert(con, requests(3, retrieval_ms=[10.0, 300.0, 20.0], decode_ms=[50.0, 50.0, 500.0]))
    found = list_requests(con, Window(), sort="e2e")
    assert [row.e2e_ms for row in found.rows] == [520.0, 350.0, 60.0]
    assert [row.slowest_stage for row in found.rows] == ["decode", "retrieval", "decode"]
    assert all(sum(row.stages.values()) == pytest.approx(row.e2e_ms) for row in found.rows)
    assert found.rows[0].start == at(2)


def test_a_limit_keeps_the_total() -> None:
    con = store()
    insert(con, requests(30, other_ms=10.0))
    found = list_requests(con, Window(), limit=7)
    assert (len(found.rows), found.total) == (7, 30)


def test_other_orders() -> None:
    con = store()
    insert(
        con,
        requests(
            3, other_ms=[1.0, 2.0, 3.0], ttft_other_ms=[0.9, 0.5, 0.1], output_tokens=[5, None, 9]
        ),
    )
    tokens = [row.output_tokens for row in list_requests(con, Window(), sort="output_tokens").rows]
    assert tokens == [9, 5, None]
    by_ttft = list_requests(con, Window(), sort="ttft").rows
    assert [row.ttft_ms for row in by_ttft] == [0.9, 0.5, 0.1]
    assert [row.ttft_stages for row in by_ttft] == [
        {"other": 0.9},
        {"other": 0.5},
        {"other": 0.1},
    ]  # which is not what the whole requests took
    starts = [row.start for row in list_requests(con, Window(), sort="start").rows]
    assert starts == sorted(starts, reverse=True)


def test_failed_requests_come_first_the_newest_on_top() -> None:
    con = store()
    insert(
        con,
        requests(
            6,
            other_ms=[60.0, 50.0, 40.0, 30.0, 20.0, 10.0],
            error=[True, False, True, False, False, True],
        ),
    )
    found = list_requests(con, Window(), sort="errors")
    assert [(row.status, row.e2e_ms) for row in found.rows] == [
        ("error", 10.0),
        ("error", 40.0),
        ("error", 60.0),
        ("ok", 20.0),
        ("ok", 30.0),
        ("ok", 50.0),
    ]


def test_a_row_of_the_heat_map_is_half_open() -> None:
    con = store()
    insert(con, requests(3, other_ms=[100.0, 200.0, 300.0]))
    found = list_requests(con, Window(), metric="e2e", min_ms=100.0, max_ms=300.0)
    assert sorted(row.e2e_ms for row in found.rows) == [100.0, 200.0]


@pytest.mark.parametrize(
    "wrong", [{"sort": "slowest"}, {"limit": 0}, {"limit": 1001}, {"metric": "p95"}]
)
def test_what_the_list_does_not_know_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ListError):
        list_requests(store(), Window(), **wrong)  # type: ignore[arg-type]


def test_filters_narrow_list_and_extent_but_menus_keep_their_alternatives() -> None:
    con = store()
    insert(
        con,
        requests(4, other_ms=1.0, service="a", route="/x"),
        requests(2, other_ms=1.0, service="b", route="/y"),
    )
    window = Window(start=T0, end=at(60), service="b")
    assert list_requests(con, window).total == extent(con, window).n == 2
    values = holdings(con, window).values
    assert [(value.name, value.requests) for value in values["service"]] == [("a", 4), ("b", 2)]
    assert [value.name for value in values["route"]] == ["/y"]


def test_holdings_look_beyond_the_window() -> None:
    con = store()
    insert(con, requests(3, every_s=10.0, other_ms=1.0))
    found = holdings(con, Window(start=at(1000), end=at(2000)))
    assert (found.oldest, found.newest, found.requests) == (T0, at(20), 3)
    assert found.values == {"service": [], "model": [], "route": [], "tenant": []}


def test_an_empty_store_holds_nothing() -> None:
    found = holdings(store(), Window())
    assert (found.oldest, found.newest, found.requests, found.spans) == (None, None, 0, False)
    assert extent(store(), Window()).n == 0
    assert list_requests(store(), Window()) == RequestList(sort="e2e", limit=200, total=0, rows=[])


def test_the_waterfall_sums_to_the_report() -> None:
    con, rng = store(), np.random.default_rng(2)
    insert(
        con,
        requests(
            400,
            retrieval_ms=rng.exponential(300.0, 400),
            decode_ms=rng.exponential(900.0, 400),
            other_ms=5.0,
        ),
    )
    report = reports.build(con, Window(), Slo(e2e_ms=1500.0), with_findings=False)
    found = stages_of(report)
    assert found.metric == found.path == "e2e"
    assert (found.typical_n, found.slow_n, found.n) == (80, 16, 400)
    assert found.typical_ms is not None
    assert found.slow_ms is not None
    assert sum(part.added_ms for part in found.parts) == pytest.approx(
        found.slow_ms - found.typical_ms, abs=1e-6
    )
    assert {part.stage for part in found.parts} == {"retrieval", "decode", "other"}
    assert msgspec.json.decode(msgspec.json.encode(found), type=Stages) == found


def test_without_enough_requests_there_is_a_reason_instead_of_parts() -> None:
    con = store()
    insert(con, requests(3, other_ms=1.0))
    found = stages_of(reports.build(con, Window(), Slo(e2e_ms=1500.0), with_findings=False))
    assert (found.parts, found.typical_ms, found.metric) == ([], None, None)
    assert found.reasons["parts"]
