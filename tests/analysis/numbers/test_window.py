"""Window texts and the rows that pass the filter, through the real views."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overrun.analysis.numbers import window
from overrun.analysis.numbers.window import (
    FIRST_TOKEN_PATH,
    Window,
    _in_order,
    count,
    load,
    load_evidence_spans,
    load_trace_ids,
    make_window,
)
from overrun.analysis.words.errors import WindowError
from overrun.analysis.words.times import parse_duration, parse_range, parse_time
from tests.analysis.builders import (
    at,
    frame_of,
    gauge,
    insert,
    insert_spans,
    requests,
    spans_of,
    store,
    vllm_gauges,
)

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("15m", 900), ("1h30m", 5400), ("7d", 604_800), ("1.5h", 5400), ("250ms", 0.25)],
)
def test_duration_is_a_sum_of_numbers_with_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "1", "h", "1x", "1h 30", "-1h", "0s", "99999999d", "1h,2m"])
def test_other_durations_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(WindowError, match=r"90s|above zero"):
        parse_duration(text)


def test_time_is_rfc_3339_with_its_zone_or_relative_to_now() -> None:
    assert parse_time("2026-11-20T11:00:00+01:00", NOW) == datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
    assert parse_time("2026-11-20t10:00:00.5z", NOW) == datetime(
        2026, 11, 20, 10, 0, 0, 500_000, tzinfo=UTC
    )
    assert parse_time("-2h", NOW) == NOW - timedelta(hours=2)
    assert parse_time("now", NOW) == NOW


@pytest.mark.parametrize(
    "text",
    [
        "yesterday",
        "2026-13-01T00:00:00Z",
        "-5",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
    ],
)
def test_time_without_meaning_is_refused(text: str) -> None:
    with pytest.raises(WindowError, match=r"2026-11-20T10:00:00Z|90s"):
        parse_time(text, NOW)


def test_range_has_two_sides_in_order() -> None:
    assert parse_range("-2h..-1h", NOW) == (NOW - timedelta(hours=2), NOW - timedelta(hours=1))
    assert parse_range("-2h..", NOW) == (NOW - timedelta(hours=2), NOW)
    for text in ("-1h..-2h", "-1h", "..now", "-1h..-1h"):
        with pytest.raises(WindowError, match=r"range"):
            parse_range(text, NOW)


@given(st.text(max_size=60))
def test_any_range_text_gives_a_range_or_its_own_error(text: str) -> None:
    try:
        start, end = parse_range(text, NOW)
    except WindowError:
        return
    assert start < end


def test_flags_become_a_window() -> None:
    assert make_window(now=NOW, since="1h", service="s") == Window(
        NOW - timedelta(hours=1), NOW, "auto", "s"
    )
    ranged = make_window(now=NOW, from_="-3h", to="-2h", baseline="-4h..-3h")
    assert ranged.baseline == (NOW - timedelta(hours=4), NOW - timedelta(hours=3))
    with pytest.raises(WindowError, match="together"):
        make_window(now=NOW, since="1h", to="now")
    with pytest.raises(WindowError, match="empty"):
        make_window(now=NOW, from_="-1h", to="-2h")


def test_request_belongs_to_the_window_in_which_it_starts() -> None:
    frame = frame_of(requests(10, every_s=1.0, prefill_ms=5000.0), start=at(2), end=at(5))
    assert (frame.rows["start_us"] - frame.rows["start_us"].min()).to_list() == [
        0,
        1_000_000,
        2_000_000,
    ]
    assert frame.seconds == 3.0


def test_without_bounds_the_window_runs_from_first_start_to_last_end() -> None:
    frame = frame_of(requests(10, every_s=1.0, prefill_ms=5000.0))
    assert (frame.start, frame.end) == (at(0), at(14))


def test_incomplete_requests_are_counted_and_left_out() -> None:
    frame = frame_of(requests(10, complete=[True] * 7 + [False] * 3, prefill_ms=1.0))
    assert (frame.rows.height, frame.incomplete) == (7, 3)


def test_batch_and_eval_work_is_asked_for_by_name() -> None:
    rows = requests(6, workload=["chat", "batch", "eval", None, "batch", "rag"], prefill_ms=1.0)
    counts = {
        name: frame_of(rows, workload=name).rows.height for name in (None, "batch", "chat", "all")
    }
    assert counts == {None: 3, "batch": 2, "chat": 2, "all": 6}


def test_filters_select_their_column() -> None:
    rows = requests(
        4, service=["a", "a", "b", "b"], model=["m", "n", "m", "n"], route=["/x", None, "/x", "/x"]
    )
    assert frame_of(rows, service="a").rows.height == 2
    assert frame_of(rows, service="b", model="n").rows.height == 1
    assert frame_of(rows, route="/x").rows.height == 3
    assert frame_of(rows, tenant="t").rows.height == 0


def test_empty_store_gives_an_empty_frame_with_columns() -> None:
    frame = load(store(), Window())
    assert frame.rows.is_empty()
    assert "queue_ms" in frame.rows.columns
    assert (frame.start, frame.end, frame.seconds) == (None, None, 0.0)


def test_gauges_reach_a_minute_behind_the_end_and_no_farther() -> None:
    con = store()
    insert(con, requests(10, prefill_ms=1.0))
    gauge(con, "queue_depth", {-1.0: 1, 0.0: 2, 9.0: 3, 60.0: 4, 100.0: 5})
    assert load(con, Window()).points["value"].to_list() == [2.0, 3.0, 4.0]


def test_trace_ids_keep_the_order_of_the_rows() -> None:
    con = store()
    insert(con, requests(5, prefill_ms=[5.0, 4.0, 3.0, 2.0, 1.0]))
    rows = load(con, Window()).rows.sort("e2e_ms")
    assert [int(trace[16:], 16) for trace in load_trace_ids(con, rows)] == [5, 4, 3, 2, 1]
    assert load_trace_ids(con, rows.clear()) == []


def test_spans_are_read_through_their_view() -> None:
    con = store()
    assert load_evidence_spans(con, at(0), at(10), at(0)).is_empty()


def test_columns_left_out_can_be_read_later_for_the_same_rows() -> None:
    con = store()
    insert(
        con,
        requests(40, complete=[index % 3 > 0 for index in range(40)], tool_calls=list(range(40))),
    )
    con.begin()
    whole, narrow = load(con, Window()), load(con, Window(), without=("tool_calls", "trace_key"))
    assert "tool_calls" not in narrow.rows.columns
    assert narrow.having(["e2e_ms"]) is narrow
    assert (
        narrow.having(["tool_calls", "trace_key"])
        .rows.select(whole.rows.columns)
        .equals(whole.rows)
    )


def test_what_is_not_asked_for_is_not_read() -> None:
    con = store()
    insert(con, requests(100, prefill_ms=10.0))
    vllm_gauges(con)
    whole, few = load(con, Window()), load(con, Window(), without=("route", "tenant"), points=False)
    assert not whole.points.is_empty()
    assert few.points.is_empty()
    assert few.points.schema == whole.points.schema
    assert few.rows.equals(whole.rows.drop("route", "tenant"))
    assert few.having(["tenant"]).rows["tenant"].equals(whole.rows["tenant"])
    assert count(con, Window()) == 100


def test_the_evidence_of_some_traces_and_times_is_what_the_view_of_all_spans_says_of_them() -> None:
    con = store()
    frame = requests(40, tool_ms=50.0)
    insert(con, frame)
    tool = {
        "x": [f"a{i}" for i in range(40)],
        "gen_ai.tool.name": [f"tool {i}" for i in range(40)],
        "input.value": ["len 3"] * 40,
    }
    region = {
        "net.peer.region": ["west"] * 40,
        "cloud.region": ["east"] * 40,
        "server.region": ["north"] * 40,
    }
    insert_spans(
        con,
        spans_of(frame, "call", "tool", 0.0, 50.0, attributes=tool),
        spans_of(frame, "GET", "tool", 5.0, 9.0, span_id=3, attributes=region),
        spans_of(frame, "plain", "tool", 7.0, 9.0, span_id=4, parent_id=0),
    )
    keys = load(con, Window()).rows["trace_key"]
    told = """select trace_key, name, attributes['gen_ai.tool.name'] as tool, attributes['input.value'] as arguments,
        attributes['cloud.region'] as region, attributes['server.region'] as peer_region, parent_span_id is null as root
        from v_spans where start >= $start and start < $end order by trace_key, start, span_id"""
    every = con.sql(told, params={"start": at(10), "end": at(30)}).pl()
    whole = load_evidence_spans(con, at(10), at(30), at(0))
    assert every.height == 60
    assert whole.select(every.columns).equals(every)
    assert (whole["start_s"].min(), whole["start_s"].max()) == (
        pytest.approx(10.0),
        pytest.approx(29.007),
    )
    some = load_evidence_spans(con, at(10), at(30), at(0), 0, keys[5:15])
    assert some.equals(whole.filter(pl.col("trace_key").is_in(keys[5:15].implode())))
    assert load_evidence_spans(con, at(10), at(30), at(0), 0, keys[:0]).is_empty()


def test_columns_read_later_belong_to_their_rows_however_many_row_groups_there_are() -> None:
    con = store()
    insert(con, requests(1, prefill_ms=1.0, ttft_prefill_ms=1.0))
    # DuckDB's row groups hold 122,880 rows and are read by several threads.
    con.execute("""insert into requests by name select r.* replace ((i + 1)::ubigint as trace_lo, start_ns + i * 1000 as start_ns, 1000000 * i as e2e_ns,
        1000000 * i as prefill_ns, 1000000 * i as ttft_ns, 1000000 * i as ttft_prefill_ns) from requests r, range(1, 400000) t(i)""")
    con.begin()
    for _ in range(3):
        frame = load(con, Window(), without=FIRST_TOKEN_PATH).having(["ttft_prefill_ms"])
        assert frame.rows["ttft_prefill_ms"].equals(frame.rows["ttft_ms"], check_names=False)
        assert frame.order is None


@pytest.mark.parametrize("keys", [[4, 5, 6, 0, 1, 2, 3, 9, 7, 8], [0, 1, 2], [2, 1, 0], [5]])
def test_rows_are_put_into_the_order_in_which_they_are_stored(keys: list[int]) -> None:
    rows = pl.DataFrame({"key": keys, "name": [f"n{key}" for key in keys]})
    found = _in_order(rows, np.argsort(rows["key"].to_numpy(), kind="stable"))
    assert found.rows() == [(key, f"n{key}") for key in sorted(keys)]


def test_texts_that_are_read_once_for_each_kind_are_those_of_their_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    con = store()
    few = requests(
        400,
        route=[None if index % 7 == 0 else f"/r{index % 3}" for index in range(400)],
        tenant=[f"t{index % 5}" for index in range(400)],
        error_type=["TimeoutError" if index % 11 == 0 else None for index in range(400)],
    )
    insert(con, few)
    as_they_are = load(con, Window(), expected=400).rows
    monkeypatch.setattr(window, "MANY", 400)
    assert load(con, Window(), expected=400).rows.equals(as_they_are)
    con = store()
    insert(
        con, requests(400, tenant=[f"user-{index}" for index in range(400)])
    )  # every user a tenant
    found = load(con, Window(), expected=400).rows
    assert found["tenant"].to_list() == [f"user-{index}" for index in range(400)]
    assert found.equals(load(con, Window()).rows)
    assert load(store(), Window(), expected=400).rows.is_empty()
