"""Do calls reach the engine only as others end, as behind a full connection pool or a proxy that passes a fixed number on?

A front end that takes one call after the other passes them on when its own work is done, whatever ends meanwhile.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.front_end import front_ms
from overrun.analysis.evidence.handed_over import (
    EARLY_S,
    MIN_HANDED,
    MIN_HELD,
    MIN_PAUSE_MS,
    follow,
)
from overrun.analysis.evidence.observed import Observed

# Share of the waiting calls that begin with as many others under way: own default.
_USUAL_SHARE: Final = 0.5
# Interquartile range of the waits over their median, below which they are a distance: who waits for a place waits as long as that takes. Own default.
_LEAST_SPREAD: Final = 0.2


class Slots(NamedTuple):
    """How many calls waited in front of the engine, the share of them that went on as another one ended, and how many were then under way (None: it varies)."""

    waiting: int
    handed_ratio: float
    at_once: int | None


def call_slots(calls: Calls) -> Slots | None:
    """Return the limit that holds calls back, None where too few wait, or they go on whatever others do."""
    gap = front_ms(calls)
    some = known(gap)
    waits = some & (np.nan_to_num(gap) > MIN_PAUSE_MS)
    if int(some.sum()) < MIN_CALLS or int(waits.sum()) < MIN_HELD:
        return None
    low, middle, high = (float(q) for q in np.quantile(gap[waits], [0.25, 0.5, 0.75]))
    if high - low < _LEAST_SPREAD * middle:
        return None
    passed, ends = calls.of("start_s") + gap / 1e3, np.sort(calls.end_s[some])
    # The way to the engine, and the step of its batch that a call meets there: both are part of the gap.
    slack = sum(
        float(np.median(values)) if len(values) else 0.0
        for values in (gap[some & ~waits], calls.token_ms[known(calls.token_ms)])
    )
    handed = follow(np.sort(passed[waits]), ends, slack / 1e3)
    if handed is None or handed < MIN_HANDED:
        return None
    begun = np.sort(passed[some])
    at_once = np.searchsorted(begun, passed[waits], side="right") - np.searchsorted(
        ends, passed[waits] + EARLY_S, side="right"
    )
    most, times = np.unique(at_once, return_counts=True)
    usual = int(most[times.argmax()])
    steady = times.max() >= _USUAL_SHARE * len(at_once)
    return Slots(int(waits.sum()), handed, usual if steady else None)


def asked_directly(case: Observed) -> bool:
    """Return whether callers name the very engines that serve them as their servers' addresses: then no proxy stands between, and a limit is the callers' own.

    Behind another name there may be a proxy; without addresses nobody knows.
    """
    names = case.calls.names("engine_instance")
    engines = {*names, *(name.rsplit(":", 1)[0] for name in names)}
    frame = case.tree.frame
    hosts = frame.filter((pl.col("role") == "llm") & (pl.col("host") != ""))["host"].unique()
    return bool(len(hosts)) and engines.issuperset(hosts.to_list())


def held_ms(calls: Calls, requests: int) -> float:
    """Return the wait in front of the engine per request, in ms, of the calls of some requests."""
    return float(np.nansum(front_ms(calls))) / max(requests, 1)
