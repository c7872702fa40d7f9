"""Is one station behind its peers of the same role: full while others are free, or slower for the same work?"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.stations.case import Case
from overrun.analysis.stations.ceilings import FULL, waits
from overrun.analysis.stations.sides import Sides, mean, quotient
from overrun.analysis.stations.station import Group, Station

# A free one has this part of the fullest one's requests or less, and this part of its queue; own defaults.
_FREE: Final = 0.6
_QUEUE: Final = 0.1
# Slower from half as slow again on, and no less so than it always was; own defaults.
SLOWER: Final = 1.5
_NEW: Final = 1.3


class Behind(NamedTuple):
    """One station that takes longer than its peers: seconds for `what`, and theirs."""

    station: Station
    what: str
    seconds: float
    usual: float


def full_and_free(sides: Sides, group: Group) -> tuple[list[Station], list[Station]]:
    """Return the stations at which requests wait, and those of the same role that could take the work."""
    full = [one for one in group.stations if waits(one, sides.now)]
    most = max((_load(sides, one) for one in full), default=0.0)
    queued = max((mean(one.sums.get("waiting"), sides.now) or 0.0 for one in full), default=0.0)
    free = [
        one
        for one in group.stations
        if one not in full
        and _load(sides, one) <= _FREE * most
        and (mean(one.sums.get("waiting"), sides.now) or 0.0) <= _QUEUE * queued
    ]
    return full, free


def slower_peer(case: Case, group: Group) -> Behind | None:
    """Return the station whose tokens, or whose requests, take longest beside its peers; None where none stands out, or always did so."""
    for what, of in (("a token", Group.token_time), ("a request", lambda one: one.time_of("e2e"))):
        known = []
        for one in group.stations:
            values = of(Group(group.role, group.model, [one]))
            now = mean(values, case.sides.now)
            if now:
                known.append((one, now, mean(values, case.sides.then) or 0.0))
        if len(known) < 2:
            continue
        one, worst, former = max(known, key=lambda item: item[1])
        usual = float(np.median([now for other, now, _ in known if other is not one]))
        past = float(np.median([then for other, _, then in known if other is not one]))
        always = former / past if past > 0.0 else 1.0
        new = case.sides.then is None or worst / usual >= _NEW * always
        if worst >= SLOWER * usual and new:
            return Behind(one, what, worst, usual)
    return None


def token_seconds(sides: Sides, group: Group, stations: list[Station]) -> float | None:
    """Return the seconds a running request spends for a token at some stations."""
    some = Group(group.role, group.model, stations)
    return quotient(some.quantity("running"), some.quantity("output_tokens"), sides.now)


def work_each(sides: Sides, group: Group, stations: list[Station]) -> float:
    """Return what one of some stations finishes a second."""
    work = Group(group.role, group.model, stations).work()
    return (mean(work, sides.now) or 0.0) / len(stations)


def room_without(sides: Sides, group: Group, station: Station) -> bool:
    """Whether the other stations can carry the whole sum: seats and KV cache must hold what they have now, times the work that they would get."""
    others = [one for one in group.stations if one is not station]
    seats = [mean(one.sums.get("seats"), sides.now) for one in others]
    usage = [mean(one.sums.get("kv"), sides.now) for one in others]
    if not others or any(waits(one, sides.now) for one in others):
        return False
    theirs = work_each(sides, group, others) * len(others)
    grown = (theirs + work_each(sides, group, [station])) / max(theirs, 1e-9)
    running = sum(mean(one.sums.get("running"), sides.now) or 0.0 for one in others)
    known = [limit for limit in seats if limit]
    if len(known) == len(others) and running * grown > sum(known):
        return False
    full = [part for part in usage if part is not None]
    return len(full) == len(others) and max(full) * grown < FULL


def _load(sides: Sides, station: Station) -> float:
    seen = station.seen()
    return mean(station.inside() if seen is None else seen, sides.now) or 0.0
