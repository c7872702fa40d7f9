"""What changed beside the onset? Restarts, series and labels that are new or gone, versions, and series that nobody knows and that moved; bounded, by name and figure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.stations.series import Recording, Series
from overrun.analysis.stations.sides import Sides, each
from overrun.analysis.stations.stretch import WORTH
from overrun.analysis.words.arrays import BoolArray
from overrun.analysis.words.finding import printable

# Bins beside an onset, and seconds more, within which something came with it: a process takes a minute to start, and traffic returns later. Own defaults.
_BINS: Final = 10
_SECONDS: Final = 120.0
# A series that begins or ends this many bins from its instance's ends is new or gone.
_LATE: Final = 3.0
# So many counters that fall at once are a restart, one alone is an odd counter.
_COUNTERS: Final = 2
MOST_SHOWN: Final = 6
# Standard errors from which an unknown series that moved is shown; own default.
_CLEAR: Final = 5.0


class Change(NamedTuple):
    """One change: its kind, what it is, when (s since 1970), and figures where it has any. `name` is the series' own."""

    kind: str
    what: str
    time_s: float
    name: str = ""
    before: float | None = None
    after: float | None = None


@dataclass(frozen=True)
class Changes:
    """Changes beside an onset, the most telling kinds first; empty without an onset."""

    found: list[Change] = field(default_factory=list)

    def restarts(self) -> list[Change]:
        """Processes that started."""
        return [one for one in self.found if one.kind == "restart"]

    def new(self, *words: str) -> list[Change]:
        """Series or labels that are new and hold one of these words."""
        return [
            one
            for one in self.found
            if one.kind in ("new series", "new labels")
            and any(word in one.name.lower() for word in words)
        ]


def changes_at(recording: Recording, onset: int, sides: Sides) -> Changes:
    """Return what changed beside the onset (a bin)."""
    grid = recording.grid
    at, near = grid.time_s(onset), _BINS * grid.step_s + _SECONDS
    found = [
        *_restarts(recording),
        *_series_changes(recording),
        *_instances(recording),
        *_unknown_moved(recording, sides, at),
    ]
    beside = [one for one in found if abs(one.time_s - at) <= near]
    order = {
        "restart": 0,
        "new instance": 0,
        "gone instance": 0,
        "version": 1,
        "new series": 2,
        "gone series": 3,
        "new labels": 4,
    }
    return Changes(sorted(beside, key=lambda one: (order.get(one.kind, 5), abs(one.time_s - at))))


def _restarts(recording: Recording) -> list[Change]:
    found: dict[str, list[float]] = {}
    step = recording.grid.step_s
    for one in recording.series:
        if one.quantity == "started" and one.kind == "level":
            known = one.values[np.isfinite(one.values)]
            rises = known[1:][np.diff(known) > step / 2]
            found.setdefault(one.instance, []).extend(rises.tolist())
    for instance, times in recording.resets.items():
        several = {time for time in times if sum(abs(time - t) <= step for t in times) >= _COUNTERS}
        for time in sorted(several):
            known_times = found.setdefault(instance, [])
            if all(abs(time - other) > _BINS * step for other in known_times):
                known_times.append(time)
    return [
        Change("restart", f"{printable(instance)} started", time)
        for instance, times in found.items()
        for time in times
    ]


def _series_changes(recording: Recording) -> list[Change]:
    """Names that are new or gone on an instance that goes on, and labels of a name that stays."""
    grid = recording.grid
    late, end = _LATE * grid.step_s, grid.time_s(grid.bins - 1)
    found = []
    by_name: dict[tuple[str, str], list[Series]] = {}
    for one in recording.series:
        by_name.setdefault((one.instance, one.name), []).append(one)
    for (instance, name), some in by_name.items():
        where = f"{printable(name)} on {printable(instance)}"
        first, last = min(one.late_s for one in some), min(one.gone_s for one in some)
        if first > late:
            found.append(Change("new series", where, _start(recording, instance) + first, name))
        elif last > late:
            found.append(Change("gone series", where, end - last, name))
        else:
            found += [_labels(recording, one, some) for one in some if one.late_s > late]
    return found


def _instances(recording: Recording) -> list[Change]:
    """Instances that came or went while others were there: a replaced pod is one of each."""
    grid, seen = recording.grid, dict[str, BoolArray]()
    for one in recording.series:
        known = np.isfinite(one.values)
        seen[one.instance] = seen[one.instance] | known if one.instance in seen else known
    found = []
    for instance, known in seen.items():
        bins = np.flatnonzero(known)
        if len(bins) and bins[0] > _LATE:
            what = f"{printable(instance)} appeared"
            found.append(Change("new instance", what, grid.time_s(int(bins[0])), instance))
        if len(bins) and bins[-1] < grid.bins - 1 - _LATE:
            what = f"{printable(instance)} vanished"
            found.append(Change("gone instance", what, grid.time_s(int(bins[-1])), instance))
    return found


def _labels(recording: Recording, one: Series, others: Iterable[Series]) -> Change:
    """A series that is new beside others of its name: by the labels that they do not have, or by its version."""
    time = _start(recording, one.instance) + one.late_s
    former = [other for other in others if other.late_s < one.late_s]
    versions = {other.version for other in former}
    if one.version and versions and one.version not in versions:
        what = f"version {printable(one.version)} of {printable(one.instance)}"
        return Change("version", what, time, "version")
    known = {item for other in former for item in other.labels.items()}
    new = [
        f"{key}={value}" for key, value in sorted(one.labels.items()) if (key, value) not in known
    ]
    what = f"{printable(one.name)} with {printable(', '.join(new) or 'other labels')} on {printable(one.instance)}"
    return Change("new labels", what, time, f"{one.name} {' '.join(new)}")


def _start(recording: Recording, instance: str) -> float:
    """When an instance was first read, about: when the first of its series has a value."""
    firsts = [
        int(np.argmax(np.isfinite(one.values)))
        for one in recording.series
        if one.instance == instance and one.late_s == 0.0 and np.isfinite(one.values).any()
    ]
    return recording.grid.time_s(min(firsts, default=0))


def _unknown_moved(recording: Recording, sides: Sides, time_s: float) -> list[Change]:
    """Series that the vocabulary does not know and that differ since the onset, clearest first; of one name only the clearest."""
    found: dict[str, tuple[float, Change]] = {}
    for one in recording.series:
        if one.quantity is not None:
            continue
        mean = None if one.counts is None else each(one.values, one.counts)
        values = one.values if mean is None else mean
        clear = abs(sides.clear(values))
        now, then = sides.mean(values), sides.former(values)
        if clear < _CLEAR or clear <= found.get(one.name, (0.0, None))[0]:
            continue
        if now is None or then is None or abs(now - then) < (WORTH - 1.0) * abs(then):
            continue
        what = f"{printable(one.name)} on {printable(one.instance)}"
        found[one.name] = clear, Change("moved", what, time_s, one.name, then, now)
    ranked = sorted(found.values(), key=lambda item: -item[0])
    return [change for _, change in ranked[:MOST_SHOWN]]
