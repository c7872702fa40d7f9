"""Which stations do series show whose names nobody knows? Any time that is added up is work of a step: seconds a second are the number inside (Little), by instance and labels."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from overrun.analysis.stations.series import Series
from overrun.analysis.stations.vocabulary import SURROUNDING

# What ends the name of a time that is added up: its unit, and how exporters mark a sum. Names say their unit (Prometheus' naming rules).
_TIME: Final = re.compile(
    r"(?:_(?:time|duration|latency))?_(seconds|milliseconds|ms|microseconds|us)(?:_sum)?(?:_total)?$"
)
_UNITS: Final = {
    "seconds": 1.0,
    "milliseconds": 1e-3,
    "ms": 1e-3,
    "microseconds": 1e-6,
    "us": 1e-6,
}
_COUNTED: Final = ("_count_total", "_count", "_total", "")


def as_steps(series: list[Series]) -> list[Series]:
    """The times that unknown series add up, each as the `e2e` of a step, whose model is its labels or its name; with the counter of the same stem as its count."""
    counters = {
        (one.instance, one.name, *sorted(one.labels.items())): one.values
        for one in series
        if one.kind == "flow"
    }
    found = []
    for one in series:
        unit = _TIME.search(one.name)
        if one.quantity is not None or unit is None or one.kind not in ("time", "flow"):
            continue
        if one.name.startswith(("process_", "go_", "python_")):
            continue
        counts = one.counts
        if counts is None:
            stems = (one.name[: unit.start()], one.name[: unit.end(1)])
            keys = [(one.instance, s + end) for s in stems for end in _COUNTED]
            labels = sorted(one.labels.items())
            known = (counters.get((*key, *labels)) for key in keys)
            counts = next((values for values in known if values is not None), None)
        named = {key: text for key, text in one.labels.items() if _parts(one, key, series)}
        model = " ".join([one.name[: unit.start()], *(named[key] for key in sorted(named))])
        found.append(
            replace(
                one,
                role="step",
                model=model,
                quantity="e2e",
                kind="time",
                values=one.values * _UNITS[unit[1]],
                counts=counts,
            )
        )
    return found


def _parts(one: Series, key: str, series: list[Series]) -> bool:
    """Whether a label parts series of one name on one page: `stage`, and not the page's own node."""
    some = {
        other.labels.get(key)
        for other in series
        if (other.name, other.instance) == (one.name, one.instance)
    }
    return len(some) > 1


def known(series: list[Series]) -> bool:
    """Whether any series is one of a station of the vocabulary."""
    return any(one.quantity and one.role != SURROUNDING for one in series)
