"""Up to which load does a system hold its SLO, and what breaks first? From the runs of a load test at several loads.

Runs of one model with about the same lengths of prompts and answers are compared, in order of load; runs at the same load are one level. The answer is the
highest level up to which every level holds. Its interval ends at the first level that misses the SLO beyond doubt, and begins at the last one of those that hold
it beyond doubt (95 % Wilson intervals at the effective sample size, since requests that queue together share their fate).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from overrun.analysis.numbers.load_tests.runs import Holds, RunRow, level_of, order_of

# Loads that differ by less are one level, and lengths that differ by less one kind of traffic. Own defaults.
_ONE_LEVEL: Final = 0.03
_ONE_KIND: Final = 0.25
# A load beyond the most that was ever answered by this much cannot be kept up with; own default.
_BEYOND: Final = 1.05
# Load decides where the next load is so many times worse; own default.
_RISES: Final = 1.2


class Capacity(msgspec.Struct, kw_only=True):
    """One series of runs. `holds_up_to_rps` is the highest load of which all lower ones hold the SLO too (0: the lowest load misses it already).

    `interval_rps` is where the limit of capacity lies, open above where no run missed it beyond doubt (null). `in_flight` is the number of requests in flight
    at that load and `interval_in_flight` its interval, for closed loops. `breaks_first` is the metric that is over its limit by most at the first load that misses it,
    `breaks` all of them there,
    `saturated_rps` the most answers a second where more was asked for than was answered. `load_decides` says of a limit that is missed at the
    lowest of several loads whether it is missed by far less there than at the next one.
    """

    runs: list[str]
    model: str | None
    closed: bool
    holds_up_to_rps: float | None
    interval_rps: tuple[float | None, float | None]
    in_flight: int | None
    interval_in_flight: tuple[int | None, int | None] = (None, None)
    breaks_at_rps: float | None
    breaks_first: str | None
    breaks: list[str]
    saturated_rps: float | None
    levels: int = 0
    load_decides: bool | None = None
    non_monotone: bool = False
    reasons: dict[str, str] = {}


@dataclass(frozen=True)
class _Level:
    """Runs at one load, and whether they hold the SLO."""

    load: float
    rows: list[RunRow]

    @property
    def holds(self) -> Holds:
        found = {row.holds for row in self.rows} - {"not known"}
        if not found:
            return "not known"
        return found.pop() if len(found) == 1 else "unclear"

    @property
    def held(self) -> bool | None:
        """By the point estimate: the mean share of runs with requests, else the summaries' own figures."""
        if self.holds in ("yes", "no"):
            return self.holds == "yes"
        if self.holds == "not known":
            return None
        votes = [bool(row.held) for row in self.rows if row.held is not None]
        return sum(votes) * 2 > len(votes)

    @property
    def sure(self) -> bool:
        return self.holds in ("yes", "no") and any(row.basis == "requests" for row in self.rows)


def capacities(rows: Sequence[RunRow]) -> list[Capacity]:
    """Return one answer per series of comparable runs, in the order of the first run of each."""
    return [_of(series) for series in _series(rows)]


def _series(rows: Sequence[RunRow]) -> list[list[RunRow]]:
    """Runs of one model with about the same lengths; a length that a run does not record matches any."""
    out: list[list[RunRow]] = []
    for row in rows:
        home = next((series for series in out if _comparable(series[0], row)), None)
        if home is None:
            out.append([row])
        else:
            home.append(row)
    return out


def _comparable(one: RunRow, other: RunRow) -> bool:
    if one.model is not None and other.model is not None and one.model != other.model:
        return False
    lengths = ((one.input_tokens, other.input_tokens), (one.output_tokens, other.output_tokens))
    return all(
        a is None or b is None or abs(a - b) <= _ONE_KIND * max(a, b) or not max(a, b)
        for a, b in lengths
    )


def _of(rows: list[RunRow]) -> Capacity:
    out = Capacity(
        runs=[row.name for row in rows],
        model=next((row.model for row in rows if row.model), None),
        closed=all(row.closed for row in rows),
        holds_up_to_rps=None,
        interval_rps=(None, None),
        in_flight=None,
        breaks_at_rps=None,
        breaks_first=None,
        breaks=[],
        saturated_rps=_saturated(rows),
    )
    levels = [level for level in _levels(rows) if level.held is not None]
    if not levels:
        unknown = [row.reasons["holds"] for row in rows if "holds" in row.reasons]
        why = (
            "; ".join(dict.fromkeys(unknown))
            or "no run has both a load and the metrics that are limited"
        )
        out.reasons = dict.fromkeys(("holds_up_to_rps", "interval_rps", "breaks_first"), why)
        return out
    out.levels = len(levels)
    held = [bool(level.held) for level in levels]
    last = held.index(False) - 1 if False in held else len(levels) - 1
    out.non_monotone = any(held[last + 1 :])
    out.holds_up_to_rps = levels[last].load if last >= 0 else 0.0
    out.in_flight = levels[last].rows[0].in_flight if last >= 0 and out.closed else None
    bounds = _interval(levels, last)
    out.interval_rps = (
        0.0 if bounds[0] is None else bounds[0].load,
        None if bounds[1] is None else bounds[1].load,
    )
    if out.closed:
        out.interval_in_flight = (
            0 if bounds[0] is None else bounds[0].rows[0].in_flight,
            None if bounds[1] is None else bounds[1].rows[0].in_flight,
        )
    if last + 1 < len(levels):
        broken = levels[last + 1]
        out.breaks_at_rps = broken.load
        out.breaks, out.breaks_first = _broken(broken)
        if last < 0 and len(levels) > 1:
            out.load_decides = _excess(levels[1]) > _RISES * _excess(levels[0])
    else:
        why = "every load holds the SLO: what breaks first shows at higher loads"
        out.reasons = dict.fromkeys(("breaks_first", "breaks_at_rps"), why)
    if out.interval_rps[1] is None:
        out.reasons["interval_rps"] = "no load misses the SLO beyond doubt: it is open above"
    return out


def _interval(levels: list[_Level], last: int) -> tuple[_Level | None, _Level | None]:
    """The last of the levels that hold the SLO beyond doubt from the lowest one on, and the first that misses it beyond doubt."""
    if not any(row.basis == "requests" for level in levels for row in level.rows):
        # Of summaries alone nothing is known of chance: the measured loads on either side bound it.
        return (
            levels[last] if last >= 0 else None,
            levels[last + 1] if last + 1 < len(levels) else None,
        )
    low = None
    for level in levels[: last + 1]:
        if level.holds != "yes" or not level.sure:
            break
        low = level
    high = next((level for level in levels[last + 1 :] if level.holds == "no" and level.sure), None)
    return low, high


def _levels(rows: Sequence[RunRow]) -> list[_Level]:
    placed = sorted(
        ((load, row) for row in rows if (load := level_of(row)) is not None),
        key=lambda item: (order_of(item[1]), item[0]),
    )
    out: list[_Level] = []
    for load, row in placed:
        if out and _same_level(out[-1], load, row):
            out[-1].rows.append(row)
        else:
            out.append(_Level(load, [row]))
    return out


def _same_level(level: _Level, load: float, row: RunRow) -> bool:
    if row.closed and row.in_flight is not None:
        return level.rows[0].in_flight == row.in_flight
    asked = level.rows[0].asked_rps
    if asked is not None and row.asked_rps is not None:
        return asked == row.asked_rps
    return abs(load - level.load) <= _ONE_LEVEL * max(load, level.load)


def _excess(level: _Level) -> float:
    """By how many times the limit that is missed by most is exceeded at a level."""
    return max(
        (
            limit.value_ms / max(limit.limit_ms, 1e-9)
            for row in level.rows
            for limit in row.limits
            if limit.value_ms is not None
        ),
        default=0.0,
    )


def _broken(level: _Level) -> tuple[list[str], str | None]:
    """The metrics beyond their limits at a level, and the one that is so by most."""
    excess: dict[str, float] = {}
    for row in level.rows:
        for limit in row.limits:
            if limit.met is not False:
                continue
            over = (limit.value_ms or limit.limit_ms) / max(limit.limit_ms, 1e-9)
            excess[limit.metric] = max(excess.get(limit.metric, 0.0), over)
    names = sorted(excess, key=lambda name: -excess[name])
    return names, names[0] if names else None


def _saturated(rows: Sequence[RunRow]) -> float | None:
    """The most answers a second, where some run asked for clearly more than that or its queue grew."""
    answered = [row.answered_rps for row in rows if row.answered_rps is not None]
    if not answered:
        return None
    most = max(answered)
    beyond = any(
        row.growing
        or (not row.closed and row.rate_rps is not None and row.rate_rps > _BEYOND * most)
        for row in rows
    )
    return most if beyond else None
