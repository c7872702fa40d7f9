"""Do late calls take a constant longer? A resolver's time-out of 5 s, the pauses after which TCP asks for a connection again (1, 3, 7 s), or any other one.

What works or queues takes another time each time. A wait that scatters no more than usual calls do is a pause or a time-out on the way to the endpoint.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.call_inside import inside_calls
from overrun.analysis.evidence.calls import MIN_CALLS, known
from overrun.analysis.evidence.late_calls import LONGER, late_calls, wait_ms
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.numbers.statistics.proportion import wilson
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.finding import MIN_BREACHING

# What clients wait in s: for a resolver (glibc and Go: 5 s a question, resolv.conf(5)), and for an answer to SYN (RFC 6298: 1 s, then twice as long each time).
LOOKUP: Final = "name lookup"
CONNECT: Final = "connection attempt"
FIXED: Final = "fixed wait"
CONSTANTS: Final = {LOOKUP: (5.0, 10.0, 15.0), CONNECT: (1.0, 3.0, 7.0, 15.0)}
# A constant is met within this part of it, or within what usual calls scatter; where that is more than the second, it cannot be told from its neighbours.
NEAR: Final = 0.04
TOO_WIDE: Final = 0.15
LEAST_MS: Final = 40.0
# Any other constant: from this length on, with quartiles of the late waits at most so far apart beside those of usual calls and beside what is added. Loads of
# models differ by 5 to 10 % from one to the next (home-assistant/core#135952: 48 to 52 s), sign-ins and time-outs by less than 1 %
# (langchain-ai/langchain-google#1485: 11.225 to 11.244 s).
LEAST_FIXED_MS: Final = 1_000.0
NO_WIDER: Final = 1.5
VARIES: Final = 0.1
NARROW: Final = 0.04
# Of all calls, those between usual and late waits are at most this part of the late ones: else the limit cut a tail.
BETWEEN: Final = 0.1
OF_IT: Final = 0.5  # of what is added: what has this part of it, has a cause of its own
# Time-outs in s that clients, proxies and balancers have by default: a wait of one of these after a silence is a connection that was closed meanwhile.
TIMEOUTS_S: Final = (10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 100.0, 120.0, 180.0, 300.0, 600.0)
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
    def is_timeout(self) -> bool:
        """Whether it is one wait as long as a common time-out."""
        return self.what == FIXED and any(
            abs(step - known_s) <= self.usual_ms / 1e3 and abs(step - known_s) <= NARROW * known_s
            for step in self.steps
            for known_s in TIMEOUTS_S
        )

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
    met = max((one for one in found if one is not None), key=lambda one: one.hits, default=None)
    return met or _fixed(case, wait, late, usual)


def _fixed(case: Observed, wait: FloatArray, late: BoolArray, usual: FloatArray) -> Constant | None:
    """Any other wait that is the same each time, of calls without an engine's own times and without more to read or to write."""
    low, middle, high = (float(q) for q in np.percentile(usual, [25.0, 50.0, 75.0]))
    quarter, waits, three = (float(q) for q in np.percentile(wait[late], [25.0, 50.0, 75.0]))
    added, width = waits - middle, max(high - low, LEAST_MS)
    # Calls that do not vary show nothing by a wait that does not either.
    if high - low < VARIES * middle:
        return None
    if added < LEAST_FIXED_MS or three - quarter > min(NO_WIDER * width, NARROW * added):
        return None
    # A usual call that has the constant as well: within what usual calls scatter on either side.
    reach = 4.0 * width
    hits = late & (np.abs(wait - waits) <= reach)
    between = known(wait) & (wait > middle + reach) & (wait < waits - reach)
    interval = wilson(int(hits.sum()), int(late.sum()))
    keys = case.calls.frame["trace_key"].filter(pl.Series(hits))
    if (
        added <= 2.0 * reach
        or interval[0] < MOSTLY
        or int(between.sum()) > BETWEEN * int(hits.sum())
        or case.calls.has_engine[hits].any()
        or _does_more(case, late, hits)
        or _tries_again(case, keys, added)
    ):
        return None
    return Constant(
        what=FIXED,
        steps={round(added / 1e3, 1): int(hits.sum())},
        hits=int(hits.sum()),
        late=int(late.sum()),
        calls=len(case.calls),
        interval=interval,
        by_chance=2.0 * reach / max(added, 1.0),
        usual_ms=middle,
        traces=keys,
    )


def _tries_again(case: Observed, keys: pl.Series, added_ms: float) -> bool:
    """Whether failed calls of these requests, or what their HTTP requests show before the one that was answered, have that time."""
    mine = case.calls.frame["trace_key"].is_in(keys.implode()).to_numpy()
    if (case.calls.of("error")[mine] == 1.0).any():
        return True
    inside = inside_calls(case.slow_tree)
    before = inside.select(pl.col("waited_ms") + pl.col("lost_ms")).to_series()
    median = before.median()
    return isinstance(median, float) and median > OF_IT * added_ms


def _does_more(case: Observed, late: BoolArray, hits: BoolArray) -> bool:
    """Whether these calls read or write more than three of four usual ones, those of the baseline where there is one."""
    usual, among = (case.calls, ~late) if case.calls_before is None else (case.calls_before, None)
    for theirs, others in (
        (case.calls.new_tokens, usual.new_tokens),
        (case.calls.of("output_tokens"), usual.of("output_tokens")),
    ):
        mine = theirs[hits & known(theirs)]
        rest = others[known(others) if among is None else among & known(others)]
        if min(len(mine), len(rest)) >= MIN_BREACHING and float(np.median(mine)) > float(
            np.percentile(rest, LONGER)
        ):
            return True
    return False


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
