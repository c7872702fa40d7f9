"""What is the window compared with? Loads the baseline that was asked for, or finds a healthy one among the same hours of earlier days.

`auto` takes the latest healthy window of the same hours, else the healthy span just before; where neither exists, the part before a detected
onset inside the window serves (see `diagnose`). The choice is always printed.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import duckdb

from analysis.goodput import Z_ONE_SIDED, judge, wilson
from analysis.latency import min_n
from analysis.slo import Slo
from analysis.window import RequestFrame, Window, filter_of, load, query

# Yesterday, the days before, and the same weekday last week: further back the application is another one.
DAYS_BACK: Final = (1, 2, 3, 4, 5, 6, 7)
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True)
class Chosen:
    """A baseline window's requests, and in words how it was chosen."""

    frame: RequestFrame
    choice: str


def choose(con: duckdb.DuckDBPyConnection, frame: RequestFrame, slo: Slo) -> Chosen | None:
    """Return the baseline of a window: as asked, or for `auto` a healthy one; None for `none` and where there is none."""
    asked, start, end = frame.window.baseline, frame.start, frame.end
    if not isinstance(asked, str):
        return Chosen(_load(con, frame, *asked), "as asked")
    if asked == "none" or start is None or end is None or end <= start:  # a window without length has no equal span before it
        return None
    if asked == "previous":
        return Chosen(_load(con, frame, start - (end - start), start), "previous: the equal span just before")
    oldest = con.sql(query("oldest_before"), params={"start": start}).fetchall()[0][0]
    if oldest is None:
        return None
    for days, first, last in _candidates(start, end):
        if first >= oldest - (end - start) / 2 and _healthy(con, replace(frame.window, start=first, end=last), slo):
            what = f"auto: the same hours {days} {'day' if days == 1 else 'days'} before, healthy" if days else "auto: the equal span just before, healthy"
            return Chosen(_load(con, frame, first, last), what)
    return None


def _candidates(start: datetime, end: datetime) -> list[tuple[int, datetime, datetime]]:
    """Return (days back, start, end) in the order of preference; a window longer than a day has no same hours, only a span before."""
    same_hours = [(days, start - days * _DAY, end - days * _DAY) for days in DAYS_BACK] if end - start <= _DAY else []
    return [*same_hours, (0, start - (end - start), start)]


def _healthy(con: duckdb.DuckDBPyConnection, window: Window, slo: Slo) -> bool:
    """Say whether the window holds enough requests to stand for the usual, and meets the SLO within chance."""
    rows = con.sql(query("series"), params=filter_of(window)).pl()
    if rows.height < min_n(slo.percentile):
        return False
    judged = judge(rows, slo)
    good, bad = int(judged.good.sum()), int(judged.bad.sum())
    return good + bad >= min_n(slo.percentile) and wilson(good, good + bad, Z_ONE_SIDED)[1] >= slo.goodput_target


def _load(con: duckdb.DuckDBPyConnection, frame: RequestFrame, start: datetime, end: datetime) -> RequestFrame:
    """The requests of another time, with the columns that the frame was read with."""
    return load(con, replace(frame.window, start=start, end=end, baseline="none"), without=frame.without)
