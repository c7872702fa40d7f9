"""The list of requests in a terminal."""

import pytest

from overrun.analysis.front.requests_text import document
from overrun.analysis.front.text_layout import render
from overrun.analysis.numbers.requests.request_list import ListError, list_requests
from overrun.analysis.numbers.window import Window
from tests.analysis.builders import insert, requests, store


def listed(width: int, **asked: str) -> str:
    """Three requests, of which one failed."""
    con = store()
    rows = requests(
        3,
        retrieval_ms=[10.0, 300.0, 20.0],
        decode_ms=[50.0, 50.0, 500.0],
        error=[False, True, False],
        error_type=[None, "Timeout\x1b[31m", None],
        route="/a/route/that/is/long",
    )
    insert(con, rows)
    return render(document(list_requests(con, Window(), **asked)), width)


def test_the_slowest_stand_first_with_the_stage_that_took_most() -> None:
    lines = listed(120).splitlines()
    assert lines[0] == "3 of 3 requests, by e2e, largest first, 20 Nov 2026 UTC"
    assert [("decode" in line, "retrieval" in line) for line in lines[3:6]] == [
        (True, False),
        (False, True),
        (True, False),
    ]
    assert lines[-1].startswith("SEE  overrun report --trace ")


def test_a_stage_orders_and_fills_its_column() -> None:
    lines = listed(120, sort="retrieval").splitlines()
    assert "STAGE" in lines[2]
    assert ["300 ms" in line for line in lines[3:6]] == [True, False, False]


def test_eighty_columns_keep_the_whole_id_and_the_error_without_its_escapes() -> None:
    text = listed(80, status="error")
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "1 of 1 request," in text
    assert "Timeout" in text
    assert "\x1b" not in text


def test_nothing_found_names_what_to_change() -> None:
    con = store()
    assert "widen --since" in render(document(list_requests(con, Window())))
    with pytest.raises(ListError, match="status 'broken' is unknown: use ok or error"):
        list_requests(con, Window(), status="broken")
