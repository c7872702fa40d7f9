"""The queries behind the report: each has its file, says what a row is, and prepares against the current schema."""

import re

import pytest

from analysis.window import query
from tests.analysis.builders import ROOT, store

WINDOW = (ROOT / "analysis" / "window.py").read_text()
FILES = sorted(set(re.findall(r'query\("([a-z_]+)"\)', WINDOW)))


@pytest.mark.parametrize("name", FILES)
def test_query_prepares_against_the_schema(name: str) -> None:
    con = store()
    con.execute(f"prepare q as {query(name)}")


@pytest.mark.parametrize("name", FILES)
def test_query_says_its_question_and_its_row(name: str) -> None:
    head = query(name).split("\nselect")[0]
    assert head.startswith("-- ")
    assert "?" in head
    assert re.search(r"One row", head)


def test_no_query_is_written_in_code() -> None:
    assert {"requests", "llm_calls", "metric_points", "trace_ids", "stage_spans"} == set(FILES)
    assert not re.search(r"\bselect\b.+\bfrom\b", WINDOW, re.IGNORECASE)
