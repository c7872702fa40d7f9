"""Which window is the baseline: as asked, the same hours of a healthy day, the healthy span before, or none."""

import duckdb
import numpy as np
import polars as pl
import pytest

from overrun.analysis.incident.baseline import Chosen, choose, why_none
from overrun.analysis.numbers.window import Window, load
from overrun.analysis.words.slo import Slo
from tests.analysis.builders import at, insert, requests, store

DAY = 86_400.0
SLO = Slo(e2e_ms=1_000.0)


def hour(start_s: float, *, slow: bool = False) -> pl.DataFrame:
    return requests(
        200, start_s=start_s + np.arange(200) * 18.0, prefill_ms=2_000.0 if slow else 100.0
    )


def chosen(con: duckdb.DuckDBPyConnection, baseline: str = "auto") -> Chosen | None:
    return choose(con, load(con, Window(at(0), at(3_600), baseline)), SLO)


def test_auto_takes_the_same_hours_of_the_latest_healthy_day() -> None:
    con = store()
    insert(
        con, hour(0, slow=True), hour(-DAY, slow=True), hour(-2 * DAY), hour(-3 * DAY), hour(-3_600)
    )
    found = chosen(con)
    assert found is not None
    assert (found.frame.start, found.frame.rows.height) == (at(-2 * DAY), 200)
    assert found.choice == "auto: the same hours 2 days before, healthy"


def test_auto_takes_the_healthy_span_before_where_no_day_is_known() -> None:
    con = store()
    insert(con, hour(0, slow=True), hour(-3_600))
    found = chosen(con)
    assert found is not None
    assert found.frame.start == at(-3_600)
    assert "just before" in found.choice


def test_auto_finds_none_among_sick_or_absent_windows() -> None:
    con = store()
    insert(con, hour(0, slow=True))
    assert chosen(con) is None
    insert(con, hour(-3_600, slow=True).with_columns(trace_hi=pl.lit(9, pl.UInt64)))
    assert chosen(con) is None


def test_a_span_before_begins_with_what_is_stored_of_it() -> None:
    con = store()
    insert(
        con,
        hour(0, slow=True),
        requests(150, start_s=-2_700 + np.arange(150) * 18.0, prefill_ms=100.0),
    )
    found = chosen(con)
    assert found is not None
    assert (found.frame.start, found.frame.end) == (at(-2_700), at(0))


def test_auto_takes_what_was_healthy_of_the_span_before() -> None:
    con = store()
    before = requests(
        200,
        start_s=-3_600 + np.arange(200) * 18.0,
        prefill_ms=np.where(np.arange(200) < 150, 100.0, 2_000.0),
    )
    insert(con, hour(0, slow=True), before)
    found = chosen(con)
    assert found is not None
    assert (found.frame.start, found.frame.end, found.frame.rows.height) == (
        at(-3_600),
        at(-900),
        150,
    )
    assert found.onset == at(-900)
    assert (
        found.choice == "auto: the period of equal length just before, healthy until 09:45:00 UTC"
    )


def test_auto_looks_further_back_past_what_is_sick_as_a_whole() -> None:
    con = store()
    insert(con, hour(0, slow=True), hour(-3_600, slow=True), hour(-7_200))
    found = chosen(con)
    assert found is not None
    assert (found.frame.start, found.frame.end, found.onset) == (at(-7_200), at(-3_600), None)
    assert found.choice == "auto: the period of equal length 2 before, healthy"


def test_previous_is_the_equal_span_before_and_none_is_none() -> None:
    con = store()
    insert(con, hour(0), hour(-3_600, slow=True))
    found = chosen(con, "previous")
    assert found is not None
    assert (found.frame.start, found.frame.end) == (at(-3_600), at(0))
    assert chosen(con, "none") is None


def test_a_single_request_that_took_no_time_has_no_span_before_it() -> None:
    con = store()
    insert(con, requests(2, complete=[False, True]))
    frame = load(con, Window())
    assert frame.start == frame.end
    assert choose(con, frame, SLO) is None


def test_a_span_before_that_is_over_the_target_serves_where_it_is_far_less_so() -> None:
    """Every request is slow now; of those before one in 13 was, of which the target allows one in twenty, or one in four."""

    def every(k: int) -> pl.DataFrame:
        return requests(
            200,
            start_s=-3_600 + np.arange(200) * 18.0,
            prefill_ms=np.where(np.arange(200) % k == 0, 2_000.0, 100.0),
        )

    con = store()
    insert(con, hour(0, slow=True), every(13))
    found = chosen(con)
    assert found is not None
    assert (found.frame.start, found.frame.end, found.onset) == (at(-3_600), at(0), None)
    assert (
        found.choice
        == "auto: the period of equal length just before, which misses the target as well (8 % of its requests, 100 % now)"
    )
    con = store()
    insert(con, hour(0, slow=True), every(2))
    found = chosen(con)
    assert found is not None
    assert "misses the target as well (50 % of its requests, 100 % now)" in found.choice


def test_what_is_stored_before_counts_wherever_it_lies() -> None:
    """A restart lies between: the 120 requests of the first minutes are in no equal span, and one in ten of them was slow."""
    before = requests(
        120,
        start_s=-50_000 + np.arange(120) * 5.0,
        prefill_ms=np.where(np.arange(120) % 10 == 0, 2_000.0, 100.0),
    )
    con = store()
    insert(con, hour(0, slow=True), before)
    found = chosen(con)
    assert found is not None
    assert found.frame.rows.height == 120
    assert found.choice == (
        "auto: all that is stored before it, which misses the target as well (10 % of its requests, 100 % now)"
    )


@pytest.mark.parametrize(
    ("n", "slow", "said"),
    [
        (0, False, "nothing older is stored"),
        (
            12,
            False,
            "only 12 requests are stored before it, since 09:00:00 UTC, and P95 needs 59",
        ),
        (
            200,
            True,
            "of the 200 requests stored before it, since 09:00:00 UTC, 100 % miss the target, not clearly less than now (100 %)",
        ),
    ],
)
def test_why_there_is_no_baseline_says_what_is_stored(n: int, slow: bool, said: str) -> None:
    con = store()
    insert(con, hour(0, slow=True))
    if n:
        insert(con, hour(-3_600, slow=slow).head(n).with_columns(trace_hi=pl.lit(9, pl.UInt64)))
    assert choose(con, load(con, Window(at(0), at(3_600))), SLO) is None
    assert why_none(con, load(con, Window(at(0), at(3_600))), SLO) == said


def test_a_limit_on_what_nobody_tells_does_not_hide_a_healthy_span() -> None:
    """No answer is streamed, so none has a TTFT: the E2E of the span before says that it was healthy."""
    con = store()
    insert(con, hour(0, slow=True), hour(-3_600))
    slo = Slo(ttft_ms=500.0, e2e_ms=1_000.0)
    frame = load(con, Window(at(0), at(3_600)))
    assert frame.rows["ttft_ms"].null_count() == frame.rows.height
    found = choose(con, frame, slo)
    assert found is not None
    assert found.choice == "auto: the period of equal length just before, healthy"
