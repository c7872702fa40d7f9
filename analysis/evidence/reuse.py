"""Are calls slow when what serves them has not been used for a while, or has made place for something else? Silence and swaps per key, against lateness.

A model, an adapter or a compiled schema that is loaded on demand is dropped when nobody asks for it for some time (a keep-alive) or when others are asked for
(no room for all). The next call loads it again. Its key is what it is loaded for: the model, the engine, the adapter, the schema, the tenant, or any call at all.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import Calls, known
from overrun.analysis.evidence.late_calls import had_more_to_do, late_calls, wait_ms
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.numbers.statistics.proportion import wilson
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray
from overrun.analysis.words.finding import MIN_BREACHING

# Columns of calls that may be what is loaded; the empty name stands for any call.
KEYS: Final = ("", "model", "engine_instance", "tenant")
# Keys of which each has few calls are no store of things that are loaded: swaps are sought among this many, most used first.
MOST_KEYS: Final = 64
# Part of the late calls that must follow a silence (or a swap) for it to be what makes calls late; as for any cause named alone.
MOSTLY: Final = 0.5
# The rate of late calls after a silence over that of the others, both at the unfavourable end of their 95 % intervals.
CLEARLY: Final = 2.0


class Reuse(NamedTuple):
    """Late calls after a key was not used for `from_s` seconds or more (`swaps` is None), or after `swaps` other keys or more took its place.

    `after_late` of `after` such calls are late, `other_late` of `other` others of the same stretch of time. `quick_until_s` is the longest silence (or
    number of swaps) of those others after which calls are no more late than usual. `covers` is the 95 % interval of the part of late calls that this is.
    """

    key: str
    swaps: int | None
    from_s: float
    quick_until_s: float
    after: int
    after_late: int
    other: int
    other_late: int
    covers: tuple[float, float]
    late_ms: float
    usual_ms: float
    before_late: int
    before: int
    traces: pl.Series

    @property
    def added_ms(self) -> float:
        """What such a call takes longer than the others."""
        return self.late_ms - self.usual_ms


def reuse(case: Observed) -> Reuse | None:
    """Return what late calls follow, a silence or a swap of a key; None where neither is clear, or neighbours are unknown (a sample)."""
    if case.thinned or not len(case.slow_calls):
        return None
    both, now = _together(case)
    wait = wait_ms(both)
    late = now & late_calls(both, wait, case.slow["trace_key"])
    if int(late.sum()) < MIN_BREACHING:
        return None
    start = both.of("start_s")
    # Others of the same stretch: what is late at night for another reason is so after short silences, too.
    beside = now & (start >= start[late].min()) & (start <= start[late].max()) & known(wait)
    found = []
    for key, codes in _keys(both).items():
        # Of the keys that have late calls: one that is slow for itself, at any pause, is a slow replica.
        theirs = beside & np.isin(codes, np.unique(codes[late]))
        for swaps, gone in ((False, silence_s(both, codes)), (True, other_keys(both, codes))):
            one = _cut(both, wait, late, theirs, now, gone, key=key, swaps=swaps)
            # What is loaded is waited for: tokens that come slowly afterwards have another reason.
            waited = one is not None and one.added_ms >= MOSTLY * case.tail.excess_total_ms
            if one is not None and waited and not had_more_to_do(both, one.traces, beside):
                found.append(one)
    # What parts late from other calls best; of equal ones a silence of all calls, then a swap: what made place for another was silent meanwhile as well.
    return max(found, key=_parts, default=None)


def silence_s(calls: Calls, codes: IntArray) -> FloatArray:
    """Return how long before each call the last one of its key had ended, shape (n,): 0 where one was still under way, NaN where none was before."""
    out = np.full(len(calls), np.nan)
    start, end = calls.of("start_s"), calls.end_s
    for code in np.unique(codes[codes >= 0]):
        mine = np.flatnonzero(codes == code)
        ended = np.maximum.accumulate(np.nan_to_num(end[mine], nan=-np.inf))
        out[mine[1:]] = np.maximum(start[mine[1:]] - ended[:-1], 0.0)
    return out


def other_keys(calls: Calls, codes: IntArray) -> FloatArray:
    """Return how many other keys were asked for since the last call of the same key, shape (n,); NaN where there was none or keys are unknown."""
    n, out = len(calls), np.full(len(calls), np.nan)
    uses = np.bincount(codes[codes >= 0]) if (codes >= 0).any() else np.zeros(0, np.int64)
    names = np.argsort(-uses, kind="stable")[:MOST_KEYS]
    if len(names) < 2 or not n:
        return out
    at = np.arange(n)
    # Where each key was last used before each call: -1 for never.
    last = {
        int(name): np.r_[-1, np.maximum.accumulate(np.where(codes == name, at, -1))[:-1]]
        for name in names
        if uses[name]
    }
    for name, own in last.items():
        mine = (codes == name) & (own >= 0)
        out[mine] = sum(
            (there[mine] > own[mine]).astype(np.float64)
            for other, there in last.items()
            if other != name
        )
    return out


def _together(case: Observed) -> tuple[Calls, BoolArray]:
    """The calls of the baseline and of now in order, where the one follows on the other (else those of now), and which of them are of now."""
    before = case.calls_before
    if (
        before is None
        or case.baseline is None
        or abs((case.period.start - case.baseline.end).total_seconds()) > 1.0
    ):
        return case.calls, np.ones(len(case.calls), np.bool_)
    return Calls(pl.concat([before.frame, case.calls.frame])), np.arange(
        len(before) + len(case.calls)
    ) >= len(before)


def _keys(calls: Calls) -> dict[str, IntArray]:
    """What may be loaded, as one code per call; keys that all calls share say no more than any call does."""
    out = {"": np.zeros(len(calls), np.int64)}
    for name in KEYS[1:]:
        codes = calls.codes(name)
        if len(np.unique(codes[codes >= 0])) > 1:
            out[name] = codes
    return out


def _cut(
    calls: Calls,
    wait: FloatArray,
    late: BoolArray,
    beside: BoolArray,
    now: BoolArray,
    gone: FloatArray,
    *,
    key: str,
    swaps: bool,
) -> Reuse | None:
    """The silence (or number of other keys) that parts late from other calls best, where it does so clearly by the intervals of both rates."""
    some = beside & known(gone)
    hit = late & some
    if int(hit.sum()) < MIN_BREACHING or int((some & ~late).sum()) < MIN_BREACHING:
        return None
    from_ = _best_cut(gone[some], late[some])
    after = some & (gone >= from_)
    counts = [int(x.sum()) for x in (after & late, after, some & ~after & late, some & ~after)]
    if min(counts[1], counts[3]) < MIN_BREACHING:
        return None
    covers = wilson(counts[0], int((late & beside).sum()))
    if (
        covers[0] < MOSTLY
        or wilson(counts[0], counts[1])[0] < CLEARLY * wilson(counts[2], counts[3])[1]
    ):
        return None
    quick = gone[some & ~after & ~late]
    late_ms, usual_ms = float(np.median(wait[after & late])), float(np.median(wait[some & ~late]))
    # Nobody drops what takes longer to load than it was kept.
    if not swaps and 1e3 * from_ < late_ms - usual_ms:
        return None
    then = ~now & known(gone, wait) & (gone >= from_)
    return Reuse(
        key=key,
        swaps=int(from_) if swaps else None,
        from_s=float(gone[after & late].min()),
        quick_until_s=float(quick.max()) if len(quick) else 0.0,
        after=counts[1],
        after_late=counts[0],
        other=counts[3],
        other_late=counts[2],
        covers=covers,
        late_ms=late_ms,
        usual_ms=usual_ms,
        before_late=int((wait[then] > np.sqrt(late_ms * usual_ms)).sum()),
        before=int(then.sum()),
        traces=calls.frame["trace_key"].filter(pl.Series(after & late)),
    )


def _best_cut(gone: FloatArray, late: BoolArray) -> float:
    """The value from which on lateness begins: where the distribution of late calls lags most behind that of the others (Youden's J)."""
    order = np.argsort(gone, kind="stable")
    values, hits = gone[order], late[order]
    # At or above each value: the share of late calls less the share of others.
    above = hits[::-1].cumsum()[::-1] / max(int(hits.sum()), 1) - (~hits)[::-1].cumsum()[
        ::-1
    ] / max(int((~hits).sum()), 1)
    first = np.r_[True, values[1:] != values[:-1]]
    return float(values[first][int(np.argmax(above[first]))])


def _parts(one: Reuse) -> tuple[float, bool, bool]:
    found = one.after_late / max(one.after, 1) - one.other_late / max(one.other, 1)
    missed = 1.0 - one.after_late / max(one.after_late + one.other_late, 1)
    return round(found - missed, 2), one.key == "", one.swaps is not None
