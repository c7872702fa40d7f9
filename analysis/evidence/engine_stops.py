"""Does an engine stand still now and then, seen without the times of its tokens? Calls that wait are released at one moment, and those that are written lose as much.

A queue releases one call after the other, and a slow front end takes nothing from the calls that are written meanwhile. An engine that stops does both, and so
does a long prompt that is read in one piece, but then the prompt is read for as long.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.evidence.overlap import Flow
from overrun.analysis.evidence.prefill_stalls import SPIKE
from overrun.analysis.evidence.stream_pauses import CLEARLY
from overrun.analysis.numbers.statistics.proportion import wilson
from overrun.analysis.words.arrays import BoolArray, FloatArray

# Calls that wait, calls that are written beside them, and calls beside nobody who waits: fewest of each, and fewest pairs that wait at once; part of the waits
# that written calls lose, and part of the waiting neighbours (low end of the interval) that go on at one moment; own defaults.
MIN_EACH: Final = 10
MIN_PAIRS: Final = 5
LOST: Final = 0.5
AT_ONCE: Final = 0.5
# Most of the time may be stops: an engine that is slow all the time is slow.
MOST_TIME: Final = 0.5


class Stops(NamedTuple):
    """`waited` calls wait for `length_ms` (90th percentile) and go on together (`at_once`: part of neighbours, 95 % interval).

    Of the `met` calls that are written meanwhile, `lost` (interval) lose at least half of that time; of the others `lost_else` do (high end).
    `waited_ms` and `lost_ms` are the means of a slow call, `stopped_ratio` is the part of the time in which calls wait, and `read` the part of the waiting
    calls beside whose wait a prompt was read for at least half of it.
    """

    length_ms: float
    waited: int
    at_once: tuple[float, float]
    met: int
    lost: tuple[float, float]
    lost_else: float
    waited_ms: float
    lost_ms: float
    stopped_ratio: float
    read: float


def engine_stops(case: Observed) -> Stops | None:
    """Return the stops of an engine, None where calls do not wait together, or those beside them lose nothing."""
    if case.thinned:
        return None
    calls = case.calls.where(
        known(case.calls.of("ttft_ms"), case.calls.of("e2e_ms"), case.calls.token_ms)
        & (case.calls.of("output_tokens") >= SPIKE)
    )
    before = case.calls if case.calls_before is None else case.calls_before
    pace, usual = (
        float(np.nanmedian(values)) if known(values).any() else 0.0
        for values in (before.token_ms, before.of("ttft_ms"))
    )
    if len(calls) < MIN_CALLS or pace <= 0.0:
        return None
    wait = calls.of("ttft_ms") - usual - _own_reading(calls, before)
    late = wait > max(SPIKE * pace, usual)
    begins, ends = calls.of("start_s") + calls.of("ttft_ms") / 1e3, calls.end_s
    lost = 1e3 * (ends - begins) - pace * (calls.of("output_tokens") - 1.0)
    together = _released(calls, late, begins, SPIKE * pace / 1e3)
    beside, stopped = _beside(calls, late, begins, ends)
    met, free = beside > SPIKE * pace, beside <= 0.0
    if (
        min(int(late.sum()), int(met.sum()), int(free.sum())) < MIN_EACH
        or together is None
        or together[0] < AT_ONCE
        or stopped > MOST_TIME
    ):
        return None
    near = wilson(int((lost[met] >= LOST * beside[met]).sum()), int(met.sum()))
    as_much = LOST * float(np.median(beside[met]))
    far = wilson(int((lost[free] >= as_much).sum()), int(free.sum()))[1]
    read = _read_meanwhile(calls, late, begins)
    if near[0] <= CLEARLY * far or read > LOST:
        return None
    slow = calls.frame["trace_key"].is_in(case.slow["trace_key"].implode()).to_numpy()
    return Stops(
        length_ms=float(np.percentile(wait[late], 90.0)),
        waited=int(late.sum()),
        at_once=together,
        met=int(met.sum()),
        lost=near,
        lost_else=far,
        waited_ms=_mean(np.where(late, wait, 0.0)[slow]),
        lost_ms=_mean(np.where(met, np.clip(lost, 0.0, beside), 0.0)[slow]),
        stopped_ratio=stopped,
        read=read,
    )


def _own_reading(calls: Calls, before: Calls) -> FloatArray:
    """By how much longer each call's own prompt was read than usual, as far as it has more new tokens, in ms: no wait."""
    usual = before.of("prefill_ms")
    if not known(usual, before.new_tokens).any():
        return np.zeros(len(calls))
    per_token = float(np.nanmedian(usual / np.maximum(before.new_tokens, 1.0)))
    longer = per_token * (calls.new_tokens - float(np.nanmedian(before.new_tokens)))
    own = np.minimum(calls.of("prefill_ms") - float(np.nanmedian(usual)), longer)
    out: FloatArray = np.maximum(np.nan_to_num(own), 0.0)
    return out


def _read_meanwhile(calls: Calls, late: BoolArray, begins: FloatArray) -> float:
    """The part of the late calls beside whose wait their engine read prompts for at least half of it; 1 where no engine reports when it read."""
    if not calls.has_engine.any():
        return 1.0
    start, read = calls.of("start_s"), np.zeros(len(calls))
    since = begins - np.nan_to_num(calls.of("prefill_ms")) / 1e3
    for engine in np.unique(calls.engine):
        mine = calls.engine == engine
        order = np.flatnonzero(mine)[np.argsort(since[mine])]
        opens, closes = _union(since[order], begins[order])
        read[mine] = Flow(opens, closes, closes - opens).between(start[mine], since[mine])
    return float((read[late] >= LOST * (since - start)[late]).mean())


def _union(since: FloatArray, until: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Intervals (ascending by their begin) with those that overlap put together."""
    ends = np.maximum.accumulate(until)
    first = np.r_[True, since[1:] > ends[:-1]]
    return since[first], ends[np.r_[np.flatnonzero(first)[1:] - 1, len(since) - 1]]


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else 0.0


def _released(
    calls: Calls, late: BoolArray, begins: FloatArray, near_s: float
) -> tuple[float, float] | None:
    """The part (95 % interval) of the late calls that go on with the late one before them, of those that wait at the same time at one engine."""
    same, pairs = 0, 0
    start = calls.of("start_s")
    for engine in np.unique(calls.engine):
        chosen = np.flatnonzero(late & (calls.engine == engine))
        first, then = chosen[:-1], chosen[1:]
        both = start[then] < begins[first]
        pairs += int(both.sum())
        same += int((both & (np.abs(begins[then] - begins[first]) <= near_s)).sum())
    # Calls that wait beside each other are few where stops are short; the interval says the rest.
    return wilson(same, pairs) if pairs >= MIN_PAIRS else None


def _beside(
    calls: Calls, late: BoolArray, begins: FloatArray, ends: FloatArray
) -> tuple[FloatArray, float]:
    """How many ms of each call's writing others of its engine waited, and the part of all time in which some waited."""
    start, beside = calls.of("start_s"), np.zeros(len(calls))
    stopped = total = 0.0
    for engine in np.unique(calls.engine):
        mine = calls.engine == engine
        chosen = np.flatnonzero(late & mine)
        total += float(ends[mine].max() - start[mine].min())
        if not len(chosen):
            continue
        since, closed = _union(start[chosen], begins[chosen])
        flow = Flow(since, closed, closed - since)
        beside[mine] = 1e3 * flow.between(begins[mine], ends[mine])
        stopped += float((closed - since).sum())
    return beside, stopped / max(total, 1e-3)
