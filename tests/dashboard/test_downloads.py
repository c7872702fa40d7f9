"""Files that people take away: every cell as it is, no formula from telemetry."""

import csv
import io

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
