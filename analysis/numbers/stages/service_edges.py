"""Between which two services is time lost, and on whose side? The part of a call that its client saw and its server did not, split among both.

The gap belongs to the edge, not to the caller (a caller that waits looks slow, and so does everything above it). The change of each edge's median gap is
fitted as overall + caller + callee by median polish (Tukey, "Exploratory Data Analysis", 1977), so that one bad caller or one bad callee stands out from
the edges that it is part of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Literal

import duckdb
import msgspec
import numpy as np

from overrun.analysis.numbers.window import MOST_SPAN_REQUESTS, query
from overrun.analysis.words.finding import printable, say_ms

# Calls on an edge from which its median is read: at 20 it lies between the 6th and 15th value with 95 % confidence. Own default.
LEAST_ON_EDGE: Final = 20
# An effect is named from this many milliseconds, and this many times the median of what the fit leaves unexplained. Own defaults.
LEAST_MS: Final = 5.0
OVER_NOISE: Final = 3.0
_ROUNDS: Final = 20
_MOST: Final = 50


class Edge(msgspec.Struct, kw_only=True):
    """One caller and callee: median gap (ms) of n calls, the baseline's (null without one), and what changed, or stands above the usual edge."""

    caller: str
    callee: str
    n: int
    gap_ms: float
    before_ms: float | None
    delta_ms: float
    reasons: dict[str, str] = {}


class Culprit(msgspec.Struct, kw_only=True):
    """Where the time is lost: one side of several edges, or one `edge` if it is not known which side. `n` calls, `effect_ms` on each of its edges."""

    side: Literal["caller", "callee", "edge"]
    name: str
    effect_ms: float
    n: int


class Edges(msgspec.Struct, kw_only=True):
    """The edges of a window, largest change first, and whom the two-way fit names (null: nobody stands out, `reasons` reports it)."""

    edges: list[Edge]
    culprit: Culprit | None
    reasons: dict[str, str] = {}


def edges(
    con: duckdb.DuckDBPyConnection,
    start: datetime,
    end: datetime,
    onset: datetime | None,
    requests: int,
) -> Edges:
    """Return the edges of [onset, end) against [start, onset); without an onset those of the whole window against each other."""
    every = max(1, math.ceil(requests / MOST_SPAN_REQUESTS))
    found = con.execute(
        query("edges"), {"start": start, "end": end, "onset": onset or start, "every": every}
    ).fetchall()
    rows = {
        (caller, callee, now): (n, gap)
        for caller, callee, now, n, gap in found
        if n >= LEAST_ON_EDGE
    }
    now = {key[:2]: value for key, value in rows.items() if key[2]}
    before = {key[:2]: value[1] for key, value in rows.items() if not key[2] and key[:2] in now}
    if onset is not None:
        now = {key: value for key, value in now.items() if key in before}
    if not now:
        why = f"no caller and callee share {LEAST_ON_EDGE} calls that both recorded" + (
            ", before the onset and since" if onset else ""
        )
        return Edges(edges=[], culprit=None, reasons={"culprit": why, "edges": why})
    usual = float(np.median([gap for _, gap in now.values()]))
    made = [
        Edge(
            caller=printable(key[0]),
            callee=printable(key[1]),
            n=n,
            gap_ms=gap,
            before_ms=before.get(key),
            delta_ms=gap - before.get(key, usual),
            reasons={}
            if key in before
            else {"before_ms": "no onset is known, so there is no time before it"},
        )
        for key, (n, gap) in now.items()
    ]
    named = culprit({(edge.caller, edge.callee): (edge.delta_ms, edge.n) for edge in made})
    reasons = (
        {} if named else {"culprit": "no caller, callee or connection differs from the others"}
    )
    return Edges(
        edges=sorted(made, key=lambda edge: -edge.delta_ms)[:_MOST], culprit=named, reasons=reasons
    )


def culprit(table: Mapping[tuple[str, str], tuple[float, int]]) -> Culprit | None:
    """Return who stands out in a table of (caller, callee) -> (delta in ms, calls): a side with two or more edges, else a single edge."""
    overall, callers, callees = median_polish({key: delta for key, (delta, _) in table.items()})
    rest = {
        key: delta - overall - callers[key[0]] - callees[key[1]]
        for key, (delta, _) in table.items()
    }
    needed = max(LEAST_MS, OVER_NOISE * float(np.median(np.abs(list(rest.values())))))
    choices = []
    for side, effects, at in (("caller", callers, 0), ("callee", callees, 1)):
        for name, effect in effects.items():
            mine = [key for key in table if key[at] == name]
            if len(mine) >= 2 and len(effects) >= 2:
                choices.append((effect, side, name, sum(table[key][1] for key in mine)))
    if len(callers) == 1 or len(callees) == 1:
        # One side is the same on every edge: the other side and the edge are one thing.
        choices += (
            [(delta - overall, "edge", " -> ".join(key), n) for key, (delta, n) in table.items()]
            if len(table) > 1
            else [(delta, "edge", " -> ".join(key), n) for key, (delta, n) in table.items()]
        )
    else:
        choices += [(left, "edge", " -> ".join(key), table[key][1]) for key, left in rest.items()]
    effect, side, name, n = max(choices, key=lambda choice: choice[0])
    sides: dict[str, Literal["caller", "callee", "edge"]] = {
        "caller": "caller",
        "callee": "callee",
        "edge": "edge",
    }
    return Culprit(side=sides[side], name=name, effect_ms=effect, n=n) if effect >= needed else None


def median_polish(
    table: Mapping[tuple[str, str], float],
) -> tuple[float, dict[str, float], dict[str, float]]:
    """Return (overall, row effects, column effects) of a non-empty two-way table that may have holes; medians of both kinds of effects are 0."""
    rows, columns = (dict.fromkeys(sorted({pair[at] for pair in table}), 0.0) for at in (0, 1))
    overall, left = 0.0, dict(table)
    for _ in range(_ROUNDS):
        moved = 0.0
        for effects, at in ((rows, 0), (columns, 1)):
            for name in effects:
                step = float(np.median([value for pair, value in left.items() if pair[at] == name]))
                effects[name] += step
                moved = max(moved, abs(step))
                left |= {pair: value - step for pair, value in left.items() if pair[at] == name}
            middle = float(np.median(list(effects.values())))
            overall += middle
            for name in effects:
                effects[name] -= middle
        if moved < 1e-9:
            break
    return overall, rows, columns


def say_culprit(found: Edges | None) -> str:
    """Who adds time between client and server, as part of a sentence; empty where nobody stands out."""
    if found is None or found.culprit is None:
        return ""
    named = found.culprit
    return f"{named.side} {named.name} adds {say_ms(named.effect_ms)} between client and server (median, n {named.n:,})"
