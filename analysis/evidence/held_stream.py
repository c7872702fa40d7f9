"""Do first tokens come later while answers end as before? Then something holds the stream back; a queue moves the end as well.

Beside an engine both are measured: by how much the client's first token and its end come behind the engine's. From a client alone they are compared with the
baseline's calls: first tokens at equal prompts, ends at equal answers.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.hidden_reasoning import unsaid_thought
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.numbers.statistics.proportion import Z_95
from overrun.analysis.words.arrays import BoolArray, FloatArray

# The end may move by this part of what the first token does, at the unfavourable end of its interval; a queue moves it by all of it.
ENDS: Final = 0.25
# Slope of writing time over tokens, now over before, from which the pace is the same: what is written faster also ends as before.
SAME_PACE: Final = 0.9
# The longest gap in the stream within this part of the time that it is held: it comes in pieces of a buffer's size.
EVEN_GAPS: Final = 0.15


class HeldStream(NamedTuple):
    """How much later first tokens and ends come than they need, in ms (median and 95 % interval over the slow requests' calls).

    `first_ms` and `end_ms` are behind the engine's where `measured`, else behind those of the baseline. `burst_tokens` is how many tokens come at a time,
    None where the stream's gaps do not show it.
    """

    first_ms: float
    end_ms: float
    held_ms: float
    interval: tuple[float, float]
    before_ms: float
    n: int
    measured: bool
    burst_tokens: float | None


def held_stream(case: Observed) -> HeldStream | None:
    """Return the time that streams are held back, None where first tokens are not later than before, the end is later too, or neither is known."""
    if (
        case.metric != "ttft"
        or not len(case.slow_calls)
        or unsaid_thought(case) is not None
        or _thinks(case)
    ):
        return None
    return _measured(case) or _compared(case)


def _thinks(case: Observed) -> bool:
    """Whether reasoning is told of: it comes before the first visible token, and within an answer of the same length."""
    told = np.nan_to_num(case.slow_calls.of("reasoning_tokens")) > 0.0
    return bool(told.sum() > 0.5 * len(told))


def behind_ms(calls: Calls) -> tuple[FloatArray, FloatArray]:
    """Return by how much the client's first token and end come behind the engine's, per call; NaN where one side is unknown."""
    alone = calls.of("engine_alone") > 0.0
    first = np.where(alone, np.nan, calls.of("ttft_client_ms") - calls.of("ttft_engine_ms"))
    end = np.where(alone, np.nan, calls.of("e2e_ms") - calls.of("engine_e2e_ms"))
    return first, end


def _measured(case: Observed) -> HeldStream | None:
    first, end = behind_ms(case.slow_calls)
    both = known(first, end)
    if int(both.sum()) < MIN_CALLS:
        return None
    held = (first - end)[both]
    before = 0.0
    if case.calls_before is not None:
        then = np.subtract(*behind_ms(case.calls_before))
        before = float(np.nanmedian(then)) if known(then).any() else 0.0
    return _answer(case, first[both], end[both], held, before, both, measured=True)


def _compared(case: Observed) -> HeldStream | None:
    """First tokens and ends against those of the baseline: by what a call takes, less what its answer takes to write at the former pace."""
    if case.calls_before is None or case.own_engines > 0.5:
        return None
    sides = [
        calls.where(
            known(*(calls.of(name) for name in ("ttft_client_ms", "e2e_ms", "output_tokens")))
        )
        for calls in (case.slow_calls, case.calls_before)
    ]
    if min(map(len, sides)) < MIN_CALLS:
        return None
    now, then = sides
    token = then.token_ms
    if not known(token).any() or not _same_pace(now, then):
        return None
    pace = float(np.nanmedian(token))
    first = now.of("ttft_client_ms") - float(np.median(then.of("ttft_client_ms")))
    ends = [side.of("e2e_ms") - pace * side.of("output_tokens") for side in sides]
    end = ends[0] - float(np.median(ends[1]))
    both = np.ones(len(now), np.bool_)
    return _answer(case, first, end, first - end, 0.0, both, measured=False, calls=now)


def _same_pace(now: Calls, then: Calls) -> bool:
    """Whether longer answers take as much longer to write as before: a buffer takes a constant off the writing time, a faster model a part of it."""
    slopes = []
    for side in (now, then):
        tokens, writing = side.of("output_tokens"), side.of("e2e_ms") - side.of("ttft_client_ms")
        if tokens.std() <= 0.0:
            return False
        slopes.append(float(np.polyfit(tokens, writing, 1)[0]))
    return slopes[0] >= SAME_PACE * slopes[1]


def _answer(
    case: Observed,
    first: FloatArray,
    end: FloatArray,
    held: FloatArray,
    before: float,
    some: BoolArray,
    *,
    measured: bool,
    calls: Calls | None = None,
) -> HeldStream | None:
    low, high = median_interval(held)
    end_high = median_interval(end)[1]
    if low <= max(0.0, before) or end_high > ENDS * low:
        return None
    middle = float(np.median(held))
    gaps = (calls or case.slow_calls).of("itl_max_ms")[some]
    pace = (calls or case.slow_calls).token_ms[some]
    pieces = known(gaps) & known(pace) & (np.abs(gaps - held) <= EVEN_GAPS * held)
    return HeldStream(
        first_ms=float(np.median(first)),
        end_ms=float(np.median(end)),
        held_ms=middle,
        interval=(low, high),
        before_ms=before,
        n=len(held),
        measured=measured,
        burst_tokens=float(np.median((held / np.maximum(pace, 1e-3))[pieces]))
        if float(pieces.mean()) > 0.5
        else None,
    )


def median_interval(values: FloatArray) -> tuple[float, float]:
    """Return the 95 % interval of a median by its order statistics (Hettmansperger and Sheather's binomial bounds, normal approximation)."""
    n = len(values)
    half = Z_95 * np.sqrt(n) / 2.0
    low, high = max(0, int(np.floor(n / 2.0 - half))), min(n - 1, int(np.ceil(n / 2.0 + half)))
    ordered = np.sort(values)
    return float(ordered[low]), float(ordered[high])
