"""Which instances answered slowly because they had just started? New ones, those that began again, and an application's own, by their pace and its course.

What began in the baseline's last minute is new all the same. An instance is cold for its first minute, and for as long as it then stays clearly slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.call_pace import log_pace
from overrun.analysis.evidence.calls import MIN_CALLS, Calls
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.observed import ENGINE_STAGES
from overrun.analysis.words.arrays import BoolArray, FloatArray

# A new instance's first minute, how many times as long as warm ones it takes, and the fewest calls of it: published defaults.
YOUNG_S: Final = 60.0
MIN_RATIO: Final = 2.0
LEAST_YOUNG: Final = 5
# Behind the first minute an instance is still cold while it takes this many times as long, looked at in steps; longer than this is no start; own defaults.
STILL_COLD: Final = 1.5
STEP_S: Final = 30.0
MOST_COLD_S: Final = 600.0
# What an application's own instance does beside the model's calls.
OWN_STAGES: Final = ("retrieval", "prompt", "guardrail", "tool", "post", "other")
# Part of a call that is its engine's from which its caller's instance does not hold it up; own default.
MOSTLY: Final = 0.5
# Part of an instance's first lag (of its log) that may be left in the last fifth of its cold calls; own default.
WARMER: Final = 0.5
# Standard score from which an instance clearly gets faster with its age; own default, as where a straggler lags.
MIN_Z: Final = 4.0


class Cold(NamedTuple):
    """Requests that cold instances worked on (shape of the case's rows), how many times the time of warm ones they took, the instances, in which stages they
    lose time, and how many calls or requests were served cold."""

    hit: BoolArray
    ratio: float
    names: list[str]
    stages: tuple[str, ...]
    n: int


def cold_instances(case: Case) -> Iterator[Cold | float]:
    """Yield the cold instances of engines, of callers and of the application's own work; for a side whose new instances are not cold their highest ratio."""
    for column in ("engine_instance", "instance"):
        now, before = case.calls, case.calls_before
        # Pods of another service, or of another model, keep their pace in any case.
        kind = {"model": case.slowest_model}
        if column == "instance":
            # What an engine recorded alone has no caller's instance, but its own.
            now, before = _callers(now), None if before is None else _callers(before)
            kind["service"] = _service(case)
        now, before = now.of_kind(**kind), None if before is None else before.of_kind(**kind)
        if min(len(now), len(now) if before is None else len(before)) < MIN_CALLS:
            continue
        found = _young(now, before, column)
        if found is None or isinstance(found, float):
            if found is not None:
                yield found
            continue
        young, warm, pace, names = found
        hit, _ = case.share_of_slow(now.frame["trace_key"].filter(young))
        ratio = float(np.exp(np.median(pace[young]) - np.median(pace[warm])))
        yield Cold(hit, ratio, names, ENGINE_STAGES, int(young.sum()))
    own = _own_work(case)
    if own is not None:
        hit, ratio, names = own
        yield Cold(hit, ratio, names, OWN_STAGES, int(hit.sum()))


def _own_work(case: Case) -> tuple[BoolArray, float, list[str]] | None:
    """Return which requests new instances of the application worked on while they were cold (rows of the case), their time beside the model's calls over that
    of instances that were there before, and the cold ones' names; None without any. An index, a tokeniser or a pool that fills holds up what calls do not."""
    if case.calls_before is None:
        return None
    name, start = case.rows["instance"], case.rows["start_us"].to_numpy() / 1e6
    there = case.calls_before.names("instance")
    settled = name.is_in(there).fill_null(value=False).to_numpy()
    work = np.log(np.maximum(np.sum([case.spent(stage) for stage in OWN_STAGES], axis=0), 0.1))
    if int(settled.sum()) < MIN_CALLS:
        return None
    slower, hit, cold_ones = (
        work - float(np.median(work[settled])),
        np.zeros(len(work), dtype=np.bool_),
        [],
    )
    for one in sorted(set(name.drop_nulls().unique().to_list()) - set(there)):
        mine = (name == one).fill_null(value=False).to_numpy()
        age = start[mine] - start[mine].min()
        cold = mine & (start < start[mine].min() + _cold_s(age, slower[mine]))
        lag = float(np.median(slower[cold]))
        warms_up = lag >= np.log(STILL_COLD) and _gets_faster(start[mine], slower[mine])
        lags = lag >= np.log(MIN_RATIO) and _beside(start, slower, cold, settled) >= STILL_COLD
        if int(cold.sum()) >= LEAST_YOUNG and (lags or warms_up):
            hit |= cold
            cold_ones.append(one)
    return (hit, float(np.exp(np.median(slower[hit]))), cold_ones) if cold_ones else None


def _callers(calls: Calls) -> Calls:
    """Return the calls that an instance of their caller may hold up: none that only an engine recorded, and none most of whose time is the engine's."""
    engine_ms = np.nansum(
        [calls.of(f"{part}_ms") for part in ("queue", "prefill", "decode")], axis=0
    )
    return calls.where(
        (calls.of("engine_alone") != 1.0) & ~(engine_ms > MOSTLY * calls.of("e2e_ms"))
    )


def _beside(start: FloatArray, pace: FloatArray, cold: BoolArray, warm: BoolArray) -> float:
    """Return how many times as long the cold calls took as the warm ones that began at the same time, 0 where too few did.

    Where a deploy replaces all instances at once, or a queue grows while new ones come, those of before were quick because it was earlier.
    """
    same = warm & (start >= start[cold].min()) & (start <= start[cold].max())
    return (
        float(np.exp(np.median(pace[cold]) - np.median(pace[same])))
        if int(same.sum()) >= LEAST_YOUNG
        else 0.0
    )


def _service(case: Case) -> str | None:
    """The service whose calls took most of the slow requests' time."""
    taken = (
        case.slow_calls.frame.drop_nulls("service")
        .group_by("service")
        .agg(pl.col("e2e_ms").sum())
        .sort("e2e_ms", "service", descending=[True, False])
    )
    return str(taken["service"][0]) if taken.height else None


def _young(
    now: Calls, before: Calls | None, column: str
) -> tuple[BoolArray, BoolArray, FloatArray, list[str]] | float | None:
    """Return which calls cold instances served and which are compared with them, the pace of all calls, and the cold instances' names.

    Cold is a new instance's first minute, and then on for as long as it takes half as long again as those that were there before (all other calls
    where those serve too few); and one that was there and became slow and faster again, see `_begun_again`. The highest ratio of a new instance where none
    is cold, None without new or restarted instances or with too few calls.
    """
    start, names = now.of("start_s"), now.frame[column]
    if before is None:
        pace = log_pace(now)
        again: dict[str, BoolArray] = {}
        fresh = _warming(now, column, pace)
        old = set(now.names(column)) - set(fresh)
    else:
        pace, old, fresh, again = _against(now, before, column)
    if not old or not (fresh or again):
        return None
    settled = names.is_in(list(old - again.keys())).fill_null(False).to_numpy()
    enough_settled = int(settled.sum()) >= MIN_CALLS
    usual = float(np.median(pace[settled])) if enough_settled else np.inf
    cold, highest = dict(again), 0.0
    for name in fresh:
        mine = (names == name).fill_null(False).to_numpy()
        cold[name] = mine & (
            start < start[mine].min() + _cold_s(start[mine] - start[mine].min(), pace[mine] - usual)
        )
    young = np.logical_or.reduce(list(cold.values()))
    warm = settled if enough_settled else ~young
    if int(young.sum()) < LEAST_YOUNG or int(warm.sum()) < MIN_CALLS:
        return None
    # One of several new instances may be cold, and the others' pace shows nothing of its own; a restarted one lags behind the others of the same time as well.
    for name in list(cold):
        ratio = float(np.exp(np.median(pace[cold[name]]) - np.median(pace[warm])))
        mine = (names == name).fill_null(False).to_numpy()
        beside = np.inf if name in again else _beside(start, pace, cold[name], warm)
        highest = max(highest, ratio)
        warms_up = ratio >= STILL_COLD and (name in again or _gets_faster(start[mine], pace[mine]))
        lags = ratio >= MIN_RATIO and name not in again and beside >= STILL_COLD
        if (
            not (warms_up or lags or _began_slow(start, pace, mine, warm))
            or int(cold[name].sum()) < LEAST_YOUNG
        ):
            del cold[name]
    return (
        (np.logical_or.reduce(list(cold.values())), warm, pace, sorted(cold)) if cold else highest
    )


def _against(
    now: Calls, before: Calls, column: str
) -> tuple[FloatArray, set[str], list[str], dict[str, BoolArray]]:
    """Return the pace of the calls of now, which instances were there before and which are new, and what was served cold by those that began again."""
    start = now.of("start_s")
    # What began in the baseline's last minute is new all the same: windows seldom end where things change.
    seen = before.frame.drop_nulls(column).group_by(column).agg(pl.col("start_s").min())
    recent = max(float(start.min()) - YOUNG_S, float(before.of("start_s").min()) + YOUNG_S)
    old = set(seen.filter(pl.col("start_s") < recent)[column].to_list())
    fresh = [name for name in now.names(column) if name not in old]
    both = log_pace(Calls(pl.concat([before.frame, now.frame])))
    pace, pace_before = both[len(before) :], both[: len(before)]
    again = _begun_again(now, before, column, sorted(old), pace, pace_before)
    return pace, old, fresh, again


def _warming(calls: Calls, column: str, pace: FloatArray) -> list[str]:
    """Return the instances that nothing older is known of and that start cold: slow against the others from their first call on, and most of the way to them
    later. One that was there from the beginning may have begun with it."""
    start, out = calls.of("start_s"), []
    for name in calls.names(column):
        mine = (calls.frame[column] == name).fill_null(False).to_numpy()
        if min(int(mine.sum()), int((~mine).sum())) < MIN_CALLS:
            continue
        at, slower = start[mine], pace[mine] - float(np.median(pace[~mine]))
        cold = at < at.min() + _cold_s(at - at.min(), slower)
        first = slower[at < at.min() + YOUNG_S]
        if (
            len(first) >= LEAST_YOUNG
            and np.median(first) >= np.log(MIN_RATIO)
            and np.median(slower[~cold] if (~cold).any() else slower) < np.log(STILL_COLD)
        ):
            out.append(name)
    return out


def _begun_again(
    now: Calls,
    before: Calls,
    column: str,
    old: list[str],
    pace: FloatArray,
    pace_before: FloatArray,
) -> dict[str, BoolArray]:
    """Return the calls that older instances served cold after a restart, by name.

    All of such an instance's calls are slow at once and get faster with its age, half of the way back at least, while others keep their pace: a straggler
    stays slow, and an overloaded one becomes slow gradually.
    """
    start, ends = now.of("start_s"), float(now.of("start_s").max())
    mine = {name: (now.frame[column] == name).fill_null(False).to_numpy() for name in old}
    slower = {}
    for name in old:
        theirs = (before.frame[column] == name).fill_null(False).to_numpy()
        if int(theirs.sum()) >= MIN_CALLS and int(mine[name].sum()) >= MIN_CALLS:
            slower[name] = pace[mine[name]] - float(np.median(pace_before[theirs]))
    out, calm = {}, 0
    for name, ratios in slower.items():
        at = start[mine[name]]
        steps = [
            (at >= since) & (at < since + STEP_S)
            for since in np.arange(float(start.min()), ends, STEP_S)
        ]
        steps = [step for step in steps if int(step.sum()) >= LEAST_YOUNG]
        first = next(
            (
                step
                for step in steps
                if np.median(ratios[step]) >= np.log(MIN_RATIO)
                and np.quantile(ratios[step], 0.1) >= np.log(STILL_COLD)
            ),
            None,
        )
        if first is None:
            calm += 1
            continue
        born = float(at[first].min())
        cold = (at >= born) & (at < born + _cold_s(at[at >= born] - born, ratios[at >= born]))
        if _gets_faster(at[cold], ratios[cold]) and _on_the_way(at[cold], ratios[cold]):
            out[name] = mine[name] & (start >= at[cold].min()) & (start <= at[cold].max())
    return out if calm else {}


def _began_slow(start: FloatArray, pace: FloatArray, mine: BoolArray, warm: BoolArray) -> bool:
    """Return whether an instance's first half minute is slow against warm calls, of any time and of that time, and its calls clearly get faster: who is warm
    before the minute is over is fast in the middle of it."""
    first = mine & (start < start[mine].min() + STEP_S)
    if int(first.sum()) < LEAST_YOUNG or np.median(pace[first]) - np.median(pace[warm]) < np.log(
        MIN_RATIO
    ):
        return False
    return _beside(start, pace, first, warm) >= STILL_COLD and _falls(start[mine], pace[mine])


def _gets_faster(at: FloatArray, slower: FloatArray) -> bool:
    """Return whether calls clearly get faster, by as much as parts cold from warm."""
    if not _falls(at, slower):
        return False
    n = len(at)
    third = at[np.argsort(at)][[n // 3, n - 1 - n // 3]]
    return bool(
        np.median(slower[at <= third[0]]) - np.median(slower[at >= third[1]]) >= np.log(STILL_COLD)
    )


def _falls(at: FloatArray, slower: FloatArray) -> bool:
    """Return whether calls take less and less (rank correlation of pace and time)."""
    n = len(at)
    if n < MIN_CALLS:
        return False
    ranks, order = (np.argsort(np.argsort(values)).astype(np.float64) for values in (slower, at))
    return bool(np.corrcoef(order, ranks)[0, 1] * np.sqrt(n - 1.0) <= -MIN_Z)


def _on_the_way(at: FloatArray, slower: FloatArray) -> bool:
    """Return whether an instance came half of the way (of the log) back to its former pace: a straggler whose batch empties a little did not."""
    fifths = np.array_split(slower[np.argsort(at, kind="stable")], 5)
    return bool(np.median(fifths[-1]) <= WARMER * np.median(fifths[0]))


def _cold_s(age_s: FloatArray, slower: FloatArray) -> float:
    """Return for how long an instance was cold: its first minute, and each half minute after it in which its median pace stays `STILL_COLD` times.

    A router that looks for room sends few calls to a cold replica: a step goes on until it holds enough of them.
    """
    until, ages = YOUNG_S, np.sort(age_s)
    while until < MOST_COLD_S:
        later = ages[ages >= until]
        if len(later) < LEAST_YOUNG:
            break
        step_end = max(until + STEP_S, float(np.nextafter(later[LEAST_YOUNG - 1], np.inf)))
        if float(np.median(slower[(age_s >= until) & (age_s < step_end)])) < np.log(STILL_COLD):
            break
        until = step_end
    return until
