"""Which resources of a station are at their end during the incident, and which are seen free?"""

from __future__ import annotations

from math import ceil
from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.stations.case import Case
from overrun.analysis.stations.sides import each, mean
from overrun.analysis.stations.station import Group, Station
from overrun.analysis.stations.vocabulary import is_resource
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.finding import printable

# A gauge at 98 % of its limit is at it; in most bins, so that a moment is none. Own defaults.
_AT: Final = 0.98
MOSTLY: Final = 0.5
_PINNED: Final = 0.6
# A KV cache from which a quarter of the bins lie above this part is full; below this one it has room. Own defaults, as in evidence.kv_cache.
FULL: Final = 0.9
ROOM: Final = 0.8
_LEAST: Final = 5
# Who waits: at least half a request in most bins, and a third of one on average.
_WAITS: Final = 0.5
_WAITS_MEAN: Final = 0.3
# A processor that is used evenly (5 %) and to 90 % of a whole number of cores has no more; own defaults.
_EVEN: Final = 0.05
_OF_CORES: Final = 0.9
_BUSY: Final = 0.85
# Instances of a step that compute all the time are a whole number within 12 %; own default.
_WHOLE: Final = 0.12


class Ceiling(NamedTuple):
    """A resource that is at its end: which, and what is seen of it."""

    which: str
    words: str


def waits(station: Station, side: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> bool:
    """Whether requests wait at a station in most of these bins."""
    values = station.sums.get("waiting")
    if values is None:
        return False
    some = values[side & np.isfinite(values)]
    return len(some) > 0 and (some >= _WAITS).mean() >= MOSTLY and some.mean() >= _WAITS_MEAN


def ceilings(case: Case, station: Station) -> list[Ceiling]:
    """Return what is at its end, the most telling first: seats, KV cache, instances, processor, number running, then any other level at 1."""
    found = [
        _seats(case, station),
        _cache(case, station),
        _instances(case, station),
        _cores(case, station),
        _number(case, station),
        *_others(case, station),
    ]
    return [one for one in found if one is not None]


def idle(case: Case, group: Group) -> str:
    """Return what is seen to compute less than half of the time, as words; empty if nothing is known to."""
    used, busy = (case.sides.mean(group.quantity(key)) for key in ("gpu_util", "inference"))
    if used is not None:
        return f"its GPUs are used to {used:.0%}" if used < MOSTLY else ""
    busy = None if busy is None else busy / len(group.stations)
    if busy is not None and busy < MOSTLY:
        return f"it computes for {busy:.0%} of the time"
    return ""


def merged(group: Group) -> Station:
    """Return a group as one station, for resources that stand on other pages than its queue."""
    keys = {key for one in group.stations for key in one.sums}
    made = Station(group.name, group.role, group.model)
    made.sums = {key: values for key in keys if (values := group.quantity(key)) is not None}
    for one in group.stations:
        made.resources |= one.resources
    return made


def _known(case: Case, station: Station, key: str, some: BoolArray | None = None) -> FloatArray:
    values = station.sums.get(key)
    if values is None:
        return np.zeros(0)
    return values[case.sides.now & np.isfinite(values) & (True if some is None else some)]


def _seats(case: Case, station: Station) -> Ceiling | None:
    running, limit = (
        _known(case, station, "running"),
        mean(station.sums.get("seats"), case.sides.now),
    )
    if not len(running) or not limit or (running >= _AT * limit).mean() < MOSTLY:
        return None
    return Ceiling("seats", f"{running.mean():,.0f} of {limit:,.0f} seats are taken")


def _number(case: Case, station: Station) -> Ceiling | None:
    """Never more run than a number that is reached most of the time while others wait: a limit that nobody reports."""
    waiting = station.sums.get("waiting")
    if waiting is None:
        return None
    running = _known(case, station, "running", waiting >= _WAITS)
    if len(running) < _LEAST or running.max() < 1.0:
        return None
    if running.max() < np.nanmax(station.sums["running"][case.sides.now]):
        return None
    if (running >= _AT * running.max()).mean() < _PINNED:
        return None
    return Ceiling("number running", f"never more than {running.max():,.0f} run at a time")


def _cache(case: Case, station: Station) -> Ceiling | None:
    usage = _known(case, station, "kv")
    usage = usage / 100.0 if len(usage) and usage.max() > 1.5 else usage
    if not len(usage) or np.percentile(usage, 75.0) < FULL:
        return None
    return Ceiling("KV cache", f"KV cache usage is {np.median(usage):.0%}")


def _instances(case: Case, station: Station) -> Ceiling | None:
    busy = _known(case, station, "inference")
    if station.role not in ("step", "deployment") or len(busy) < _LEAST or busy.mean() < ROOM:
        return None
    near = _WHOLE * busy.mean()
    if abs(busy.mean() - round(busy.mean())) >= near or busy.std() >= near:
        return None
    return Ceiling(
        "instances", f"{round(busy.mean())} compute all the time ({busy.mean():.2f} on average)"
    )


def _cores(case: Case, station: Station) -> Ceiling | None:
    cores = _known(case, station, "cpu")
    if len(cores) < _LEAST or cores.mean() < _BUSY or cores.std() >= _EVEN * cores.mean():
        return None
    if cores.mean() < _OF_CORES * ceil(cores.mean() - _EVEN):
        return None
    return Ceiling("CPU", f"its process uses {cores.mean():.1f} cores, without a break")


def _others(case: Case, station: Station) -> list[Ceiling]:
    found = []
    for name, values in station.resources.items():
        some = values[case.sides.now & np.isfinite(values)]
        if is_resource(name) and len(some) and some.max() <= 1.0 and np.median(some) >= _AT:
            found.append(Ceiling(printable(name), f"{printable(name)} is {np.median(some):.2f}"))
    return found


def short_of_computing(case: Case, group: Group) -> str:
    """Return why waiting beside free seats is a matter of computing, as words; empty if nothing shows it."""
    sides, new = case.sides, group.new_tokens()
    if new is not None and sides.grew(new, 1.15):
        return f"{sides.mean(new):,.0f} prompt tokens a second are computed instead of {sides.former(new):,.0f}"
    dearer = each(group.quantity("prefill"), new)
    if (
        dearer is not None
        and sides.grew(dearer, 1.25)
        and (sides.ratio(group.quantity("running")) or 1.0) < 1.25
    ):
        return f"reading a prompt token takes {1e3 * (sides.mean(dearer) or 0.0):.3g} ms instead of {1e3 * (sides.former(dearer) or 0.0):.3g} ms"
    return ""
