"""Tables of HTTP generators whose times count from the start of the run: a row a request, seconds. hey's `-o csv`, oha's `--output-format csv`.

Source: rakyll/hey requester/print.go (response-time, status-code, offset), hatoo/oha src/printer.rs (request-start, request-duration, status). A request
without an answer is in neither.
"""

from __future__ import annotations

import csv
import io
from typing import Final

from overrun.collector.errors import BadPayload
from overrun.collector.sources.load_tests.result import LoadTest, Request, Run, say_unmeasured
from overrun.collector.sources.load_tests.values import S, failure, status_of

# The columns of a begin, a duration and a status.
_FORMS: Final = (
    ("hey", "offset", "response-time", "status-code"),
    ("oha", "request-start", "request-duration", "status"),
)


def is_csv(head: str) -> bool:
    """Whether the first line of a file is that of such a table."""
    return _form(head) is not None


def hey_csv(text: str) -> LoadTest:
    """The requests of a file as one run, which began at 0."""
    form = _form(text.partition("\n")[0])
    if form is None:
        raise BadPayload("its columns are of no generator")
    tool, begin, took, status = form
    out, unmeasured = LoadTest(tool), 0
    for row in csv.DictReader(io.StringIO(text)):
        try:
            start, whole = float(row[begin] or ""), float(row[took] or "")
        except (ValueError, TypeError):
            unmeasured += 1
            continue
        if not (0.0 <= start < 1e9 and 0.0 <= whole < 1e9):
            unmeasured += 1
            continue
        code = status_of(row.get(status))
        out.requests.append(
            Request(round(start * S), round(whole * S), error=failure(code)[0], status_code=code)
        )
    if not out.requests:
        raise BadPayload("its results hold no request")
    out.runs = [Run("run 1", list(out.requests))]
    out.notes.append("times count from the start of the run: its end is dated by the file")
    say_unmeasured(out, unmeasured)
    return out


def _form(head: str) -> tuple[str, str, str, str] | None:
    names = {name.strip('" \r\ufeff') for name in head.split(",")}
    return next((form for form in _FORMS if set(form[1:]) <= names), None)
