"""What is the window compared with? Loads the baseline that was asked for, or finds a healthy one among the same hours of earlier days.

`auto` takes the latest healthy window of the same hours, else the latest healthy one of the equal spans before, or that span's part before an
onset in it: after an alert the window usually begins when the trouble had begun already. Where there is none, the part before a
detected onset inside the window serves (see `diagnose`); without an onset what is stored before, which may be over the target itself, as long as it
is clearly less so: causes then count with less confidence. The choice is always printed.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import duckdb
import numpy as np

from overrun.analysis.incident.abandonment import by_choice
from overrun.analysis.numbers.coverage.sampling import assess, evened
from overrun.analysis.numbers.latency.percentiles import min_n
from overrun.analysis.numbers.outcomes.goodput import Judged, design_effect, judge
from overrun.analysis.numbers.statistics.change_points import find_onset
from overrun.analysis.numbers.statistics.proportion import Z_ONE_SIDED, wilson
from overrun.analysis.numbers.window import RequestFrame, Window, load, load_judged, query
from overrun.analysis.words.arrays import BoolArray, IntArray
from overrun.analysis.words.finding import say_count, say_ratio
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
    """A baseline window's requests, and in words how it was chosen; `onset` is where a span before the window ceased to be healthy.

    `other_day`: of the same hours of a day before, when people ask as often."""

    frame: RequestFrame
    choice: str
    onset: datetime | None = None
    other_day: bool = False


def choose(con: duckdb.DuckDBPyConnection, frame: RequestFrame, slo: Slo) -> Chosen | None:
    """Return the baseline of a window: as asked, or for `auto` a healthy one; None for `none`, where there is none, and where it stands for itself alone."""
    frame = _of_subject(frame)
    chosen = _choose(con, frame, slo)
    if chosen is None:
        return None
    sampled = assess(con, chosen.frame, weigh=True)
    return None if sampled.refused else replace(chosen, frame=evened(sampled.applied(chosen.frame)))


def _of_subject(frame: RequestFrame) -> RequestFrame:
    """Return a window that holds requests of one service as one of that service: what others did before is no baseline of it."""
    services = frame.rows["service"].unique().to_list() if "service" in frame.rows.columns else []
    if frame.window.service is not None or len(services) != 1:
        return frame
    return replace(frame, window=replace(frame.window, service=services[0]))


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
                other_day=True,
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
    """Return what is stored before a window that is broken throughout and misses the target clearly less, or its part before an onset; the healthiest such."""
    allowed = 1.0 - slo.goodput_target
    met, missed_now = _sides(judge(frame.rows, slo))
    if find_onset(frame.rows["start_us"].to_numpy(), missed_now, allowed) is not None:
        return None
    now = _share(missed_now[met | missed_now])
    best: tuple[float, datetime, datetime, str, datetime | None] | None = None
    for what, first, last in _earlier(start, length, oldest):
        starts, good, bad = _judged(con, replace(frame.window, start=first, end=last), slo)
        onset = find_onset(starts, bad, allowed)
        before = (good | bad) & (starts < onset if onset is not None else True)
        found = _share(bad[before])
        if found.n < min_n(slo.percentile) or found.high >= now.low:
            continue
        if best is None or found.share < best[0]:
            misses = (
                f"which misses the target as well ({say_ratio(found.share)} of its requests"
                if found.share > allowed
                else f"which meets the target ({say_ratio(found.share)} of its requests miss it"
            )
            choice = f"auto: {what}, {misses}, {say_ratio(now.share)} now)"
            until = last if onset is None else from_us(onset)
            since = None if onset is None else until
            best = (found.share, max(first, oldest), until, choice, since)
    if best is None:
        return None
    _, first, until, choice, since = best
    return Chosen(_load(con, frame, first, until), choice, since)


def _earlier(
    start: datetime, length: timedelta, oldest: datetime
) -> list[tuple[str, datetime, datetime]]:
    """The spans before a window that may be compared with it, nearest first, with their names; the last is all that is stored within a day."""
    spans = [
        ("the period of equal length just before", start - length, start),
        *(
            (f"the period of equal length {k} before", start - k * length, start - (k - 1) * length)
            for k in SPANS_BACK[1:]
            if k * length <= _DAY
        ),
    ]
    stored = [one for one in spans if one[1] >= oldest - length / 2]
    whole = max(oldest, start - _DAY)
    return [*stored, ("all that is stored before it", whole, start)]


class _Share(NamedTuple):
    """A share with its 95 % interval at the effective number of requests, as those that overlap share their fate."""

    n: int
    share: float
    low: float
    high: float


def _share(missed: BoolArray) -> _Share:
    n = len(missed)
    share = float(missed.mean()) if n else 0.0
    effective = n / design_effect(missed)
    return _Share(n, share, *wilson(share * effective, effective))


def why_none(con: duckdb.DuckDBPyConnection, frame: RequestFrame, slo: Slo) -> str:
    """Return why a window has no baseline, as a clause with what is stored before it."""
    frame = _of_subject(frame)
    if frame.window.baseline == "none":
        return "no baseline was asked for"
    if frame.start is None or frame.end is None:
        return "the window has no bounds"
    oldest = con.execute(query("oldest_before"), {"start": frame.start}).fetchall()[0][0]
    if oldest is None:
        return "nothing older is stored"
    first = max(oldest, frame.start - _DAY)
    _, good, bad = _judged(con, replace(frame.window, start=first, end=frame.start), slo)
    found = _share(bad[good | bad])
    if found.n == 0:
        return f"nothing of the day before is stored (the oldest request is of {oldest:%d %b %H:%M} UTC)"
    count, since = say_count(found.n, "request"), f"since {first:%H:%M:%S} UTC"
    needed = min_n(slo.percentile)
    if found.n < needed:
        are = "is" if found.n == 1 else "are"
        return (
            f"only {count} {are} stored before it, {since}, and P{slo.percentile:g} needs {needed}"
        )
    met, missed_now = _sides(judge(frame.rows, slo))
    now = _share(missed_now[met | missed_now])
    return (
        f"of the {count} stored before it, {since}, {say_ratio(found.share)} miss the target, "
        f"not clearly less than now ({say_ratio(now.share)})"
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
