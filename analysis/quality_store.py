"""Does the store hold every span that it acknowledged? What an earlier version lost, and what the file lacks now."""

from datetime import timedelta
from typing import Any, Final

import duckdb
import msgspec

from analysis.finding import say_count
from analysis.trust import Check
from analysis.window import Window

# Spans come after they have ended: those of a window within this time, as a rule.
_LATE: Final = timedelta(hours=1)


class Held(msgspec.Struct, kw_only=True):
    """How many commits a file has, and spans of them that were acknowledged and are missing: found by `overrun migrate` (`lost_before`), or now (`lost`).

    `copies` are rows that stand twice. `first` and `last` are when the commits with missing or doubled spans were received.
    """

    commits: int
    spans: int
    lost_before: int
    lost: int
    copies: int
    first: str | None = None
    last: str | None = None

    @property
    def whole(self) -> bool:
        """Whether nothing is missing and nothing stands twice."""
        return not (self.lost_before or self.lost or self.copies)


_OF_THE_FILE: Final = """
with now as (
    select received, greatest(spans - distinct_stored, 0) as lost, stored - distinct_stored as copies, spans from v_commits),
wrong as (
    select received, lost, copies, 0 as lost_before from now where lost > 0 or copies > 0
    union all select received, 0, 0, missing from v_incomplete_commits)
select (select count(*) from now) as commits, (select coalesce(sum(spans), 0) from now)::bigint as spans,
    coalesce(sum(lost), 0)::bigint as lost, coalesce(sum(copies), 0)::bigint as copies, coalesce(sum(lost_before), 0)::bigint as lost_before,
    strftime(min(received), '%Y-%m-%dT%H:%M:%SZ') as first, strftime(max(received), '%Y-%m-%dT%H:%M:%SZ') as last
from wrong"""


def held(con: duckdb.DuckDBPyConnection) -> Held:
    """Compare the rows of a whole file with what its commits recorded. Reads one column of every span: about 20 ms a million."""
    cursor = con.execute(_OF_THE_FILE)
    names = [column[0] for column in cursor.description]
    [row] = cursor.fetchall()
    return msgspec.convert(dict(zip(names, row, strict=True)), Held)


def said_of(found: Held) -> str:
    """One line on whether the file is whole."""
    of = f"{say_count(found.spans, 'span')} of {say_count(found.commits, 'commit')}"
    if found.whole:
        return f"the file holds every span that was acknowledged: {of}"
    parts = [f"{much}{say_count(n, 'acknowledged span')} {what}" for much, n, what in (
        ("up to ", found.lost_before, "lost by a version before 0.1.0"), ("", found.lost, "recorded and not there")) if n]
    parts += [f"{say_count(found.copies, 'row')} stored twice"] if found.copies else []
    when = f"received from {found.first} to {found.last}"
    return f"the file is incomplete: {', '.join(parts)}, {when}, of {of}. Send what you still have of that time again: what is there counts once"


def store_checks(con: duckdb.DuckDBPyConnection, window: Window) -> list[Check]:
    """Return a failed check if acknowledged spans of the window's time are known to be missing."""
    params: dict[str, Any] = {"start": window.start, "end": None if window.end is None else window.end + _LATE}
    [(commits, missing)] = con.execute(
        "select count(*), coalesce(sum(missing), 0)::bigint from v_incomplete_commits "
        "where ($start is null or received >= $start) and ($end is null or received < $end)", params).fetchall()
    if not commits:
        return []
    detail = f"up to {say_count(missing, 'acknowledged span')} of {say_count(commits, 'commit')} of this time are missing (a fault of versions before 0.1.0)"
    return [Check(check="incomplete_commits", status="fail", detail=f"{detail}: requests may lack stages or calls; `overrun doctor` has the times")]
