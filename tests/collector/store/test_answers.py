"""A question is put to DuckDB in one way, which fits both of its lines."""

import re
from pathlib import Path

import duckdb
import pytest

from overrun.collector.store import answers
from overrun.collector.store.answers import (
    column_names,
    fetch_batches,
    fetch_frame,
    fetch_table,
)

ROOT = Path(__file__).resolve().parents[3]
QUERY = "select i, 'n' || i as name from range(5) t(i) where i >= $least"


@pytest.fixture
def con() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def test_all_forms_of_an_answer_hold_the_same_rows(con: duckdb.DuckDBPyConnection) -> None:
    asked = {"least": 2}
    frame = fetch_frame(con, QUERY, asked)
    assert frame.to_dicts() == [{"i": i, "name": f"n{i}"} for i in (2, 3, 4)]
    assert fetch_table(con, QUERY, asked).to_pylist() == frame.to_dicts()
    read = [row for batch in fetch_batches(con, QUERY, asked, 2) for row in batch.to_pylist()]
    assert read == frame.to_dicts()


def test_columns_are_known_without_rows(con: duckdb.DuckDBPyConnection) -> None:
    assert column_names(con, QUERY, {"least": 0}) == ["i", "name"]
    assert fetch_frame(con, "select 1 as one").to_dicts() == [{"one": 1}]


def test_a_query_without_rows_keeps_its_columns(con: duckdb.DuckDBPyConnection) -> None:
    assert fetch_frame(con, QUERY, {"least": 9}).columns == ["i", "name"]


def test_duckdb_is_asked_with_parameters_in_one_place_alone() -> None:
    wrong = re.compile(r"\.sql\((?:[^()]|\([^()]*\))*params\s*=|\.(?:execute|sql)\(.*\)\.pl\(")
    asking = {
        str(path.relative_to(ROOT))
        for room in ("analysis", "collector", "models", "dashboard")
        for path in (ROOT / room).rglob("*.py")
        if wrong.search(path.read_text(encoding="utf-8"))
    }
    # `reading` asks in the frame that holds the tables which its queries name.
    assert asking == {"collector/store/answers.py", "collector/ingest/reading.py"}


def test_the_line_of_duckdb_is_known() -> None:
    assert duckdb.__version__.startswith("1.") == answers.BY_EXECUTE
