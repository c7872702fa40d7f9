"""How is the table of facts read in a terminal? One line a factor, what accounts for most of the excess first, and what is not known at the end."""

from __future__ import annotations

from itertools import groupby

from overrun.analysis.evidence.fact import Fact, Side, say_value
from overrun.analysis.front.document import Document, Items, Table
from overrun.analysis.front.fact_list import FactList
from overrun.analysis.words.finding import printable, say_count, say_ms, say_ratio

_HEAD = ("FACT", "before", "now", "change", "clear", "excess")
# From tenfold on a change reads better as a factor; from a thousandfold on there was as good as nothing before.
_MANY_TIMES, _UNCOUNTED = 10.0, 1_000
_NAMED = 3
_NOTE = "Facts overlap, so their parts of the excess do not add up. 'Clear' means that the 95 % interval of the change leaves out no change."


def document(found: FactList) -> Document:
    """Return what is known of each factor of latency."""
    if found.metric is None:
        return Document([], lead=f"No facts: {found.reasons.get('facts', 'nothing is judged')}")
    unknown = sorted(
        (fact for fact in found.facts if fact.now is None),
        key=lambda fact: fact.reasons.get("now", ""),
    )
    entries = [
        f"{', '.join(printable(fact.label) for fact in some)}: {why}"
        for why, some in groupby(unknown, key=lambda fact: fact.reasons.get("now", ""))
    ]
    return Document(
        [
            [table(found)],
            [Items("NOT KNOWN", [(text, ()) for text in entries], hang=2)] if entries else [],
        ],
        lead=_said(found),
    )


def table(found: FactList) -> Table:
    """Return a row for each known fact, what accounts for most of the excess first."""
    known = [fact for fact in found.facts if fact.now is not None]
    known.sort(key=lambda fact: -(fact.excess_total_ms or 0.0))
    short, long = ([_cells(fact, intervals) for fact in known] for intervals in (False, True))
    note = f"{when_changed(found)} {_NOTE}".strip()
    return Table(
        _HEAD,
        long,
        "<>>><>",
        wrap_first=True,
        narrow=Table(_HEAD, short, "<>>><>", wrap_first=True, spare=(4,), note=note),
        note=note,
    )


def when_changed(found: FactList) -> str:
    """Return when the metric changed, and how that shows; empty where it changed at no single moment."""
    onset = found.onset
    if onset is None:
        return ""
    first, last = (f"{moment:%H:%M:%S}" for moment in onset.interval)
    return (
        f"{(found.metric or '').upper()} changed at {onset.at:%Y-%m-%d %H:%M:%S} UTC ({first} to {last}): {say_ratio(onset.before_ratio)} of the requests "
        f"took more than {say_ms(onset.level_ms)} before, {say_ratio(onset.after_ratio)} since then."
    )


def _said(found: FactList) -> str:
    """What was compared with what, and what most of the excess goes with."""
    against = {
        "baseline": "the slowest ones of the baseline",
        "healthy": "the requests within the limit",
        "typical": "typical requests",
    }[found.reference or "typical"]
    most = sorted(
        (fact for fact in found.facts if fact.now is not None and fact.excess_total_ms),
        key=lambda fact: -(fact.excess_total_ms or 0.0),
    )[:_NAMED]
    named = ", ".join(f"{printable(one.label)} ({excess(one, intervals=False)})" for one in most)
    goes = f" It goes most with: {named}." if named else ""
    return f"{say_count(found.slow, 'slow request')}: {(found.metric or '').upper()} is {say_ms(found.excess_ms or 0.0)} longer than that of {against}.{goes}"


def _cells(fact: Fact, intervals: bool) -> tuple[str, ...]:
    label = fact.label if fact.among in ("all calls", "engines") else f"{fact.label} (slow)"
    clear = "-" if fact.clear is None else "yes" if fact.clear else "no"
    return (
        f"  {printable(label, 200)}",
        _side(fact, fact.before),
        _side(fact, fact.now),
        change(fact),
        clear,
        excess(fact, intervals=intervals),
    )


def _side(fact: Fact, side: Side | None) -> str:
    return "-" if side is None else say_value(side.value, fact.unit)


def change(fact: Fact) -> str:
    """Return the change in words: `+12 %`, from tenfold on `x 35`, of a share in points: `-15.2 points`."""
    if fact.change is None:
        return "-"
    if fact.unit == "ratio":
        return f"{100.0 * fact.change:+.1f} points"
    if fact.change >= _MANY_TIMES:
        return f"x {fact.change:,.0f}" if fact.change < _UNCOUNTED else f"x {_UNCOUNTED:,}+"
    return f"{'+' if fact.change >= 1.0 else ''}{say_ratio(fact.change - 1.0)}"


def excess(fact: Fact, *, intervals: bool = True) -> str:
    """Return the milliseconds of the excess that a fact accounts for, with their interval; `-` where it accounts for none."""
    if fact.excess_total_ms is None:
        return "-"
    if fact.excess_interval is None or not fact.excess_total_ms or not intervals:
        return say_ms(fact.excess_total_ms)
    low, high = map(say_ms, fact.excess_interval)
    return f"{say_ms(fact.excess_total_ms)} ({low} to {high})"
