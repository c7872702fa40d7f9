"""Which traits follow from the order of occurrences? First of, silence, age, another than before, arrivals, what is under way, what others do meanwhile, the clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from overrun.analysis.assembly import critical_path as cp
from overrun.analysis.contrast.attributes import MOST_VALUES, Attribute
from overrun.analysis.contrast.read import Spans
from overrun.analysis.contrast.traits import Occurrences, Traits, kinds
from overrun.analysis.words.arrays import FloatArray, IntArray

# Keys with up to so many values, or more that are identities with at most this part of different ones, are followed over time; own defaults.
MOST_FOLLOWED: Final = 30
LEAST_REPEATED: Final = 0.7
# A key is compared with its last value where it has so few.
MOST_SWITCHED: Final = 12
# Widths in s of the stretches in which arrivals are counted, and lengths of clocks that scheduled work keeps.
ARRIVALS_S: Final = (1.0, 10.0, 60.0)
CLOCKS_S: Final = (60.0, 300.0, 600.0, 900.0, 1800.0, 3600.0)
# Of what is done meanwhile, this many pairs of spans at most are looked at.
MOST_PAIRS: Final = 2_000_000
_SIZES: Final = ("input_tokens", "uncached_tokens", "output_tokens", "reasoning_tokens")


@dataclass(frozen=True)
class Load:
    """Begins and ends in ms, each sorted, of what may be under way."""

    begins: FloatArray
    ends: FloatArray

    @staticmethod
    def of(begins: FloatArray, ends: FloatArray) -> Load:
        """Sort them."""
        return Load(np.sort(begins), np.sort(ends))

    def under_way(self, at: FloatArray) -> FloatArray:
        """How many began before these moments and had not ended."""
        begun = np.searchsorted(self.begins, at, "left")
        return (begun - np.searchsorted(self.ends, at, "right")).astype(np.float64)

    def arrived(self, at: FloatArray, width_ms: float) -> FloatArray:
        """How many began within so long before these moments."""
        until = np.searchsorted(self.begins, at, "left")
        return (until - np.searchsorted(self.begins, at - width_ms, "left")).astype(np.float64)


def add_order(
    spans: Spans, found: Occurrences, out: Traits, requests: Load, origin_s: float
) -> None:
    """Add the traits of order to those of attributes. `requests` are all of the window, `origin_s` is the clock at 0 ms."""
    _follow(spans, found, out)
    operation, service = spans.operation[found.row[0]], spans.service[found.row[0]]
    mine = (spans.operation == operation) & (spans.service == service)
    loads = {"its operation": Load.of(spans.start[mine], spans.end[mine]), "requests": requests}
    after = found.after[found.after >= 0]
    if len(after) and len(np.unique(spans.operation[after])) == 1:
        same = spans.operation == spans.operation[after[0]]
        loads["what comes next"] = Load.of(spans.start[same], spans.end[same])
    for name, load in loads.items():
        out.numbers(f"under way: {name}", load.under_way(found.at))
        for width in ARRIVALS_S:
            out.numbers(f"arrivals of {name} in {width:.0f} s", load.arrived(found.at, width * 1e3))
    out.numbers("time", (found.at - found.at.min()) / 1e3)
    clock = found.at / 1e3 + origin_s
    for period in CLOCKS_S:
        if np.ptp(clock) > 3.0 * period:
            out.numbers(f"clock of {period:.0f} s", clock % period)
    _meanwhile(spans, found, out)


def _follow(spans: Spans, found: Occurrences, out: Traits) -> None:
    """Add first of, silence, age and switch of each key that occurrences share, and of the operation as a whole."""
    followed: dict[bytes, None] = {}
    whole = np.zeros(out.n, dtype=np.int64)
    keyed: list[tuple[str, IntArray]] = [("operation", whole)]
    keyed.append(("instance", spans.process[found.row]))
    keyed += [(name, column.codes) for name, column in out.items() if _is_key(name, column)]
    for name, codes in keyed:
        marks = _first_seen(codes).tobytes()
        if marks in followed:
            continue
        followed[marks] = None
        _of_key(name, codes, found.at, out)


def _is_key(name: str, column: Attribute) -> bool:
    """Whether what occurrences share by this trait is followed over time."""
    known = column.codes[column.codes >= 0]
    if len(known) < 0.5 * len(column.codes) or kinds().of(name) in (
        "size_in",
        "size_out",
        "failed",
    ):
        return False
    distinct = len(np.unique(known))
    if not 2 <= distinct <= LEAST_REPEATED * len(known):
        return False
    return distinct <= MOST_FOLLOWED or bool(kinds().identity.search(name))


def _first_seen(codes: IntArray) -> IntArray:
    """Codes by the order in which their values appear: equal for keys that part occurrences alike."""
    values, first, place = np.unique(codes, return_index=True, return_inverse=True)
    rank = np.empty(len(values), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(values))
    return np.where(codes >= 0, rank[place.ravel()], -1)


def _of_key(name: str, codes: IntArray, at: FloatArray, out: Traits) -> None:
    """The traits of one key. Silence counts from begin to begin: from the end it would follow from slowness itself."""
    order = np.lexsort((at, codes))
    order = order[codes[order] >= 0]
    if not len(order):
        return
    code, begin = codes[order], at[order]
    again = np.concatenate([[False], code[1:] == code[:-1]])
    silence = np.full(out.n, np.nan)
    silence[order] = np.where(again, np.diff(begin, prepend=begin[0]) / 1e3, np.nan)
    out.numbers(f"silence of {name}", silence)
    if name == "operation":
        return
    first = np.full(out.n, -1, dtype=np.int64)
    first[order] = ~again
    first[at <= at.min()] = -1  # whatever is first of all was not seen begin
    out.add(f"first of {name}", Attribute(first, ["no", "yes"], None))
    starts = begin[np.flatnonzero(~again)]
    span = float(np.ptp(at))
    if len(starts) >= 3 and starts.std() > 0.1 * span:  # else it is the time
        age = np.full(out.n, np.nan)
        age[order] = (
            begin - np.repeat(starts, np.diff(np.append(np.flatnonzero(~again), len(order))))
        ) / 1e3
        out.numbers(f"age of {name}", age)
    if len(starts) <= MOST_SWITCHED:
        by_time = order[np.argsort(begin, kind="stable")]
        switch = np.full(out.n, -1, dtype=np.int64)
        switch[by_time[1:]] = codes[by_time[1:]] != codes[by_time[:-1]]
        out.add(f"another {name} than before", Attribute(switch, ["no", "yes"], None))


def _meanwhile(spans: Spans, found: Occurrences, out: Traits) -> None:
    """Add what other requests had under way in the same process when each occurrence began: the largest sizes, and which models, tenants and routes."""
    calls = (spans.paths.role == cp.LLM) | (spans.paths.role == cp.ENGINE)
    group = np.flatnonzero(
        (calls & np.isin(spans.process, np.unique(spans.process[found.row])))
        | np.isin(np.arange(len(calls)), found.row)
    )
    mine, other = _pairs(spans, found, group)
    if not len(mine):
        return
    for key in _SIZES:
        column = spans.attributes.get(key)
        if column is None or column.numbers is None:
            continue
        above = np.maximum(
            spans.parent[other], 0
        )  # an engine's client knows what the engine does not say
        own = column.numbers[other]
        size = np.nan_to_num(np.where(np.isnan(own), column.numbers[above], own))
        largest = np.zeros(out.n)
        np.maximum.at(largest, mine, size)
        out.numbers(f"meanwhile largest {key}", largest)
    for key in ("model", "tenant", "route"):
        column = spans.attributes.get(key)
        if column is None or len(column.texts) > MOST_VALUES:
            continue
        codes = column.codes[other]
        for code in np.unique(codes[codes >= 0]):
            there = np.zeros(out.n, dtype=np.bool_)
            there[mine[codes == code]] = True
            out.flags(f"meanwhile {key} {column.texts[code]}", there)


def _pairs(spans: Spans, found: Occurrences, group: IntArray) -> tuple[IntArray, IntArray]:
    """Pairs of occurrences and spans of a group that another request has under way in the same process when the occurrence begins."""
    mine, others = [], []
    for process in np.unique(spans.process[found.row]):
        rows = group[spans.process[group] == process]
        rows = rows[np.argsort(spans.start[rows], kind="stable")]
        here = np.flatnonzero(spans.process[found.row] == process)
        begins = spans.start[rows]
        longest = float((spans.end[rows] - begins).max()) if len(rows) else 0.0
        high = np.searchsorted(begins, found.at[here], "right")
        low = np.searchsorted(begins, found.at[here] - longest, "left")
        if int((high - low).sum()) > MOST_PAIRS:
            continue
        number = high - low
        which = np.repeat(here, number)
        place = (
            np.arange(len(which))
            - np.repeat(np.cumsum(number) - number, number)
            + np.repeat(low, number)
        )
        other = rows[place]
        kept = (spans.end[other] > found.at[which]) & (
            spans.root[other] != spans.root[found.row[which]]
        )
        mine.append(which[kept])
        others.append(other[kept])
    none = np.zeros(0, dtype=np.int64)
    return np.concatenate([none, *mine]), np.concatenate([none, *others])
