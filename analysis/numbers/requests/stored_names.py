"""Is what a filter names stored at all? A misspelt service, model or route is bad input, not an empty window, and never another subject."""

from __future__ import annotations

from typing import Final

import duckdb

from overrun.analysis.numbers.window import Window, query
from overrun.analysis.words.errors import WindowError, nearest

FILTERS: Final = ("service", "model", "route", "tenant", "workload")


def unstored(con: duckdb.DuckDBPyConnection, window: Window) -> str:
    """Return which filter of a window names what is stored nowhere, with the nearest name that is; empty where all are, or the store is empty.

    Asked for where a window holds no request, since it reads every name.
    """
    asked = {
        name: value
        for name in FILTERS
        if (value := getattr(window, name)) is not None
        and not (name == "workload" and value == "all")
    }
    if not asked:
        return ""
    stored: dict[str, list[str]] = {}
    for kind, name in con.execute(query("stored_names")).fetchall():
        if name is not None:
            stored.setdefault(kind, []).append(str(name))
    for name, value in asked.items():
        known = stored.get(name, [])
        if stored and value not in known:
            return f"--{name} {value!r} names nothing that is stored: {nearest(value, known) if known else f'no {name} is stored'}"
    return ""


def refuse_unstored(con: duckdb.DuckDBPyConnection, window: Window) -> None:
    """Refuse a window without a request where that is because a filter names what is stored nowhere.

    Raises:
        WindowError: names the filter and the nearest stored name.
    """
    if why := unstored(con, window):
        raise WindowError(why)
