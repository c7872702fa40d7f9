"""What is the window compared with? Loads the baseline that was asked for, or finds a healthy one among the same hours of earlier days.

`auto` takes the latest healthy window of the same hours, else the latest healthy one of the equal spans before, or that span's part before an
onset in it: after an alert the window usually begins when the trouble had begun already. Where there is none, the part before a
detected onset inside the window serves (see `diagnose`); without an onset the equal span before, which may be over the target itself, as long as it
is far less so. The choice is always printed.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import duckdb
import numpy as np

from overrun.analysis.incident.abandonment import by_choice
from overrun.analysis.numbers.coverage.sampling import assess, evened
from overrun.analysis.numbers.latency.percentiles import min_n
from overrun.analysis.numbers.outcomes.goodput import Judged, judge
from overrun.analysis.numbers.statistics.change_points import FAR_LESS, find_onset
from overrun.analysis.numbers.statistics.proportion import Z_ONE_SIDED, wilson
from overrun.analysis.numbers.window import RequestFrame, Window, load, load_judged, query
from overrun.analysis.words.arrays import BoolArray, IntArray
from overrun.analysis.words.finding import say_ratio
from overrun.analysis.words.slo import Slo
from overrun.analysis.words.timestamps import from_us

# Yesterday, the days before, and the same weekday last week: further back the application is another one.
DAYS_BACK: Final = (1, 2, 3, 4, 5, 6, 7)
# Equal spans before the window that are looked at, nearest first: trouble is asked about late as often as early; own default.
SPANS_BACK: Final = (1, 2, 4, 8, 16)
# Within the target, a share of slow requests above this part of what the target allows may be reported; own default.
WORSE_PART: Final = 0.2
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True)
class Chosen:
    """A baseline window's requests, and in words how it was chosen; `onset` is where a span before the window ceased to be healthy."""

    frame: RequestFrame
    choice: str
    onset: datetime | None = None


def choose(con: duckdb.DuckDBPyConnection, frame: RequestFrame, slo: Slo) -> Chosen | None:
    """Return the baseline of a window: as asked, or for `auto` a healthy one; None for `none`, where there is none, and where it stands for itself alone."""
    chosen = _choose(con, frame, slo)
    if chosen is None:
        return None
    sampled = assess(con, chosen.frame, weigh=True)
    return None if sampled.refused else replace(chosen, frame=evened(sampled.applied(chosen.frame)))


def _choose(con: duckdb.DuckDBPyConnection, frame: RequestFrame, slo: Slo) -> Chosen | None:
    asked, start, end = frame.window.baseline, frame.start, frame.end
    if not isinstance(asked, str):
        return Chosen(_load(con, frame, *asked), "as asked")
    if (
        asked == "none" or start is None or end is None or end <= start
    ):  # a window without length has no equal span before it
        return None
    if asked == "previous":
        return Chosen(
            _load(con, frame, start - (end - start), start),
            "previous: the period of equal length just before",
        )
    oldest = con.execute(query("oldest_before"), {"start": start}).fetchall()[0][0]
    if oldest is None:
        return None
    for days in (
        DAYS_BACK if end - start <= _DAY else ()
    ):  # a window longer than a day has no same hours
        first, last = start - days * _DAY, end - days * _DAY
        if first >= oldest - (end - start) / 2 and _healthy(
            con, replace(frame.window, start=first, end=last), slo
        ):
            return Chosen(
                _load(con, frame, max(first, oldest), last),
                f"auto: the same hours {days} {'day' if days == 1 else 'days'} before, healthy",
            )
    return _span_before(con, frame, slo, start, end - start, oldest) or _lesser(
        con, frame, slo, start, end - start, oldest
    )


def _span_before(
    con: duckdb.DuckDBPyConnection,
    frame: RequestFrame,
    slo: Slo,
    start: datetime,
    length: timedelta,
    oldest: datetime,
) -> Chosen | None:
    """Return the nearest equal span before the window that is healthy, or its part before an onset in it."""
    for spans in SPANS_BACK:
        first, last = start - spans * length, start - (spans - 1) * length
        if first < oldest - length / 2 or (spans > 1 and start - first > _DAY):
            break
        healthy_until = _healthy_until(con, replace(frame.window, start=first, end=last), slo)
        if healthy_until is not None:
            what = (
                "the period of equal length just before"
                if spans == 1
                else f"the period of equal length {spans} before"
            )
            onset = None if healthy_until == last else healthy_until
            until = "healthy" if onset is None else f"healthy until {onset:%H:%M:%S} UTC"
            return Chosen(
                _load(con, frame, max(first, oldest), healthy_until),
                f"auto: {what}, {until}",
                onset,
            )
    return None


def _lesser(
    con: duckdb.DuckDBPyConnection,
    frame: RequestFrame,
    slo: Slo,
    start: datetime,
    length: timedelta,
    oldest: datetime,
) -> Chosen | None:
    """Return the period of equal length just before a window that is broken throughout, or its part before an onset, where it misses the target far less."""
    first, allowed = start - length, 1.0 - slo.goodput_target
    if first < oldest - length / 2:
        return None
    met, missed_now = _sides(judge(frame.rows, slo))
    now = missed_now.sum() / max(1, (met | missed_now).sum())
    if find_onset(frame.rows["start_us"].to_numpy(), missed_now, allowed) is not None:
        return None
    starts, good, bad = _judged(con, replace(frame.window, start=first, end=start), slo)
    onset = find_onset(starts, bad, allowed)
    before = starts < onset if onset is not None else np.ones(len(starts), dtype=np.bool_)
    missed, n = int(bad[before].sum()), int((good | bad)[before].sum())
    if n < min_n(slo.percentile) or wilson(missed, n, Z_ONE_SIDED)[1] > FAR_LESS * now:
        return None
    until = start if onset is None else from_us(onset)
    choice = f"auto: the period of equal length just before, which misses the target as well ({say_ratio(missed / n)} of its requests, {say_ratio(float(now))} now)"
    return Chosen(
        _load(con, frame, max(first, oldest), until), choice, None if onset is None else until
    )


def _healthy_until(con: duckdb.DuckDBPyConnection, window: Window, slo: Slo) -> datetime | None:
    """Return how far a window is healthy: to its end, to an onset of slow requests in it, or None where not even that part is."""
    starts, good, bad = _judged(con, window, slo)
    allowed = 1.0 - slo.goodput_target
    onset = find_onset(starts, bad, allowed) or find_onset(starts, bad, WORSE_PART * allowed)
    if onset is None:
        return window.end if _meets(good, bad, slo) else None
    before = starts < onset
    return from_us(onset) if _meets(good[before], bad[before], slo) else None


def _healthy(con: duckdb.DuckDBPyConnection, window: Window, slo: Slo) -> bool:
    """Return whether the window holds enough requests to stand for the usual, and meets the SLO within chance."""
    return _meets(*_judged(con, window, slo)[1:], slo)


def _judged(
    con: duckdb.DuckDBPyConnection, window: Window, slo: Slo
) -> tuple[IntArray, BoolArray, BoolArray]:
    """Starts of a window's requests, which met every limit (those that the client left by choice count here as well), and which did not."""
    rows = load_judged(con, window, query("before"))
    good, bad = _sides(judge(rows, slo))
    left = by_choice(rows, slo)
    return rows["start_us"].to_numpy(), good | left, bad & ~left


def _sides(judged: Judged) -> tuple[BoolArray, BoolArray]:
    """Return which requests met and which missed the SLO; where none carries every limited metric, by those that they carry."""
    if judged.good.any() or (judged.bad & ~judged.error).any() or not judged.known:
        return judged.good, judged.bad
    missed = judged.error | np.logical_or.reduce([*judged.misses.values()])
    return np.logical_or.reduce([*judged.known.values()]) & ~missed, missed


def _meets(good: BoolArray, bad: BoolArray, slo: Slo) -> bool:
    met, n = int(good.sum()), int(good.sum()) + int(bad.sum())
    return n >= min_n(slo.percentile) and wilson(met, n, Z_ONE_SIDED)[1] >= slo.goodput_target


def _load(
    con: duckdb.DuckDBPyConnection, frame: RequestFrame, start: datetime, end: datetime
) -> RequestFrame:
    """The requests of another time, with the columns that the frame was read with."""
    return load(
        con,
        replace(frame.window, start=start, end=end, baseline="none"),
        without=frame.without,
        every=frame.every,
    )
