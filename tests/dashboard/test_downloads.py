"""Files that people take away: every cell as it is, no formula from telemetry."""

import csv
import io
from pathlib import Path

import streamlit

from overrun.dashboard import theme
from overrun.dashboard.downloads import csv_of
from tests.analysis.builders import at


def test_a_table_comes_back_as_it_was_shown() -> None:
    text = csv_of(
        {
            "start": [at(0), at(1)],
            "ms": [1.5, None],
            "stages": [[1.0, 0.25], [2.0, 0.0]],
            "name": ['a,"b"\nc', "x"],
        }
    )
    rows = list(csv.reader(io.StringIO(text)))
    assert rows == [
        ["start", "ms", "stages", "name"],
        ["2026-11-20T10:00:00+00:00", "1.5", "1 0.25", 'a,"b"\nc'],
        ["2026-11-20T10:00:01+00:00", "", "2 0", "x"],
    ]


def test_a_name_is_never_a_formula() -> None:
    rows = list(
        csv.reader(
            io.StringIO(
                csv_of(
                    {
                        "name": ["=1+1", "@x", "-2", "+3", "plain"],
                        "n": [-1.0, -2.0, -3.0, -4.0, -5.0],
                    }
                )
            )
        )
    )
    assert [row[0] for row in rows[1:]] == ["'=1+1", "'@x", "'-2", "'+3", "plain"]
    assert rows[1][1] == "-1.0"


def test_names_in_a_list_are_no_formula_either() -> None:
    rows = list(csv.reader(io.StringIO(csv_of({"n": [["=1+1", "x"], [-1.0, 2], ["\n=1"]]}))))
    assert [row[0] for row in rows[1:]] == ["'=1+1 x", "-1 2", "'\n=1"]


def test_the_tables_own_export_is_not_offered() -> None:
    """Streamlit's writes names as they are; its button is hidden, and ours stands below the table."""
    assert (
        '[data-testid="stElementToolbarButton"]:has([aria-label^="Download as CSV"]){display:none}'
        in theme.css()
    )
    scripts = (Path(streamlit.__file__).parent / "static/static/js").glob("*.js")
    text = "".join(script.read_text(encoding="utf-8") for script in scripts)
    assert "stElementToolbarButton" in text
    assert "Download as CSV" in text  # the name by which it is hidden
