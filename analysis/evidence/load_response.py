"""Is the endpoint slower, or fuller of the caller's own calls? Time per token and first tokens now over before, at as many own calls in flight.

Without engine telemetry, a provider that slows down makes calls overlap more as well (Little's law), so that load and slowness rise together. At equal load they
part: own engines seen from outside answer as before, a provider that became slower does not.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.evidence.call_duration import untimed, whole_calls
from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.demand import slope_within
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.evidence.overlap import Flow
from overrun.analysis.evidence.token_speed import MIN_TOKENS, at_equal_load, beyond_load
from overrun.analysis.numbers.statistics.effect_size import rank_correlation
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import NotEnoughData, say_ratio

# At equal load below this ratio nothing became slower; own default, between 0.9 to 1.18 where simulated engines were fuller and 1.3 to 9 where a provider,
# a proxy or a clock held calls up.
SAME: Final = 1.2
# Nor where what is slower at equal load is less than this part of how much slower all is, on the log scale: the load explains the most of it then; own default.
REST: Final = 0.5
# Calls made this much more often are more load; own default, as in `under_capacity`.
MORE: Final = 1.15
# Times the median of new tokens from which a prompt is huge; own default, as in `huge_context`.
HUGE: Final = 6.0
# Standard errors of no correlation from which what calls take follows how many there are; own default, as in `stalls`: below 2 at simulated providers, which
# do not feel the calls of one customer, above 8 at engines of one's own.
CERTAIN: Final = 5.0
# And above this ratio over all calls everybody is slower, not some; own default.
SLOWER_AT_EQUAL_LOAD: Final = 1.1


class OwnLoad(NamedTuple):
    """Medians now over before of the time per token, of the first token (at equal prompts) and, if it was not recorded, of the whole call (at equal length): of
    all calls, and of those at equal load (None unknown). `crowded` is the share of slow requests' calls that began among more calls than all but a
    twentieth did before."""

    pace: float
    pace_equal: float | None
    first: float
    first_equal: float | None
    whole: float = 1.0
    whole_equal: float | None = None
    crowded: float = 0.0
    untold: bool = False
    """Whether more calls are made, or huge prompts sent, and only some of them are stored: what is in flight, and so what calls take at equal load, is not
    known then."""
    moved: bool = True
    """Whether the endpoint is seen to feel the caller's own calls, or that is not known."""

    @property
    def paced(self) -> bool:
        """Whether tokens come as they did at equal load."""
        return _as_before(self.pace, self.pace_equal)

    @property
    def waits(self) -> bool:
        """Whether first tokens come as they did at equal load."""
        return _as_before(self.first, self.first_equal)

    @property
    def answers(self) -> bool:
        """Whether whole calls take what they took at equal load."""
        return _as_before(self.whole, self.whole_equal)


def _as_before(of_all: float, equal: float | None) -> bool:
    return equal is not None and equal < max(SAME, of_all**REST)


def huge_prompts(calls: Calls) -> int:
    """Return how many of the calls have so many new tokens to read that others wait for them."""
    tokens = calls.new_tokens
    return (
        int((tokens > HUGE * max(float(np.nanmedian(tokens)), 1.0)).sum())
        if known(tokens).any()
        else 0
    )


def unknown_load(load: OwnLoad | None, kept: float, said: str) -> NotEnoughData | None:
    """Say that what is slower may be one's own doing, where more calls are made of which only some are stored; None where that can be told."""
    if load is None or not load.untold:
        return None
    return NotEnoughData(
        f"{said}, while more calls or huge prompts are sent. Only {say_ratio(kept)} of them are stored, so whether the endpoint is slower at "
        "equal load is not known: keep every trace for some minutes, or trace the engine"
    )


def own_load(case: Observed) -> OwnLoad | None:
    """Compare the calls without engine times of the period and of the baseline; None without one or without such calls."""
    if case.calls_before is None or case.calls.has_engine.any():
        return None
    sides = (case.calls_before, case.calls)
    paces = [
        _pairs(
            side,
            side.running,
            np.where(side.of("output_tokens") >= MIN_TOKENS, side.token_ms, np.nan),
        )
        for side in sides
    ]
    firsts = [
        _pairs(side, side.in_flight, first_ms)
        for side, first_ms in zip(sides, first_tokens(*sides), strict=True)
    ]
    wholes = _wholes(*sides)
    rates = [len(side) / side.seconds if len(side) else 0.0 for side in sides]
    more = rates[1] >= MORE * rates[0]
    if case.thinned:
        return OwnLoad(
            _ratio(paces),
            None,
            _ratio(firsts),
            None,
            _ratio(wholes),
            None,
            untold=more or huge_prompts(case.calls) > 0,
        )
    return OwnLoad(
        _ratio(paces),
        _equal(paces, more),
        _ratio(firsts),
        _equal(firsts, more),
        _ratio(wholes),
        _equal(wholes, more),
        _crowded(case, case.calls_before),
        moved=_moved(*sides),
    )


def first_tokens(before: Calls, now: Calls) -> list[FloatArray]:
    """Return the first tokens of both, in ms, those now less what the mean prompt has more to read: that takes its time at any load.

    What a token of a prompt costs is told by the calls before: where calls wait, it is lost in the waiting.
    """
    tokens = [
        side.new_tokens[known(side.new_tokens, side.of("ttft_ms")) & side.writers]
        for side in (before, now)
    ]
    firsts = [side.of("ttft_ms") for side in (before, now)]
    if not all(map(len, tokens)):
        return firsts
    more_ms = slope_within([(before.new_tokens, firsts[0])]) * float(
        tokens[1].mean() - tokens[0].mean()
    )
    return [firsts[0], np.maximum(firsts[1] - more_ms, 0.0)]


def _equal(sides: list[tuple[FloatArray, FloatArray]], more: bool) -> float | None:
    """Ratio at equal load, also of loads that have nothing in common where `more` calls are made: over the line of those now, or over that of both.

    The line of the calls now is flat where all seats are taken, that of both where few were. Where no more are made, calls overlap because they are slow, and
    their number follows what they take.
    """
    shared = at_equal_load(sides)
    led_back = beyond_load(sides) if more and shared is None else None
    if led_back is None:
        return shared
    (load0, value0), (load1, value1) = sides
    usual = float(np.median(value0)) + slope_within(sides) * float(
        np.median(load1) - np.median(load0)
    )
    return min(led_back, float(np.median(value1)) / max(usual, 1e-3))


def _moved(before: Calls, now: Calls) -> bool:
    """Return whether tokens came the slower the more calls ran before, or first tokens come the later the more calls were made while one takes its usual time.

    Not the more are in flight now: a call that waits for whatever reason is in flight. True where either is not known.
    """
    began, usual_s = (
        now.of("start_s"),
        float(np.median(before.of("e2e_ms"))) / 1e3 if len(before) else 0.0,
    )
    made = np.sort(began)
    meanwhile = (
        np.searchsorted(made, began, side="right") - np.searchsorted(made, began - usual_s)
    ).astype(np.float64)
    sides = (
        _pairs(
            before,
            before.running,
            np.where(before.of("output_tokens") >= MIN_TOKENS, before.token_ms, np.nan),
        ),
        _pairs(now, meanwhile, now.of("ttft_ms")),
    )
    return any(len(load) < MIN_CALLS or _follows(load, value) for load, value in sides)


def _follows(load: FloatArray, value: FloatArray) -> bool:
    return rank_correlation(load, value) * math.sqrt(len(load) - 1) > CERTAIN


def _crowded(case: Observed, before: Calls) -> float:
    slow = case.calls.frame["trace_key"].is_in(case.slow["trace_key"].implode()).to_numpy()
    return (
        float((case.calls.in_flight[slow] > np.percentile(before.in_flight, 95.0)).mean())
        if slow.any() and len(before)
        else 0.0
    )


def _wholes(before: Calls, now: Calls) -> list[tuple[FloatArray, FloatArray]]:
    """Load and time of calls without a first token, over what calls of that length took before; both empty if that is not known."""
    found = whole_calls(before, now)
    if found is None:
        return [(np.zeros(0), np.zeros(0))] * 2
    out = []
    for side in (before, now):
        chosen, begin, seconds = (
            untimed(side),
            side.of("start_s"),
            np.maximum(side.of("e2e_ms") / 1e3, 1e-3),
        )
        beside = Flow(begin, begin + seconds, seconds).between(begin, begin + seconds) / seconds
        usual_ms = found.wait_before_ms + found.pace_before_ms * side.of("output_tokens")
        out.append((beside[chosen], (side.of("e2e_ms") / usual_ms)[chosen]))
    return out


def _pairs(calls: Calls, load: FloatArray, value: FloatArray) -> tuple[FloatArray, FloatArray]:
    chosen = known(load, value) & ~calls.has_engine & calls.writers
    return load[chosen], value[chosen]


def _ratio(sides: list[tuple[FloatArray, FloatArray]]) -> float:
    """Median value now over before, 1 where either side has none."""
    (_, before), (_, now) = sides
    return (
        float(np.median(now) / max(float(np.median(before)), 1e-3))
        if len(before) and len(now)
        else 1.0
    )
