"""Which engines served when? A rollout replaces engines: one is gone, another one is warming, and both stand in the same window.

An engine's life is the part of a stretch in which it got calls. Where it got none at an edge of the stretch, that is chance or the end of its life: had it lived all the
time, each of its n requests would be as likely anywhere among all requests, so none behind a part q of them has probability q to the power of n. All n of one
before all m of another have the probability of one order in n + m over n: where that is no chance, the second replaced the first.
Moments are counted in calls, not in seconds: a pause of the traffic ends nobody's life.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.observed import Observed
from overrun.analysis.numbers.comparison.traffic_changes import Changed
from overrun.analysis.words.arrays import FloatArray, IntArray
from overrun.analysis.words.finding import printable

# An engine that may have lived on with this probability did: the usual level of a clear answer.
CHANCE: Final = 0.01
# Peers shared at least this part of the shorter life; own default.
TOGETHER: Final = 0.5
_MOST_LISTED: Final = 3
_LEAD_S: Final = 600.0


class Life(NamedTuple):
    """One engine's life as parts (0..1) of all calls of the stretch, in order of their starts, and how many calls and requests were its own.

    `first` and `last` are of its own calls, `begin` and `end` those of its life, as far as chance does not explain that it got none.
    """

    code: int
    first: float
    last: float
    begin: float
    end: float
    calls: int
    requests: int

    @property
    def lived(self) -> float:
        """The part of the stretch that it lived."""
        return max(self.end - self.begin, 1e-9)

    def before(self, other: Life) -> bool:
        """Whether the other one came when this one had gone: all of its requests behind all of this one's, which is no chance."""
        n, m = self.requests, other.requests
        orders = math.lgamma(n + m + 1) - math.lgamma(n + 1) - math.lgamma(m + 1)
        return self.last <= other.first and orders > -math.log(CHANCE)

    def beside(self, other: Life) -> bool:
        """Whether the two lived side by side for most of the shorter life."""
        if self.before(other) or other.before(self):
            return False
        shared = min(self.end, other.end) - max(self.begin, other.begin)
        return shared >= TOGETHER * min(self.lived, other.lived)


def lives(engine: IntArray, start_s: FloatArray, request: IntArray | None = None) -> list[Life]:
    """Return the life of each engine (codes, -1 unknown) from the starts of its calls, by code; calls of one `request` come together and count once."""
    order = np.argsort(start_s, kind="stable")
    n, place = len(order), np.empty(len(order))
    place[order] = np.arange(n)
    found = []
    for code in np.unique(engine[engine >= 0]):
        mine = np.flatnonzero(engine == code)
        drawn = len(mine) if request is None else len(np.unique(request[mine]))
        first, last = float(place[mine].min()) / n, float(place[mine].max() + 1.0) / n
        found.append(
            Life(
                int(code),
                first,
                last,
                0.0 if (1.0 - first) ** drawn >= CHANCE else first,
                1.0 if last**drawn >= CHANCE else last,
                len(mine),
                drawn,
            )
        )
    return found


def at_once(found: list[Life]) -> int:
    """Return how many of these lived at one time at most; 0 of none."""
    return len(set(slots(found).values()))


def slots(found: list[Life]) -> dict[int, int]:
    """Return a place for each engine (code): one that came when another had gone takes its place, so there are as many as lived at once."""
    latest: list[Life] = []
    place: dict[int, int] = {}
    for one in sorted(found, key=lambda life: (life.first, life.last, life.code)):
        free = [k for k, life in enumerate(latest) if life.before(one)]
        # The one that ended last is the likeliest to have been replaced.
        at = max(free, key=lambda k: latest[k].last) if free else len(latest)
        latest[at : at + 1] = [one]
        place[one.code] = at
    return place


def of_calls(calls: Calls) -> list[Life]:
    """Return the lives of the engines that served these calls, by code of `engine_instance`."""
    return lives(calls.codes("engine_instance"), calls.of("start_s"), _requests(calls))


def engines_at_once(calls: Calls) -> int:
    """Return how many engines served these calls at one time, at least 1: one that replaced another is no second one."""
    return max(1, at_once(of_calls(calls)))


def _requests(calls: Calls) -> IntArray | None:
    return calls.codes("trace_key") if "trace_key" in calls.frame.columns else None


def sampled_at_once(points: pl.DataFrame) -> int:
    """Return how many instances sent samples at one time at most (columns instance, time_us): those that one interval of samples parts lived side by side."""
    spans = (
        points.group_by("instance")
        .agg(
            first=pl.col("time_us").min(),
            last=pl.col("time_us").max(),
            n=pl.col("time_us").n_unique(),
        )
        .with_columns(every=(pl.col("last") - pl.col("first")) / (pl.col("n") - 1).clip(1))
    )
    if spans.is_empty():
        return 0
    begin, end = (spans[name].to_numpy() for name in ("first", "last"))
    return int(max(((begin <= at) & (end >= at)).sum() for at in begin))


def engine_changes(case: Observed) -> list[Changed]:
    """Return which engines were replaced or added since the baseline, at most ten minutes before the onset: a fault builds up behind the deploy that brought it.

    Empty without a baseline.
    """
    now, before = case.served
    if before is None:
        return []
    calls = Calls(pl.concat([before.frame, now.frame]).unique(maintain_order=True))
    names, found = calls.names("engine_instance"), of_calls(calls)
    start, codes = calls.of("start_s"), calls.codes("engine_instance")
    since_s = (case.period.start - case.origin).total_seconds() - _LEAD_S
    came = {one: float(start[codes == one.code].min()) for one in found}
    new = {
        one: at
        for one, at in came.items()
        if at >= since_s and (one.begin > 0.0 or any(old.before(one) for old in found))
    }
    gone = [
        one
        for one in found
        if one not in new and (one.end < 1.0 or any(one.before(other) for other in found))
    ]
    older = gone or [one for one in found if one not in new]
    if not new or not older:
        return []
    said = sorted(printable(names[one.code]) for one in older)[:_MOST_LISTED]
    return [
        Changed(
            what="engine" if gone else "engine added",
            before=said,
            after=printable(names[one.code]),
            at=case.origin + timedelta(seconds=at),
        )
        for one, at in sorted(new.items(), key=lambda item: item[1])[:_MOST_LISTED]
    ]
