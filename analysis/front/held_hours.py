"""Which hours are stored, and is each the same as when it was written to a file? Asked before an export by the hour, and noted in the file itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import duckdb
import msgspec

from overrun.analysis.numbers.window import Window, query
from overrun.collector.store.answers import fetch_frame

HOUR: Final = timedelta(hours=1)
HOUR_FORM: Final = "%Y-%m-%dT%H"
# More than a year of hours. Starts come from whoever may send: spans of every hour since 1970 would be half a million files.
MOST_HOURS: Final = 10_000


class Hour(msgspec.Struct, kw_only=True):
    """An hour with rows, such as `2026-11-26T14` (UTC). `mark` is another text when its rows have changed; `first_commit` is the oldest commit of a row."""

    hour: str
    rows: int
    first_commit: int
    mark: str


class HeldHours(msgspec.Struct, kw_only=True):
    """The hours of a window with rows of one kind, newest first: those from `since` on and before `until` (null: open).

    `store` names the store. It has let go of the commits before `first_commit`. `left_out` older hours have rows, too.
    """

    store: str
    first_commit: int
    since: str | None
    until: str | None
    left_out: int
    hours: list[Hour]


class Note(msgspec.Struct, kw_only=True):
    """What a file of one hour says of itself. `first_commit` is null and `mark` empty where the hour has no rows; `held_from` is the store's `first_commit`."""

    store: str
    kind: str
    hour: str
    first_commit: int | None
    held_from: int
    mark: str


def held_hours(con: duckdb.DuckDBPyConnection, window: Window, kind: str) -> HeldHours:
    """Return the hours that lie wholly in the window and have rows of a kind, at most MOST_HOURS."""
    start, end = _up(window.start), _down(window.end)
    if start is not None and end is not None and start > end:
        start = end
    rows = fetch_frame(
        con,
        query("held_hours"),
        {"kind": kind, "start": start, "end": end, "most": MOST_HOURS},
    ).rows(named=True)
    hours = [
        Hour(
            hour=row["hour"],
            rows=row["rows"],
            first_commit=row["first_batch"],
            mark=row["mark"],
        )
        for row in rows
    ]
    left_out = rows[0]["hours"] - len(rows) if rows else 0
    store, first_commit = _store(con)
    return HeldHours(
        store=store,
        first_commit=first_commit,
        since=hours[-1].hour if left_out else _text(start),
        until=_text(end),
        left_out=left_out,
        hours=hours,
    )


def note_of(con: duckdb.DuckDBPyConnection, window: Window, kind: str) -> Note | None:
    """Return what a file with the rows of the window says of itself; None where the window is not one hour."""
    if window.start is None or window.end is None or window.end - window.start != HOUR:
        return None
    held = held_hours(con, window, kind)
    if held.since is None or held.until == held.since:
        return None  # an hour that begins at another minute
    found = held.hours[0] if held.hours else None
    return Note(
        store=held.store,
        kind=kind,
        hour=held.since,
        first_commit=found.first_commit if found else None,
        held_from=held.first_commit,
        mark=found.mark if found else "",
    )


def _store(con: duckdb.DuckDBPyConnection) -> tuple[str, int]:
    [(store, first_batch)] = fetch_frame(con, query("store_held")).rows()
    return str(store), int(first_batch)


def _down(time: datetime | None) -> datetime | None:
    return time and time.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _up(time: datetime | None) -> datetime | None:
    floor = _down(time)
    return floor if floor is None or floor == time else floor + HOUR


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.strftime(HOUR_FORM)
