"""Is what a filter names stored at all? A misspelt service, model or route is bad input, not an empty window, and never another subject."""

from __future__ import annotations

from typing import Final

import duckdb

from overrun.analysis.numbers.window import Window, answers, query
from overrun.analysis.words.errors import WindowError, nearest
from overrun.analysis.words.finding import printable, say_count
from overrun.analysis.words.times import rfc3339

_MOST_NAMED: Final = 3  # services that a sentence names
FILTERS: Final = ("service", "instance", "model", "route", "tenant", "workload")


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
            return f"--{name} {value!r} is not stored: {nearest(value, known) if known else f'no {name} is stored'}"
    return ""


def outside(con: duckdb.DuckDBPyConnection, window: Window) -> str:
    """Return that a window lies outside of the time that the store covers, with that time; empty where they overlap, or the store is empty."""
    if window.start is None and window.end is None:
        return ""
    held = answers(con, "stored_extent", {})[0]
    firsts = [held[name] for name in ("first_request", "first_sample") if held[name] is not None]
    lasts = [held[name] for name in ("last_request", "last_sample") if held[name] is not None]
    if not firsts:
        return ""
    first, last = min(firsts), max(lasts)
    if (window.start is None or window.start <= last) and (
        window.end is None or window.end > first
    ):
        return ""
    asked = " to ".join(
        "now" if moment is None else rfc3339(moment) for moment in (window.start, window.end)
    )
    return f"no request and no metric is stored of {asked}: {say_extent(con)}. Leave the window out to ask about all of it"


def say_extent(con: duckdb.DuckDBPyConnection) -> str:
    """Return which time the store covers, in words."""
    held = answers(con, "stored_extent", {})[0]
    said = [
        f"{what} from {rfc3339(held[first])} to {rfc3339(held[last])}"
        for what, first, last in (
            (say_count(held["requests"], "request"), "first_request", "last_request"),
            ("metrics", "first_sample", "last_sample"),
        )
        if held[first] is not None
    ]
    return f"the file holds {' and '.join(said)}" if said else "the file holds nothing"


def read_instead(con: duckdb.DuckDBPyConnection, window: Window) -> str:
    """Return what a window without a request holds: how many spans of which services, why none is a request, and the setting that adds requests.

    Empty where it holds no span, or where a filter leaves requests out.
    """
    if any(getattr(window, name) is not None for name in FILTERS):
        return ""
    found = answers(con, "spans_read", {"start": window.start, "end": window.end})
    if not found:
        return ""
    named = ", ".join(printable(str(row["service"])) for row in found[:_MOST_NAMED])
    spans, roots, served = (
        sum(row[name] for row in found) for name in ("spans", "roots", "served")
    )
    read = (
        f"{say_count(spans, 'span')} of {named}{' and others' if len(found) > _MOST_NAMED else ''}"
    )
    if served:
        name = next(row["served_name"] for row in found if row["served"])
        why = f"the {say_count(served, 'request')} in them ask for health or metrics ({printable(str(name))}), or are not complete"
    elif roots:
        why = "none of them serves a request or works on a message, and none is a model call"
    else:
        why = "the spans above them are not stored, and none of them is a model call"
    return (
        f"{read} were read, and none is of a request: {why}. Of these, traces and operations can be looked at. To judge latency, instrument the server that "
        "people ask (a span of kind SERVER or CONSUMER), or the client of the model (gen_ai.operation.name)."
    )


def refuse_unstored(con: duckdb.DuckDBPyConnection, window: Window) -> None:
    """Refuse a window without a request where that is because a filter names what is stored nowhere.

    Raises:
        WindowError: names the filter and the nearest stored name.
    """
    if why := unstored(con, window):
        raise WindowError(why)
