"""How do old minutes stay answerable after their requests are gone? Folds closed minutes of `requests` into log-bucket counts that add up.

A minute is folded once it is 15 minutes old: later than any trace that is still being assembled. What folds is a step of its own in the writer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

import duckdb

from overrun.collector.normalise.quarantine import MIN_TIME_NS
from overrun.collector.store.answers import fetch_table
from overrun.collector.store.database import set_meta, sql
from overrun.collector.store.layout import OTHER
from overrun.collector.store.proof import Claims

log = logging.getLogger("overrun.collector")
MINUTE_NS = 60 * 10**9
# The longest model call that providers allow is ten minutes, and its trace is assembled seconds after it.
OPEN_NS = 15 * MINUTE_NS
# At most this much is folded in one step, so that senders wait for a fraction of a second at most.
MOST_NS = 6 * 60 * MINUTE_NS
# A watermark so far ahead of the clock is of a clock that was wrong.
_AHEAD_NS = 60 * MINUTE_NS
KEY = "rolled_up_through"
# Sets of names (service, route, model, tenant, workload) of one minute. Names come with the telemetry: each set that no other request has takes a row for each
# of its metrics, as long as rollups are kept. The others are kept together, and counted.
MOST_NAMES = 500
TABLES = ("rollups", "rollup_counts")
# Minutes that were folded one by one are small row groups, each with blocks of its own: so many rows of them are written again as one, in the order of time.
PACK_ROWS = 100_000
_PACKED = "rollups_packed_through"
# A year and a month, so that a month can be laid beside that of the year before. Raw requests have a retention of their own.
KEEP_NS = 400 * 24 * 60 * MINUTE_NS


def roll_up(
    connection: duckdb.DuckDBPyConnection,
    now_ns: int,
    claims: Claims | None = None,
    cut: Callable[[int], None] = lambda requests: None,
) -> bool:
    """Fold the next closed minutes, in the caller's transaction; True if there may be more to fold. What it writes is added to `claims`.

    `cut` is called with the number of requests whose names were too many.

    The watermark in `meta` moves with them: minutes before it are in the rollups, minutes from it on only in `requests`.
    """
    claims = claims or Claims()
    known = connection.execute("select value from meta where key = $key", {"key": KEY}).fetchall()
    until = (now_ns - OPEN_NS) // MINUTE_NS * MINUTE_NS
    before = int(known[0][0]) if known else 0
    if before > until + _AHEAD_NS:
        before = _take_back(connection, before)
    # Nothing is from before 2000: files of earlier versions may hold spans whose milliseconds were taken for nanoseconds.
    [(oldest,)] = connection.execute(
        "select min(start_ns) from requests where start_ns >= $first and start_ns < $until",
        {"first": max(before, MIN_TIME_NS), "until": until},
    ).fetchall()
    if oldest is None:
        if known and 0 < before < until:
            set_meta(connection, KEY, str(until))
        return False
    first = int(oldest) // MINUTE_NS * MINUTE_NS
    last = min(until, first + MOST_NS)
    expire(connection, now_ns - KEEP_NS)
    for name in ("roll_up", "roll_up_counts"):
        connection.execute(sql(name), {"first": first, "last": last, "most": MOST_NAMES})
    [(others,)] = connection.execute(
        "select coalesce(sum(requests), 0) from rollup_counts where minute_ns >= $first and service = $other and route = $other and model = $other",
        {"first": first, "other": OTHER},
    ).fetchall()
    if others:
        cut(int(others))
    set_meta(connection, KEY, str(last))
    for table in TABLES:
        claims.saw(connection, table, f"minute_ns >= {first}")
    # If they are not stored as they were folded, these minutes are folded again.
    claims.undo += [f"delete from {table} where minute_ns >= {first}" for table in TABLES]
    claims.undo += [
        f"delete from meta where key = '{KEY}'",
        f"insert into meta values ('{KEY}', '{before or first}')",
    ]
    _pack(connection, last, claims)
    return last < until


def _take_back(connection: duckdb.DuckDBPyConnection, through: int) -> int:
    """A clock was ahead when minutes were folded last, and requests that came since stand before the watermark without being counted: fold again from the
    last minutes that hold some. Returns the new watermark."""
    [(newest, oldest)] = connection.execute(
        "select (select coalesce(max(minute_ns), 0) from rollup_counts), (select coalesce(min(start_ns), 0) from requests where start_ns >= $first)",
        {"first": MIN_TIME_NS},
    ).fetchall()
    # Its last minutes were folded before all of their requests were there; minutes whose requests are gone stay as they are.
    first = max(int(newest) + MINUTE_NS - OPEN_NS, -(-int(oldest) // MINUTE_NS) * MINUTE_NS)
    first = min(first, int(newest) + MINUTE_NS, through)
    log.warning(
        "minutes up to %s were folded into rollups, but that is in the future, so the clock was wrong. They are folded again from %s on",
        datetime.fromtimestamp(through / 1e9, UTC).isoformat(timespec="minutes"),
        datetime.fromtimestamp(first / 1e9, UTC).isoformat(timespec="minutes"),
    )
    for table in TABLES:
        connection.execute(f"delete from {table} where minute_ns >= $first", {"first": first})
    set_meta(connection, KEY, str(first))
    return first


def _pack(connection: duckdb.DuckDBPyConnection, last: int, claims: Claims) -> None:
    """Write the minutes before `last` that came since the last packing as one row group: when they are enough for one, and were not in few pieces anyway."""
    [(first,)] = connection.execute(
        "select coalesce(max(value::bigint), 0) from meta where key = $key", {"key": _PACKED}
    ).fetchall()
    since = "where minute_ns >= $first"
    [(rows, minutes)] = connection.execute(
        f"select count(*), count(distinct minute_ns) from rollups {since}", {"first": first}
    ).fetchall()
    if rows < PACK_ROWS:
        return
    for table in TABLES if rows < minutes * PACK_ROWS // 4 else ():
        claims.saw(connection, table, f"minute_ns >= {first}")
        recent = fetch_table(
            connection, f"select * from {table} {since} order by minute_ns", {"first": first}
        )
        connection.execute(f"delete from {table} {since}", {"first": first})
        connection.execute(f"insert into {table} by name select * from recent")
        del recent  # read by name, above
    set_meta(connection, _PACKED, str(last))


def expire(connection: duckdb.DuckDBPyConnection, before_ns: int) -> None:
    """Forget rollups of minutes before a moment; their requests have a retention of their own."""
    for table in TABLES:
        connection.execute(f"delete from {table} where minute_ns < $before", {"before": before_ns})


def rolled_up_through(connection: duckdb.DuckDBPyConnection) -> int:
    """The moment (ns) before which the rollups hold every request; 0 if nothing was folded yet."""
    found = connection.execute("select value from meta where key = $key", {"key": KEY}).fetchall()
    return int(found[0][0]) if found else 0
