"""Do others stand still while an engine reads a prompt? Odds of slow tokens given much against little to read, and whether calls that arrive meanwhile wait for the end."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.evidence.token_speed import MIN_TOKENS, Slowdown, slowdown
from overrun.analysis.numbers.statistics.effect_size import rank_correlation
from overrun.analysis.numbers.statistics.proportion import Z_95
from overrun.analysis.words.arrays import FloatArray

# Odds ratio above 3 with a lower limit above 1.5: published default.
MIN_ODDS: Final = 3.0
MIN_LOWER: Final = 1.5
# A call decodes slowly from this many times the usual time per token; own default.
SLOW: Final = 1.5
# A gap between chunks is a stall from this many median gaps: published factor 5.
SPIKE: Final = 5.0
# So many times longer, beside the pace, must the longest gap of a stream be than it was: own default, between 1.2 where a provider slows down in the second
# half of an answer and 2.5 to 4.4 where prompts stop it. Standard errors of no correlation, which were below 2 at a provider and above 12 there.
LONGER: Final = 1.5
MIN_STREAMS: Final = 5
CERTAIN: Final = 5.0
# A call that waits for the rest of the reading, but for this part of it, waits for its end. Nearly all must, and fewer than half before, for a setting to
# have changed: of simulated engines without chunked prefill 0.93 to 0.99 did, with it 0 to 0.23 where prompts take many steps, up to 0.95 where they take one.
WAITED_OUT: Final = 0.2
NEARLY_ALL: Final = 0.8
FEW: Final = 0.5


class Odds(NamedTuple):
    """Odds ratio of slow tokens given much against little to read meanwhile, with its 95 % interval (Woolf, Haldane corrected)."""

    ratio: float
    low: float
    high: float

    @property
    def clear(self) -> bool:
        """Whether tokens stall for what is read beside them."""
        return self.ratio >= MIN_ODDS and self.low >= MIN_LOWER


def stall_odds(calls: Calls, met: FloatArray, usual_ms: float) -> Odds | None:
    """Compare calls that met many tokens to read a second with those that met few (`met`, shape (n,); upper and lower third); None below 30 of either."""
    token, slow_ms = calls.token_ms, calls.of("itl_max_ms")
    chosen = known(token, met) & (calls.of("output_tokens") >= MIN_TOKENS)
    stalled = np.where(known(slow_ms), slow_ms > SPIKE * usual_ms, token > SLOW * usual_ms)
    low, high = (
        (float(q) for q in np.quantile(met[chosen], [1 / 3, 2 / 3]))
        if int(chosen.sum()) >= 90
        else (0.0, 0.0)
    )
    much, little = chosen & (met >= high), chosen & (met <= low)
    if min(int(much.sum()), int(little.sum())) < 30 or high <= low:
        return None
    return odds_ratio(stalled[much].astype(np.float64), stalled[little].astype(np.float64))


class Pauses(NamedTuple):
    """The longest gap of slow and of usual streams over their time per token (medians), and how closely (Spearman, -1..1, of `n` calls) the longest gaps
    follow the prompts that the caller sends meanwhile."""

    slow: float
    usual: float
    follows: float
    n: int

    @property
    def clear(self) -> bool:
        """Whether streams stop, as they did not before, and do so for the caller's own prompts: correlated by more than chance would at 5 standard errors."""
        return (
            self.slow >= SPIKE
            and self.slow >= LONGER * self.usual
            and self.follows * math.sqrt(self.n - 1) > CERTAIN
        )


def pauses(slow: Calls, usual: Calls, everyone: Calls) -> Pauses | None:
    """Return whether streams pause, from the gaps that a client records; None below 30 streamed calls without engine times, or 5 slow or usual ones."""
    told = [
        ~side.has_engine
        & known(side.of("itl_max_ms"), side.token_ms)
        & (side.of("output_tokens") >= MIN_TOKENS)
        for side in (slow, usual, everyone)
    ]
    if min(int(told[0].sum()), int(told[1].sum())) < MIN_STREAMS:
        return None
    # Of streams of like length: a longer one meets more of everything.
    alike = everyone.of("output_tokens") >= 0.5 * np.median(slow.of("output_tokens")[told[0]])
    asked = told[2] & alike & known(everyone.asked_meanwhile)
    if int(asked.sum()) < MIN_CALLS:
        return None
    worst = [
        float(np.median(side.of("itl_max_ms")[chosen] / np.maximum(side.token_ms[chosen], 1e-3)))
        for side, chosen in zip((slow, usual), told[:2], strict=True)
    ]
    follows = rank_correlation(everyone.of("itl_max_ms")[asked], everyone.asked_meanwhile[asked])
    return Pauses(worst[0], worst[1], follows, int(asked.sum()))


class Held(NamedTuple):
    """How long prompts of others kept calls waiting: `ms` per call, shape (n,), the part of its queue during which a prompt was read whose reading had begun
    before it came (0 where unknown); `share` of the `n` calls that came with a stall's time left to read and waited just that out."""

    ms: FloatArray
    share: float
    n: int


def held(calls: Calls, usual_ms: float) -> Held:
    """Mark the calls that waited while a prompt was read to its end: with chunked prefill the next step takes a new call in, without it none is taken in before.

    `usual_ms` is the usual time of a step; a call that came when less than a stall (`SPIKE` steps) was left to read shows nothing.
    """
    wait_s = calls.of("queue_ms") / 1e3
    came_s = calls.scheduled_s - wait_s
    usable = calls.has_engine & known(came_s)
    left_s = np.zeros(len(calls))
    for engine in np.unique(calls.engine[usable]):
        chosen = np.flatnonzero(usable & (calls.engine == engine))
        chosen = chosen[np.argsort(calls.scheduled_s[chosen], kind="stable")]
        read_s = np.maximum.accumulate(calls.first_s[chosen])
        last = np.searchsorted(calls.scheduled_s[chosen], came_s[chosen], side="left") - 1
        left_s[chosen] = np.where(
            last >= 0, np.maximum(read_s[np.maximum(last, 0)] - came_s[chosen], 0.0), 0.0
        )
    told = usable & (left_s > SPIKE * usual_ms / 1e3)
    out = np.abs(wait_s[told] / left_s[told] - 1.0) <= WAITED_OUT
    return Held(
        np.where(usable, 1e3 * np.minimum(np.nan_to_num(wait_s), left_s), 0.0),
        float(out.mean()) if len(out) else 0.0,
        len(out),
    )


def unchunked(before: Held | None, now: Held) -> bool | None:
    """Return whether prompts are read in one piece now, and were not `before` where there is a before; None below 30 calls that could show it."""
    if min(side.n for side in (before, now) if side is not None) < MIN_CALLS:
        return None
    return now.share >= NEARLY_ALL and (before is None or before.share < FEW)


def odds_ratio(much: FloatArray, little: FloatArray) -> Odds:
    """Return the odds of a 1 among `much` over those among `little`, arrays of 0 and 1."""
    a, b, c, d = (
        much.sum() + 0.5,
        len(much) - much.sum() + 0.5,
        little.sum() + 0.5,
        len(little) - little.sum() + 0.5,
    )
    log, error = math.log(a * d / (b * c)), math.sqrt(1 / a + 1 / b + 1 / c + 1 / d)
    return Odds(math.exp(log), math.exp(log - Z_95 * error), math.exp(log + Z_95 * error))


def waiting(case: Observed, found: Slowdown) -> tuple[Held, Held | None]:
    """Return which requests wait while a prompt is read, now and before (None without a baseline)."""
    return held(case.calls, found.usual_ms), None if case.calls_before is None else held(
        case.calls_before, found.before.token_ms
    )


def set_whole(case: Observed) -> bool:
    """Say whether engines read prompts in one piece that read them in chunks before: then it is this that makes long ones hold others up."""
    found = slowdown(case)
    if found is None or case.calls_before is None:
        return False
    now, before = waiting(case, found)
    return unchunked(before, now) is True
