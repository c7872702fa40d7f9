"""How do old minutes stay answerable after their requests are gone? Folds closed minutes of `requests` into log-bucket counts that add up.

A minute is folded once it is 15 minutes old: later than any trace that is still being assembled. What folds is a step of its own in the writer.
"""

from __future__ import annotations

import duckdb

from collector.store import sql

MINUTE_NS = 60 * 10**9
# The longest model call that providers allow is ten minutes, and its trace is assembled seconds after it.
OPEN_NS = 15 * MINUTE_NS
# At most this much is folded in one step, so that senders wait for a fraction of a second at most.
MOST_NS = 6 * 60 * MINUTE_NS
KEY = "rolled_up_through"
# A year and a month, so that a month can be laid beside that of the year before. Raw requests have a retention of their own.
KEEP_NS = 400 * 24 * 60 * MINUTE_NS


def roll_up(connection: duckdb.DuckDBPyConnection, now_ns: int) -> bool:
    """Fold the next closed minutes, in the caller's transaction; True if there may be more to fold.

    The watermark in `meta` moves with them: minutes before it are in the rollups, minutes from it on only in `requests`.
    """
    known = connection.execute("select value from meta where key = $key", {"key": KEY}).fetchall()
    until = (now_ns - OPEN_NS) // MINUTE_NS * MINUTE_NS
    if known:
        first = int(known[0][0])
    else:
        oldest = connection.execute("select min(start_ns) from requests").fetchall()[0][0]
        if oldest is None:
            return False
        first = int(oldest) // MINUTE_NS * MINUTE_NS
    last = min(until, first + MOST_NS)
    if last <= first:
        return False
    expire(connection, now_ns - KEEP_NS)
    for name in ("roll_up", "roll_up_counts"):
        connection.execute(sql(name), {"first": first, "last": last})
    if known:
        connection.execute("update meta set value = $value where key = $key", {"key": KEY, "value": str(last)})
    else:
        connection.execute("insert into meta values ($key, $value)", {"key": KEY, "value": str(last)})
    return last < until


def expire(connection: duckdb.DuckDBPyConnection, before_ns: int) -> None:
    """Forget rollups of minutes before a moment; their requests have a retention of their own."""
    for table in ("rollups", "rollup_counts"):
        connection.execute(f"delete from {table} where minute_ns < $before", {"before": before_ns})


def rolled_up_through(connection: duckdb.DuckDBPyConnection) -> int:
    """The moment (ns) before which the rollups hold every request; 0 if nothing was folded yet."""
    found = connection.execute("select value from meta where key = $key", {"key": KEY}).fetchall()
    return int(found[0][0]) if found else 0
