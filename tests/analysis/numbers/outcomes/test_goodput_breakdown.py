"""Goodput by route, model and tenant, and which limits were missed alone or together, against counts by hand."""

from overrun.analysis.numbers.outcomes.goodput import goodput, judge
from overrun.analysis.numbers.outcomes.goodput_breakdown import MOST_VALUES, goodput_by
from overrun.analysis.numbers.window import Window
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import frame_of, insert, requests, store

SLO = Slo(ttft_ms=1_000.0, e2e_ms=2_000.0)


def test_limits_missed_alone_and_together() -> None:
    ttft, e2e = (
        [100.0] * 5 + [1_500.0] * 3 + [100.0] * 2 + [1_500.0] * 4,
        [500.0] * 5 + [1_800.0] * 3 + [3_000.0] * 2 + [3_000.0] * 4,
    )
    found = goodput(judge(frame_of(requests(14, prefill_ms=e2e, ttft_ms=ttft)).rows, SLO), 14.0)
    assert (found.good, found.bad) == (5, 9)
    assert (found.failed_by.ttft, found.failed_by.e2e) == (7, 6)
    assert (found.failed_alone.ttft, found.failed_alone.e2e, found.failed_together) == (3, 2, 4)


def test_parts_add_up_to_the_whole() -> None:
    con = store()
    slow = [i % 4 == 0 for i in range(100)]
    tenants = ["acme" if s else f"t{i % 2}" for i, s in enumerate(slow)]
    insert(
        con,
        requests(
            100, prefill_ms=[5_000.0 if s else 100.0 for s in slow], ttft_ms=100.0, tenant=tenants
        ),
    )
    found = goodput_by(con, Window(), SLO)
    by_tenant = [part for part in found.parts if part.attribute == "tenant"]
    assert (by_tenant[0].value, by_tenant[0].lost_ratio, by_tenant[0].goodput.ratio) == (
        "acme",
        1.0,
        0.0,
    )
    for attribute in ("route", "model", "tenant"):
        parts = [part for part in found.parts if part.attribute == attribute]
        assert sum(part.requests for part in parts) == 100
        assert sum(part.goodput.good for part in parts) == found.whole.good
    assert goodput_by(store(), Window(), SLO).parts == []


def test_of_hundreds_of_tenants_those_with_most_bad_requests_are_told() -> None:
    con = store()
    tenants = [f"t{i % 300}" for i in range(900)]
    bad = [i % 300 < 25 and i < 300 + 300 * (i % 300 < 5) for i in range(900)]
    insert(
        con,
        requests(
            900,
            prefill_ms=[5_000.0 if one else 100.0 for one in bad],
            ttft_ms=100.0,
            tenant=tenants,
        ),
    )
    told = [part for part in goodput_by(con, Window(), SLO).parts if part.attribute == "tenant"]
    assert len(told) == MOST_VALUES
    assert [part.goodput.bad for part in told] == [2] * 5 + [1] * 15
    assert {part.value for part in told[:5]} == {f"t{i}" for i in range(5)}
    assert all(part.requests == 3 for part in told)
