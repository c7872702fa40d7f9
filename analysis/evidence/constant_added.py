"""Do late calls take a known constant longer? A resolver's time-out of 5 s, or the pauses after which TCP asks for a connection again (1, 3, 7 s)."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import MIN_CALLS, known
from overrun.analysis.evidence.late_calls import late_calls, wait_ms
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.numbers.statistics.proportion import wilson
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import MIN_BREACHING

# What clients wait in s: for a resolver (glibc and Go: 5 s a question, resolv.conf(5)), and for an answer to SYN (RFC 6298: 1 s, then twice as long each time).
LOOKUP: Final = "name lookup"
CONNECT: Final = "connection attempt"
CONSTANTS: Final = {LOOKUP: (5.0, 10.0, 15.0), CONNECT: (1.0, 3.0, 7.0, 15.0)}
# A constant is met within this part of it, or within what usual calls scatter; where that is more than the second, it cannot be told from its neighbours.
NEAR: Final = 0.04
TOO_WIDE: Final = 0.15
LEAST_MS: Final = 40.0
# Part of the late calls that meet one, at the low end of its interval; and in how many steps, as one alone may be an application's own time-out.
MOSTLY: Final = 0.8
_FROM_S: Final = 0.5
_TO_S: Final = 60.0


class Constant(NamedTuple):
    """`hits` of `late` calls take one of the constants of `what` longer than usual (`interval`: 95 % of that part, `by_chance`: of any time from 0.5 to 60 s).

    `steps` are these constants in s with how many calls took each; `usual_ms` is the usual wait, `traces` the requests of the hits.
    """

    what: str
    steps: dict[float, int]
    hits: int
    late: int
    calls: int
    interval: tuple[float, float]
    by_chance: float
    usual_ms: float
    traces: pl.Series

    @property
    def label(self) -> str:
        """The constants in words: `1 s (12), 3 s (4)`."""
        return ", ".join(f"{step:g} s ({n:,})" for step, n in self.steps.items())


def constant_added(case: Observed) -> Constant | None:
    """Return the constant that late calls take longer, None where there is none, or usual calls scatter too much for one to be seen."""
    if len(case.slow_calls) < MIN_BREACHING:
        return None
    wait = wait_ms(case.calls)
    late = late_calls(case.calls, wait, case.slow["trace_key"]) & known(wait)
    usual = wait[~late & known(wait)] if case.calls_before is None else wait_ms(case.calls_before)
    usual = usual[known(usual)]
    if int(late.sum()) < MIN_BREACHING or len(usual) < MIN_CALLS:
        return None
    if float(np.nanmedian(np.nan_to_num(case.calls.of("attempts")[late], nan=1.0))) > 1.0:
        return None  # attempts that are told of have a cause of their own
    low, middle, high = (float(q) for q in np.percentile(usual, [5.0, 50.0, 95.0]))
    extra_s = (wait[late] - middle) / 1e3
    scatter_s = max(LEAST_MS, middle - low, high - middle) / 1e3
    keys = case.calls.frame["trace_key"].filter(pl.Series(late))
    found = [_met(what, extra_s, scatter_s, keys, middle, len(case.calls)) for what in CONSTANTS]
    return max((one for one in found if one is not None), key=lambda one: one.hits, default=None)


def _met(
    what: str, extra_s: FloatArray, scatter_s: float, keys: pl.Series, usual_ms: float, calls: int
) -> Constant | None:
    widths = {step: max(NEAR * step, scatter_s) for step in CONSTANTS[what]}
    widths = {step: width for step, width in widths.items() if width <= TOO_WIDE * step}
    hits = np.zeros(len(extra_s), np.bool_)
    steps = {}
    for step, width in widths.items():
        mine = np.abs(extra_s - step) <= width
        hits |= mine
        if mine.any():
            steps[step] = int(mine.sum())
    chance = sum(2.0 * width / step for step, width in widths.items()) / math.log(_TO_S / _FROM_S)
    interval = wilson(int(hits.sum()), len(hits))
    # One second alone may be anybody's pause; a resolver's time-out is nobody else's.
    alone = what == CONNECT and len(steps) < 2
    if alone or int(hits.sum()) < MIN_BREACHING or interval[0] < max(MOSTLY, 2.0 * chance):
        return None
    return Constant(
        what=what,
        steps=steps,
        hits=int(hits.sum()),
        late=len(hits),
        calls=calls,
        interval=interval,
        by_chance=chance,
        usual_ms=usual_ms,
        traces=keys.filter(pl.Series(hits)),
    )
