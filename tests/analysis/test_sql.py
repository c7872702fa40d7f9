"""The queries of this package: each has its file and a caller, says what a row is, and prepares against the current schema."""

import re

import pytest

from overrun.analysis.front.export import KINDS
from overrun.analysis.numbers.window import query
from tests.analysis.builders import ROOT, store

CODE = "\n".join(path.read_text() for path in (ROOT / "analysis").rglob("*.py"))
FILES = sorted(path.stem for path in (ROOT / "analysis").rglob("sql/*.sql"))


@pytest.mark.parametrize("name", FILES)
def test_query_prepares_against_the_schema(name: str) -> None:
    con = store()
    con.execute(f"prepare q as {query(name).rstrip().rstrip(';')}")


@pytest.mark.parametrize("name", FILES)
def test_query_says_its_question_and_its_row(name: str) -> None:
    head = query(name).split("\nselect")[0].split("\nwith")[0]
    assert head.startswith("-- ")
    assert "?" in head or name.startswith("export_")
    assert re.search(r"One row", head)


def test_every_file_has_a_caller_and_every_caller_a_file() -> None:
    called = {
        *re.findall(r'query\("([a-z_]+)"\)', CODE),
        *re.findall(r'(?:read_samples|answers|_rows|rows)\(\s*con,\s*"([a-z_]+)"', CODE),
        *KINDS.values(),
    }
    assert called == set(FILES)


def test_no_query_is_written_in_code() -> None:
    assert not re.search(r"\bselect\b[^\n]+\bfrom v_", CODE, re.IGNORECASE)
