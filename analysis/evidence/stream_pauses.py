"""Do all streams of an engine stop at once, whatever it reads? Pauses of running answers by their length, their clock, and whether neighbours share them.

A stream's chunks tell its longest gap and how long all of its tokens took. Where gaps are of one length, the rest of the time gives how many there were, and one
clock for all calls must predict that number for each of them. Where lengths vary, calls that run at the same time must share their longest gap.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.evidence.prefill_stalls import SPIKE
from overrun.analysis.numbers.statistics.effect_size import rank_correlation
from overrun.analysis.numbers.statistics.proportion import Z_95, wilson
from overrun.analysis.words.arrays import FloatArray

# Lengths whose middle 80 % lie within this part of their median are one length; counts within this much of a whole number are whole.
ONE_LENGTH: Final = 0.2
WHOLE: Final = 0.25
# Part of the calls whose number of pauses one clock predicts, at the low end of its interval, and how far that is above what a clock of its own for each call
# would (the better of the two neighbouring numbers).
ONE_CLOCK: Final = 0.8
# Neighbours that share their longest gap, over calls that do not run at the same time, both at the unfavourable end.
CLEARLY: Final = 2.0
# Rank correlation of a stream's pauses with the prompts sent meanwhile from which they are the prompts' (upper end of the 95 % interval).
PROMPTS: Final = 0.3
_FAR: Final = 50
# A clock is sought in as many calls at most: more say no more of it.
MOST_CALLS: Final = 2_000
_STEPS: Final = 2_000
_PHASES: Final = 20
_AROUND: Final = 0.1


class StreamPauses(NamedTuple):
    """Pauses of `length_ms` in `share` of the `n` streamed calls, `paused_ms` a slow call in all; the longest gap was `before_ms` in the baseline.

    `every_s` is the clock's period, None where pauses keep none; `together` is the part of calls that show that all stop at once (one clock predicts their
    number of pauses, or a neighbour has the same longest gap) with its 95 % interval, `by_chance` what independent pauses would show. `prompts` is the rank
    correlation of pauses with the prompt tokens that are sent meanwhile.
    """

    length_ms: float
    share: float
    n: int
    paused_ms: float
    part_of_writing: float
    before_ms: float
    every_s: float | None
    together: tuple[float, float]
    by_chance: float
    prompts: float


# The clock's period (None: none), the part of calls that stop with others and its interval, and the part that would by chance.
_Together = tuple[float | None, tuple[float, float], float]


def stream_pauses(case: Observed) -> StreamPauses | None:
    """Return the pauses that all streams share, None where streams do not pause, pause each for itself, or for prompts."""
    usual = _pace_ms(case)
    if usual is None:
        return None
    calls = case.calls.where(
        known(*(case.calls.of(name) for name in ("itl_max_ms", "ttft_ms", "e2e_ms")))
        & (case.calls.of("output_tokens") >= SPIKE)
    )
    gap = calls.of("itl_max_ms") - usual
    paused = gap > SPIKE * usual
    if len(calls) < MIN_CALLS or int(paused.sum()) < MIN_CALLS:
        return None
    writing = calls.of("e2e_ms") - calls.of("ttft_ms")
    lost = np.maximum(writing - usual * (calls.of("output_tokens") - 1.0), 0.0)
    prompts = _follows(lost / np.maximum(writing, 1.0), calls)
    if prompts + Z_95 / np.sqrt(len(calls)) > PROMPTS:
        return None
    length = float(np.median(gap[paused]))
    found: _Together | None = (
        _clock(calls, writing, lost, length) if _one_length(gap[paused]) else None
    )
    if found is None:
        found = _shared(case, calls, gap, paused, usual)
    if found is None:
        return None
    slow = calls.frame["trace_key"].is_in(case.slow["trace_key"].implode()).to_numpy()
    before = case.calls_before.of("itl_max_ms") if case.calls_before is not None else np.zeros(0)
    return StreamPauses(
        length_ms=length,
        share=float(paused.mean()),
        n=len(calls),
        paused_ms=float(lost[slow].mean()) if slow.any() else 0.0,
        part_of_writing=float(lost[slow].sum() / max(float(writing[slow].sum()), 1.0)),
        before_ms=float(np.nanmedian(before)) if known(before).any() else usual,
        every_s=found[0],
        together=found[1],
        by_chance=found[2],
        prompts=prompts,
    )


def _pace_ms(case: Observed) -> float | None:
    """The time between two tokens where nothing pauses: the baseline's, else of the calls of today whose longest gap is an ordinary one."""
    for calls, calm in ((case.calls_before, False), (case.calls, True)):
        if calls is None:
            continue
        pace, gap = calls.token_ms, calls.of("itl_max_ms")
        some = known(pace, gap) & (~(gap > SPIKE * pace) if calm else True)
        if int(some.sum()) >= MIN_CALLS:
            return float(np.median(pace[some]))
    return None


def _follows(part: FloatArray, calls: Calls) -> float:
    """Rank correlation of the part of its time that a stream stands with the prompt tokens that are read or sent meanwhile; 0 where that is not known."""
    read = np.where(calls.has_engine, calls.prefill_meanwhile, calls.asked_meanwhile)
    some = known(read, part)
    if int(some.sum()) < MIN_CALLS:
        return 0.0
    return rank_correlation(part[some], read[some])


def _one_length(gaps: FloatArray) -> bool:
    low, middle, high = (float(q) for q in np.percentile(gaps, [10.0, 50.0, 90.0]))
    return high - low <= ONE_LENGTH * middle


def _clock(calls: Calls, writing: FloatArray, lost: FloatArray, length: float) -> _Together | None:
    """The period of one clock whose ticks within each answer are its pauses: period, part of the calls predicted with its interval, and that by chance."""
    some = np.arange(len(calls)) < MOST_CALLS
    calls, writing, lost = calls.where(some), writing[some], lost[some]
    number = lost / length
    whole = np.round(number)
    if float((np.abs(number - whole) <= WHOLE).mean()) < ONE_CLOCK or not whole.sum():
        return None
    begins = calls.of("start_s") + calls.of("ttft_ms") / 1e3
    begins = begins - begins.min()
    ends = begins + writing / 1e3
    about = float(writing.sum()) / 1e3 / float(whole.sum())
    # A drift of a tenth of a period over the whole window is seen: as many steps as that takes, within bounds.
    steps = int(np.clip(20.0 * _AROUND * float(ends.max()) / about, 100, _STEPS))
    best, period = 0.0, about
    for every in np.linspace((1.0 - _AROUND) * about, (1.0 + _AROUND) * about, steps):
        phases = np.arange(_PHASES)[:, None] / _PHASES
        ticks = np.floor(ends / every - phases) - np.floor(begins / every - phases)
        right = float((ticks == whole).mean(axis=1).max())
        if right > best:
            best, period = right, float(every)
    rest = (writing / 1e3 / period) % 1.0
    chance = float(np.maximum(rest, 1.0 - rest).mean())
    interval = wilson(round(best * len(calls)), len(calls))
    if interval[0] < max(ONE_CLOCK, chance):
        return None
    return period, interval, chance


def _shared(
    case: Observed, calls: Calls, gap: FloatArray, paused: np.ndarray, usual: float
) -> _Together | None:
    """Calls that run at the same time with the same longest gap, against calls that do not; only where every prompt is known, which may stop all as well."""
    if case.thinned or float(calls.has_engine.mean()) < 0.9:
        return None
    at, ends = calls.of("start_s") + calls.of("ttft_ms") / 1e3, calls.end_s
    order = np.argsort(at)
    at, ends, gap, paused = at[order], ends[order], gap[order], paused[order]
    counts = []
    for lag, beside in ((1, True), (_FAR, False)):
        pair = paused[:-lag] & paused[lag:] & ((at[lag:] < ends[:-lag]) == beside)
        same = np.abs(gap[lag:] - gap[:-lag]) <= usual
        counts.append((int((same & pair).sum()), int(pair.sum())))
    if min(n for _, n in counts) < MIN_CALLS:
        return None
    near, far = (wilson(*one) for one in counts)
    return (None, near, far[1]) if near[0] > CLEARLY * far[1] else None
