"""Do the GPUs run slower than they did? Their clocks and errors before and now, and how many times longer the same batch takes for it.

Where no clock is recorded, the work tells as far as it can: a machine that runs slower takes as much longer to read as to write, even in its quickest calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import polars as pl

from overrun.analysis.evidence.demand import Demand
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.evidence.token_speed import quick_pace, same_batch_pace
from overrun.analysis.incident.period import Period

# Clocks follow the load by a few per cent: a fall from here on is a limit; own default.
MIN_FALL: Final = 0.1
# Tokens at equal batch sizes must take this many times as long, else an idle GPU has lowered its clocks by itself; own default.
MIN_SLOWER: Final = 1.1
# Without clocks: quick calls must take this many times as long in reading and in writing (1.19 at most for any other of the simulated faults), and neither
# this many times more than the other; own defaults.
MIN_QUICK: Final = 1.2
MOST_UNLIKE: Final = 1.5
# New input tokens a call beyond those of before, over these, from which no call is as quick as it could be; own default.
MOST_MORE: Final = 0.2


class Clocks(NamedTuple):
    """Median clock in Hz before and now, and its fall (0..1), of the GPU whose clock fell most; whether errors (XID) came; time per token at equal
    batch sizes, now over before (None unknown). `known` says whether clocks were recorded now."""

    before: float | None
    now: float | None
    fell: float
    errors: bool
    pace: float | None
    known: bool
    quick: float = 1.0

    @property
    def lower(self) -> bool:
        """Whether a GPU is at a limit, reports errors, or works as if it were."""
        return self.fell >= MIN_FALL or self.errors or self.quick > 1.0

    @property
    def ratio(self) -> float:
        """How many times longer kernels take: no kernel slows down by more than the clock does. 1 without a slower pace, infinite if nothing shows it."""
        if not self.lower or (self.pace is not None and self.pace < MIN_SLOWER):
            return 1.0
        most = (
            1.0 / (1.0 - self.fell)
            if self.fell >= MIN_FALL
            else self.quick
            if self.quick > 1.0
            else math.inf
        )
        return min(most, self.pace or math.inf)


def clocks(case: Observed, demand: Callable[[], Demand | None]) -> Clocks:
    """Compare the GPUs of the judged period with those of the baseline; without one nothing fell.

    `demand` is asked where no GPU is heard of.
    """
    before, now = (_medians(case, period) for period in (case.baseline, case.period))
    fallen = [
        (1.0 - now[gpu] / before[gpu], before[gpu], now[gpu])
        for gpu in before.keys() & now.keys()
        if before[gpu] > 0.0
    ]
    fell, was, is_now = max(fallen, default=(0.0, None, None), key=lambda one: one[0])
    errors = float(case.gauge("gpu_xid").max(initial=0.0)) > float(
        case.gauge("gpu_xid", before=True).max(initial=0.0)
    )
    lower = case.calls_before is not None and (fell >= MIN_FALL or errors)
    pace = (
        same_batch_pace(case.calls_before, case.calls_inside)
        if lower and case.calls_before is not None
        else None
    )
    quick = _quick(case, demand()) if not (before or now or errors) else 1.0
    return Clocks(was, is_now, fell, errors, pace if quick == 1.0 else quick, bool(now), quick)


def _quick(case: Observed, work: Demand | None) -> float:
    """How many times longer the engines take even for the quickest calls to the same models; 1 where they do not, or read and write unlike.

    Nor where calls have clearly more to read: a token of a longer prompt attends to more, and hardly an answer is written without prompts being read beside it.
    """
    if case.calls_before is None or (
        work is not None and work.longer_ratio + work.lost_ratio > MOST_MORE
    ):
        return 1.0
    # The quickest calls of all would be those to a small model beside.
    before, now = (
        side.of_kind(model=case.slowest_model) for side in (case.calls_before, case.calls_inside)
    )
    models = set(before.names("model")) & set(now.names("model"))
    found = (
        quick_pace(before.to_models(models), now.to_models(models))
        if models or not now.names("model")
        else None
    )
    return (
        found[0]
        if found is not None and found[0] >= MIN_QUICK and found[1] < MOST_UNLIKE * found[0]
        else 1.0
    )


def _medians(case: Observed, period: Period | None) -> dict[str | None, float]:
    """Median clock of each GPU's host in a period: one sample of an idle moment is no limit."""
    if period is None:
        return {}
    low, high = (int(moment.timestamp() * 1e6) for moment in (period.start, period.end))
    chosen = case.points.filter(
        (pl.col("indicator") == "gpu_clock")
        & pl.col("time_us").is_between(low, high, closed="left")
    )
    return dict(chosen.group_by("instance").agg(pl.col("value").median()).iter_rows())
