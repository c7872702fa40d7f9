"""Do calls wait for a seat of the engine (max_num_seqs) while it has room for more? How many run when a call has to wait, now, and what ran at a time before.

Behind a limit of seats the number that runs is the same whenever a call waits; behind a full KV cache it is the number of tokens that is the same.
Of an engine without spans a caller sees the same: what its first token takes over the usual first token is its wait.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.engine_lives import engines_at_once
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.numbers.statistics.proportion import wilson
from overrun.analysis.words.arrays import BoolArray, FloatArray

# A seat more or less is a clock's: counts this near are one number, and so are counts within this part of it.
NEAR: Final = 1
NEAR_RATIO: Final = 0.1
# Part of the waiting calls that find as many running, and of the calls before that ran beside more and did not wait, at the low ends of their intervals.
FLAT: Final = 0.8
RAN_MORE: Final = 0.05
# KV usage from which the cache, not the seats, may be what is full; as in the rules.
KV_FULL: Final = 0.9
_ARRIVE: Final = 1.5
# Part of the slow calls that must go to engines of one's own for a limit to be an engine's setting; as in the rules.
_MOST: Final = 0.5


class Seats(NamedTuple):
    """`flat` (95 % interval) of the `waiting` calls found `seats` running. Before, `more` of `calm` calls that did not wait ran beside more than that; now
    `more_now` of `n_now` do, waiting or not, by the clocks' error.

    `by_caller`: the waits are those that callers see, of an engine without spans.
    `most_before` is the 95th percentile of how many those found (None without a baseline), `kv_usage` the highest that the engine's metrics say (None
    unknown), `wanted` how many seats the arrivals of now take, with half as many spare.
    """

    seats: int
    waiting: int
    flat: tuple[float, float]
    more: int
    calm: int
    most_before: float | None
    kv_usage: float | None
    token_ms: float
    token_ms_before: float | None
    wanted: int
    by_caller: bool = False
    more_now: int = 0
    n_now: int = 0

    @property
    def shrank(self) -> bool:
        """Whether calls clearly ran beside more of each other before, and did not wait."""
        by_clock = wilson(self.more_now, self.n_now)[1] if self.n_now else 0.0
        return self.calm > 0 and wilson(self.more, self.calm)[0] > max(RAN_MORE, by_clock)


def seats(case: Observed) -> Seats | None:
    """Return the limit of seats that calls wait for, None where the number that runs is not the same for all, the KV cache is full, or engines are unknown."""
    if case.thinned:
        return None
    usual_ms = _usual_first_ms(case)
    now = _at_arrival(case.served[0], usual_ms)
    if now is None or int(now.waited.sum()) < MIN_CALLS:
        return None
    calls, running, tokens, waited, unseen, served_s = now
    limit = _usual(running[waited], unseen[waited])
    near = max(NEAR, round(NEAR_RATIO * limit))
    # Fewer than usual are as many, if calls that left no times were under way.
    low, high = running[waited], running[waited] + unseen[waited]
    flat = wilson(int(((low <= limit + near) & (high >= limit - near)).sum()), int(waited.sum()))
    kv = case.gauge("kv_cache_usage")
    usage = float(kv.max()) if len(kv) else None
    if limit < 1 or flat[0] < FLAT or (usage is not None and usage >= KV_FULL):
        return None
    if usage is None and _scatter(running[waited]) > _scatter(tokens[waited]):
        return None  # what is constant is tokens: the cache
    before = None if case.served[1] is None else _at_arrival(case.served[1], usual_ms)
    more, calm, most = 0, 0, None
    if before is not None:
        quiet = ~before.waited
        more, calm = int((quiet & (before.running > limit)).sum()), int(quiet.sum())
        most = float(np.percentile(before.running[quiet], 95.0)) if calm else None
    seconds = calls.seconds
    return Seats(
        seats=limit,
        waiting=int(waited.sum()),
        flat=flat,
        more=more,
        calm=calm,
        most_before=most,
        kv_usage=usage,
        token_ms=_token_ms(calls),
        token_ms_before=None if before is None else _token_ms(before.calls),
        wanted=int(np.ceil(_ARRIVE * len(calls) / seconds * served_s / engines_at_once(calls))),
        by_caller=usual_ms is not None,
        more_now=int((running > limit).sum()),
        n_now=len(calls),
    )


def _usual(running: FloatArray, unseen: FloatArray) -> int:
    """The number that usually runs: where calls that left no times are always under way, the number that nine in ten do not exceed."""
    sure = running[unseen == 0]
    return int(np.median(sure) if len(sure) >= MIN_CALLS else np.percentile(running, 90.0))


def _token_ms(calls: Calls) -> float:
    pace = calls.token_ms
    return float(np.nanmedian(pace)) if known(pace).any() else 0.0


def _scatter(values: FloatArray) -> float:
    """The middle half over the median: of counts and of tokens in the same measure."""
    low, middle, high = (float(q) for q in np.percentile(values, [25.0, 50.0, 75.0]))
    return (high - low) / max(middle, 1e-9)


class _Arrivals(NamedTuple):
    """Calls, how many ran in their engine when each came and how many tokens these held, which of them waited, how many calls that left no times of
    their engine (given up, or failed) were under way, and how long one is served (mean)."""

    calls: Calls
    running: FloatArray
    tokens: FloatArray
    waited: BoolArray
    unseen: FloatArray
    served_s: float


def _usual_first_ms(case: Observed) -> float | None:
    """What a first token usually takes, where engines of one's own send no times of a call; None where they do, or where no engine is known."""
    now, before = case.served
    if int(now.has_engine.sum()) >= MIN_CALLS or case.own_engines <= _MOST:
        return None
    first = (now if before is None else before).of("ttft_ms")
    return float(np.nanmedian(first)) if known(first).any() else None


def _at_arrival(calls: Calls, usual_ms: float | None) -> _Arrivals | None:
    """What calls met when they came: by their engine's times, or by their caller's (`usual_ms`). A call waits if it does so for longer than a prompt is read:
    less is a step's end."""
    if usual_ms is None:
        timed = calls.has_engine & known(calls.of("queue_ms"), calls.scheduled_s)
    else:
        timed = known(calls.of("ttft_ms"), calls.of("e2e_ms"))
    usable, others = calls.where(timed), calls.where(~timed)
    if len(usable) < MIN_CALLS:
        return None
    if usual_ms is None:
        wait_ms, read_ms = usable.of("queue_ms"), float(np.nanmedian(usable.of("prefill_ms")))
        begins, ends = usable.scheduled_s, usable.last_s
        came = begins - wait_ms / 1e3
    else:
        wait_ms, read_ms = np.maximum(usable.of("ttft_ms") - usual_ms, 0.0), usual_ms
        came, ends = usable.of("start_s"), usable.end_s
        begins = came + wait_ms / 1e3
    held = np.nan_to_num(usable.of("input_tokens")) + np.nan_to_num(usable.of("output_tokens"))
    running, tokens = np.zeros(len(usable)), np.zeros(len(usable))
    for engine in np.unique(usable.engine):
        mine = usable.engine == engine
        for out, weight in ((running, np.ones(len(usable))), (tokens, held)):
            out[mine] = _under_way(begins[mine], ends[mine], weight[mine], came[mine])
    others = others.where(known(others.of("start_s"), others.end_s))
    unseen = _under_way(others.of("start_s"), others.end_s, np.ones(len(others)), came)
    waited: BoolArray = wait_ms > read_ms
    return _Arrivals(usable, running, tokens, waited, unseen, float(np.nanmean(ends - begins)))


def _under_way(
    begins: FloatArray, ends: FloatArray, weight: FloatArray, at: FloatArray
) -> FloatArray:
    total: list[FloatArray] = []
    for times, side in ((begins, "right"), (ends, "right")):
        order = np.argsort(times)
        sums = np.r_[0.0, np.cumsum(weight[order])]
        total.append(sums[np.searchsorted(times[order], at, side=side)])  # type: ignore[call-overload]
    out: FloatArray = total[0] - total[1]
    return out
