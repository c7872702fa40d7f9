"""Does the gap in front of an engine follow prompt tokens? A front end that tokenises one call after the other, as a queue with one server.

HTTP, tokenising and detokenising are done by one process of most engines, outside of what they report as queue, prefill and decode. Each call costs it a part of its
own and a part per prompt token; a call waits for those before it (Lindley, The theory of queues with a single server, 1952). Both costs are fitted so that the
predicted gaps are the measured ones; how well they follow each other, over the calls of now and of the baseline, says whether that is what happens.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from overrun.analysis.evidence.calls import MIN_CALLS, Calls, known
from overrun.analysis.evidence.engine_lives import engines_at_once
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.numbers.stages.budget import OTHER
from overrun.analysis.numbers.statistics.effect_size import rank_correlation
from overrun.analysis.numbers.statistics.proportion import Z_95
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import MIN_BREACHING

# Calls in a row that the costs are fitted to at most, and the costs tried: per call and per token in ms, from nothing to seconds.
MOST: Final = 2_000
_PER_CALL: Final = np.r_[0.0, np.geomspace(0.5, 4_000.0, 24)]
_PER_TOKEN: Final = np.r_[0.0, np.geomspace(0.0005, 2.0, 36)]
# Rank correlation from which gaps follow the work (low end of its 95 % interval), as for any load.
FOLLOWS: Final = 0.5
# Times its usual time that a front end takes which is short of something, as for any gap, and the part of the longer way that it must be then; own defaults.
GREW: Final = 2.0
# Times of a span are rounded: less is nobody's work.
LEAST_MS: Final = 1.0
PART: Final = 0.2


class FrontEnd(NamedTuple):
    """Work in front of the engine: ms per call and per 1,000 prompt tokens, now and before (None without a baseline), and how well gaps follow it.

    `gap_ms` and `waiting_ms` are means over the slow requests' calls: the whole gap, and what of it is waiting for the work of others. `interval` is that of
    the rank correlation. `busy_ratio` is the part of the time that the front end works; `inside_ms` what of the gap the engine itself saw.
    """

    call_ms: float
    token_ms: float
    token_ms_before: float | None
    correlation: float
    interval: tuple[float, float]
    busy_ratio: float
    gap_ms: float
    waiting_ms: float
    inside_ms: float

    @property
    def waits(self) -> bool:
        """Whether most of the gap is waiting for others' work; a call's own is its own prompt's."""
        return self.waiting_ms > 0.5 * self.gap_ms


class Inside(NamedTuple):
    """What an engine's own time of a call holds beside queue, prefill and decode: its front end. Means in ms over the calls of slow and of reference requests.

    `gap_ms` and `gap_ms_usual` are what the client waited beyond all that the engine reports.
    """

    slow_ms: float
    usual_ms: float
    gap_ms: float
    gap_ms_usual: float

    @property
    def grew(self) -> bool:
        """Whether the front end takes much longer now, and so much that it matters in the gap."""
        grown = self.slow_ms - self.usual_ms
        whole = grown + max(self.gap_ms - self.gap_ms_usual, 0.0)
        return grown >= LEAST_MS and self.slow_ms >= GREW * self.usual_ms and grown >= PART * whole


def inside_ms(calls: Calls) -> FloatArray:
    """Return the engine's own time of each call beside its queue, prefill and decode in ms; NaN where either is unknown."""
    parts = sum(np.nan_to_num(calls.of(name)) for name in ("queue_ms", "prefill_ms", "decode_ms"))
    inside = calls.of("engine_e2e_ms") - parts
    out: FloatArray = np.where(calls.has_engine & (inside >= 0.0), inside, np.nan)
    return out


def front_inside(case: Observed) -> Inside | None:
    """Return the time of the engine's front end that the engine itself measured; None where it reports no more than its stages, or of too few calls.

    Where calls wait for KV blocks from another engine, that is no front end.
    """
    # A slow request is one of few: as many as a cause needs show what they have in common.
    return _inside(case, MIN_BREACHING)


def _inside(case: Observed, least: int) -> Inside | None:
    sides = (case.slow_calls, case.usual_calls)
    inside = [inside_ms(calls) for calls in sides]
    if min(int(known(values).sum()) for values in inside) < least:
        return None
    if case.tail.excess_ms.get("kv_transfer", 0.0) > 0.0:
        return None
    beyond = [
        np.where(
            calls.of("engine_alone") > 0.0, np.nan, calls.of("e2e_ms") - calls.of("engine_e2e_ms")
        )
        for calls in sides
    ]
    gaps = [float(np.nanmean(gap)) if known(gap).any() else 0.0 for gap in beyond]
    return Inside(
        float(np.nanmean(inside[0])),
        float(np.nanmean(inside[1])),
        max(gaps[0], 0.0),
        max(gaps[1], 0.0),
    )


def front_excess_ms(case: Observed) -> float:
    """Return what of the excess of `other` is the front end of an engine, by its own measure, in ms; 0 where that did not grow.

    A call of an engine that reports spans has that time between the begin of its span and its queue: time of no application, however few the calls are.
    """
    inside = _inside(case, 1)
    if inside is None or not inside.grew:
        return 0.0
    calls = len(case.slow_calls) / max(case.slow.height, 1)
    return min(case.excess_ms(OTHER), calls * (inside.slow_ms - inside.usual_ms))


def front_ms(calls: Calls) -> FloatArray:
    """Return what a client waited beside the engine's queue, prefill and decode, per call in ms; NaN where either is unknown."""
    parts = sum(np.nan_to_num(calls.of(name)) for name in ("queue_ms", "prefill_ms", "decode_ms"))
    gap = calls.of("e2e_ms") - parts
    unknown = ~calls.has_engine | (calls.of("engine_alone") > 0.0) | (gap < 0.0)
    out: FloatArray = np.where(unknown, np.nan, gap)
    return out


def front_end(case: Observed) -> FrontEnd | None:
    """Return the work in front of the engine, None where gaps do not follow it, or neither gaps nor prompts are known."""
    if case.thinned:
        return None
    now = _side(case.calls)
    if now is None:
        return None
    calls, gap = now
    call_ms, token_ms, predicted, waiting = _fitted(calls, gap)
    if call_ms + token_ms <= 0.0:
        return None
    correlation = rank_correlation(predicted, gap)
    half = Z_95 / np.sqrt(max(len(gap) - 3, 1))
    interval = tuple(
        float(np.tanh(np.arctanh(np.clip(correlation, -0.999, 0.999)) + x)) for x in (-half, half)
    )
    if interval[0] < FOLLOWS:
        return None
    before = None if case.calls_before is None else _side(case.calls_before)
    slow = calls.frame["trace_key"].is_in(case.slow["trace_key"].implode()).to_numpy()
    slow = slow if slow.any() else np.ones(len(calls), np.bool_)
    work = call_ms + token_ms * calls.of("input_tokens")
    seconds = calls.seconds
    inside = calls.of("engine_e2e_ms") - (calls.of("e2e_ms") - gap)
    return FrontEnd(
        call_ms=call_ms,
        token_ms=token_ms,
        token_ms_before=None if before is None else _fitted(*before)[1],
        correlation=correlation,
        interval=(interval[0], interval[1]),
        busy_ratio=min(1.0, float(work.sum()) / 1e3 / seconds / engines_at_once(calls)),
        gap_ms=float(gap[slow].mean()),
        waiting_ms=float(np.minimum(waiting, gap)[slow].mean()),
        inside_ms=float(np.nan_to_num(np.clip(inside, 0.0, None))[slow].mean()),
    )


def _side(calls: Calls) -> tuple[Calls, FloatArray] | None:
    gap = front_ms(calls)
    some = known(gap, calls.of("input_tokens"))
    if int(some.sum()) < MIN_CALLS:
        return None
    kept = np.flatnonzero(some)[-MOST:]
    mask = np.zeros(len(calls), np.bool_)
    mask[kept] = True
    return calls.where(mask), gap[mask]


def _fitted(calls: Calls, gap: FloatArray) -> tuple[float, float, FloatArray, FloatArray]:
    """The two costs in ms that predict the gaps with the least mean error of their logarithms, the predicted gaps, and the waits within them."""
    per_call, per_token = (x.ravel() for x in np.meshgrid(_PER_CALL, _PER_TOKEN))
    start, tokens, engine = calls.of("start_s") * 1e3, calls.of("input_tokens"), calls.engine
    # What the least gap has beside the work of the shortest prompt is the way there.
    way = np.maximum(
        np.percentile(gap, 1.0) - per_call - per_token * np.percentile(tokens, 1.0), 0.0
    )
    logs, error = np.log(np.maximum(gap, 1.0)), np.zeros(len(per_call))
    free = {int(name): np.full(len(per_call), -np.inf) for name in np.unique(engine)}
    for i in range(len(gap)):
        ended = free[int(engine[i])]
        done = np.maximum(ended, start[i]) + per_call + per_token * tokens[i]
        free[int(engine[i])] = done
        error += np.abs(np.log(np.maximum(done - start[i] + way, 1.0)) - logs[i])
    best = int(np.argmin(error))
    a, b = float(per_call[best]), float(per_token[best])
    waits, at = np.zeros(len(gap)), {int(name): -np.inf for name in np.unique(engine)}
    for i in range(len(gap)):
        waits[i] = max(at[int(engine[i])] - start[i], 0.0)
        at[int(engine[i])] = start[i] + waits[i] + a + b * tokens[i]
    return a, b, waits + a + b * tokens + float(way[best]), waits
