"""How does OTLP under another root become OTLP, and what are rows of calls that nobody declared? Decoded JSON documents in, export requests of OTLP/JSON out.

What other tools export is a form each (`forms/`). What none knows is named by `unread.py`.
"""

from __future__ import annotations

from typing import Any

from overrun.collector.errors import BadPayload
from overrun.collector.sources.account import Account
from overrun.collector.sources.exports import logged, rows, tempo


def otlp_inside(value: Any) -> list[dict[str, Any]] | None:
    """The requests in a document that holds OTLP under another root; None if it is none."""
    found = tempo.documents(value)
    return logged.documents(value) if found is None else found


def of_rows(
    value: Any, notes: list[str] | None = None, account: Account | None = None
) -> list[dict[str, Any]] | None:
    """The requests in rows of spans or calls whose columns nobody declared; None of anything else. The last way: it goes by the words of their names alone.
    What had to be concluded is added to `notes`, what its columns were is written into `account`.

    Raises:
        BadPayload: a value in it is of another type than its name says.
    """
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    try:
        found = rows.documents(value, notes, account)
    except (ValueError, TypeError, OverflowError) as error:
        raise BadPayload(f"it looks like rows of calls, but {str(error)[:200]}") from error
    if found is None and (what := rows.lacking(value)):
        raise BadPayload(f"it looks like {what}")
    return found
