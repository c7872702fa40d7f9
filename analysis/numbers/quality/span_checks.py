"""Are the spans whole, and told once? Checks of what senders dropped before they sent (attributes, events, links beyond their SDK's limits), and of copies."""

from typing import Final

import duckdb

from overrun.analysis.numbers.quality.row import Check
from overrun.analysis.numbers.window import Window, answers
from overrun.analysis.words.finding import printable, say_count

# What was lost, by which variable of the SDK (128 each by default), and what is unknown for it.
_LOST: Final = (
    (
        "events",
        "OTEL_SPAN_EVENT_COUNT_LIMIT",
        "for streams with an event per chunk the first token is unknown, the pace comes from the remaining chunks, and TTFT percentiles "
        "cover shorter answers only.  Set the limit above the number of chunks, or send no event per chunk",
    ),
    (
        "attributes",
        "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
        "models, token counts or ids may be missing. Raise the limit, or record no messages as attributes",
    ),
    (
        "links",
        "OTEL_SPAN_LINK_COUNT_LIMIT",
        "work of other traces may not be linked. Raise the limit",
    ),
)
_NAMED: Final = 3  # services in one sentence
# Requests whose spans are looked at for copies: of 5,000 a share is right to 1 %, and all spans of a million would be grouped for it.
_COPIES_FROM: Final = 5_000


def span_checks(con: duckdb.DuckDBPyConnection, window: Window, requests: int) -> list[Check]:
    """Return a check per kind of part that spans of the window (with so many requests) lost, and one of copies; none where there are none."""
    return [*_lost_parts(con, window), *_copies(con, window, max(1, requests // _COPIES_FROM))]


def _copies(con: duckdb.DuckDBPyConnection, window: Window, every: int) -> list[Check]:
    rows = answers(
        con,
        "quality_repeats",
        {"start": window.start, "end": window.end, "service": window.service, "every": every},
    )
    if not rows:
        return []
    some = f" (of one trace in {every})" if every > 1 else ""
    senders = ", ".join(
        f"{printable(row['service'])} ({row['repeated']:,} of {row['spans']:,})"
        for row in rows[:_NAMED]
    )
    unfinished = sum(row["unfinished"] for row in rows)
    detail = f"spans came more than once and count once: {senders}{some}"
    if unfinished:
        detail += (
            f"; {say_count(unfinished, 'span')} with another end, of which the latest copy counts: a sender exports spans before they end, or "
            "sends them by two paths of which one is late"
        )
    return [Check(check="repeated_spans", status="warn" if unfinished else "ok", detail=detail)]


def _lost_parts(con: duckdb.DuckDBPyConnection, window: Window) -> list[Check]:
    if not answers(con, "any_cut_span", {}):
        return []
    rows = answers(
        con, "quality_cut", {"start": window.start, "end": window.end, "service": window.service}
    )
    found = []
    for part, variable, matters in _LOST:
        lost = sorted((row for row in rows if row[part]), key=lambda row: -row[part])
        if lost:
            senders = [
                f"{printable(row['service'])} ({say_count(row[part], 'span')}, up to {row[f'most_{part}']:,} each)"
                for row in lost
            ]
            more = f" and {len(senders) - _NAMED} more" if len(senders) > _NAMED else ""
            detail = f"limits of the sender's SDK dropped {part} in {', '.join(senders[:_NAMED])}{more}, by {variable} (128 by default): {matters}"
            found.append(Check(check=f"{part}_dropped", status="warn", detail=detail))
    return found
