"""Lines of key=value and logs that name their columns in a comment are rows; any other text has none, and none is read for long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overrun.collector.sources import text_rows

AT = 1_790_000_000 * 10**9
LINE = 'time=2026-09-21T14:13:20Z level=info msg="chat done" model=gpt-4o duration=2.3s'
W3C = "#Version: 1.0\n#Fields: date time cs-uri-stem time-taken\n2026-09-21\t14:13:20\t/v1/x\t2.3\n"


def test_pairs_of_a_line_are_a_row() -> None:
    (row,) = text_rows.rows(LINE, AT)
    assert row == {
        "time": "2026-09-21T14:13:20Z",
        "level": "info",
        "msg": "chat done",
        "model": "gpt-4o",
        "duration": "2.3s",
    }


def test_when_a_line_was_written_stands_before_its_pairs() -> None:
    (row,) = text_rows.rows("I, [2026-09-21T14:13:20.0 #1] -- : a=1 b=2 c=3", AT + 10**15)
    assert row["time_iso8601"] == AT


def test_names_in_a_comment_are_those_of_the_lines_below() -> None:
    (row,) = text_rows.rows(W3C, AT)
    assert row == {
        "cs-uri-stem": "/v1/x",
        "time-taken": "2.3",
        "time_iso8601": "2026-09-21T14:13:20Z",
    }


@pytest.mark.parametrize(
    "text",
    ["", "one\ntwo", "x=1 y=2", f"{LINE}\nno\nno", "# Title\n\nSome words.", "#Fields: a b\n1"],
)
def test_other_texts_have_no_rows(text: str) -> None:
    assert text_rows.rows(text, AT) == []


@given(text=st.text(max_size=200), at=st.integers(0, 90), cut=st.integers(0, 90))
def test_any_text_is_read(text: str, at: int, cut: int) -> None:
    for known in (LINE, W3C):
        for row in text_rows.rows(known[:at] + text + known[at + cut :], AT):
            assert all(row)
