"""What does a load test say? One sentence a series of runs: the capacity, what breaks first, and whether load is the cause at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from overrun.analysis.numbers.load_tests.capacity import Capacity
from overrun.analysis.numbers.load_tests.runs import RunRow, level_of, order_of
from overrun.analysis.numbers.outcomes.percentile_limits import LimitRow
from overrun.analysis.words.finding import printable, say_ms, say_rate, say_ratio
from overrun.analysis.words.slo import Slo

Status = Literal["holds", "breaks", "missed", "mixed", "not_enough_data"]
_CAUSE: Final = "under_capacity"
_ERRORS: Final = "errors"
_LOWER: Final = "Test lower loads to find the one up to which the SLO holds."
# Where the time goes that a metric loses under load.
_STAGES: Final = {"ttft": "queue", "itl": "decode", "tpot": "decode", "e2e": "queue"}


class LoadVerdict(msgspec.Struct, kw_only=True):
    """The answer of one series: `holds` at every load, `breaks` at a load that is named, `missed` at the lowest load already,
    `mixed` where runs missed it at a load that others held or that is not recorded, or not enough data.

    `cause` is under_capacity where lower loads hold the SLO, else null with its reason. `fitting_ms` has for each limit that is missed at the lowest load the
    limit that it would meet.
    """

    status: Status
    metric: str | None
    stage: str | None
    cause: str | None
    sentence: str
    advice: str
    capacity: Capacity
    fitting_ms: dict[str, float] = {}
    reasons: dict[str, str] = {}


def load_verdict(capacity: Capacity, rows: Sequence[RunRow], slo: Slo) -> LoadVerdict:
    """Return the verdict of one series; `rows` are all rows of the test, of which the capacity names its own."""
    own = [row for row in rows if row.name in capacity.runs]
    made = _of_loads(capacity, own, slo)
    made.sentence += _warm_up(own)
    return made


def _warm_up(own: Sequence[RunRow]) -> str:
    """What the first requests of runs took that are left out of all figures, as a sentence; empty without any."""
    left = [row for row in own if row.warm_up]
    worst = max(left, key=lambda row: row.warm_up_ms or 0.0, default=None)
    if worst is None or worst.warm_up_ms is None or worst.after_ms is None:
        return ""
    count = sum(row.warm_up for row in left)
    which = f"The first {'request' if count == 1 else f'requests ({count:,} of {len(left)} runs)'}"
    return (
        f" {which} started cold: up to {say_ms(worst.warm_up_ms)} instead of {say_ms(worst.after_ms)}, and no later one is late. All figures leave them out; "
        "send a few before a run, and before a new replica gets calls."
    )


def _of_loads(capacity: Capacity, own: Sequence[RunRow], slo: Slo) -> LoadVerdict:
    limits = say_slo(slo)
    held = capacity.holds_up_to_rps
    if held is None:
        why = next(iter(capacity.reasons.values()), "nothing could be judged")
        return _made(
            "not_enough_data", capacity, f"Not enough data to judge {limits}: {why}.", "", why
        )
    if capacity.breaks_at_rps is None and (against := [row for row in own if row.holds == "no"]):
        return _mixed(capacity, against, limits)
    if capacity.breaks_at_rps is None:
        more = "Test higher loads to find the limit."
        sentence = f"Holds {limits} at every load, up to {_load(capacity, held)}."
        return _made("holds", capacity, sentence, more, "every load holds the SLO")
    if held == 0.0:
        return _missed(capacity, own, limits)
    sentence = (
        f"Holds {limits} up to {_load(capacity, held)}{_interval(capacity)}. "
        f"{_at_break(capacity, own)}."
    )
    if capacity.saturated_rps is not None:
        sentence += f" No more than {say_rate(capacity.saturated_rps, 'requests')} are ever answered: what arrives beyond that waits, for as long as it lasts."
    advice = f"Plan for at most {say_rate(held, 'requests')} per deployment of this size, and add replicas or admit no more beyond it."
    made = _made("breaks", capacity, sentence, advice, "")
    made.cause = _CAUSE
    made.metric = capacity.breaks_first
    made.stage = _STAGES.get(capacity.breaks_first or "")
    if made.stage is None:
        made.reasons["stage"] = "errors have no stage"
    return made


def _mixed(capacity: Capacity, against: Sequence[RunRow], limits: str) -> LoadVerdict:
    """Of runs that missed the limits where no load did: their load is not recorded, or most runs at it held them."""
    names = [printable(row.name, 40) for row in against]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    sentence = f"{limits} is missed by {', '.join(names[:3])}{more}."
    if any(level_of(row) is None for row in against):
        why = "a run without a recorded load missed the SLO"
        sentence += " Its load is not recorded, so no limit of the load follows."
        advice = "Record the rate or the number of requests in flight of every run."
    else:
        why = "runs at one load disagree"
        sentence += " Most runs at the same load hold it."
        advice = "Repeat that load, longer, and compare what else differed between the runs."
    return _made("mixed", capacity, sentence, advice, why)


def _missed(capacity: Capacity, own: Sequence[RunRow], limits: str) -> LoadVerdict:
    """Of a limit that no load meets: it does not fit where a lower load hardly helps; else the loads were too high to show how much holds."""
    lowest = min(own, key=order_of)
    fitting = {
        f"{row.metric}_p{row.percentile:g}": row.value_ms
        for row in lowest.limits
        if row.met is False and row.value_ms is not None and row.metric != _ERRORS
    }
    offers = " and ".join(
        f"{name.upper().replace('_', ' ')} {say_ms(value)}" for name, value in fitting.items()
    )
    where = "at the lowest load already" if capacity.levels > 1 else "at the one load tested"
    sentence = f"{limits} is missed {where}. {_at_break(capacity, own)}."
    within = lowest.within
    if within is not None:
        sentence += f" Requests of that run that found fewer than {within.in_flight:,} others in flight met it, and those that found more did not."
    if within is not None or lowest.growing or capacity.saturated_rps is not None:
        if lowest.growing or capacity.saturated_rps is not None:
            most = capacity.saturated_rps or lowest.answered_rps or 0.0
            sentence += f" More arrives than the {say_rate(most, 'requests')} that are answered, so the queue grows for as long as the load lasts."
        admit = f"Admit at most {within.in_flight:,} at once. " if within is not None else ""
        made = _made("missed", capacity, sentence, admit + _LOWER, "")
        made.cause, made.metric = _CAUSE, capacity.breaks_first
        made.stage = _STAGES.get(capacity.breaks_first or "")
        return made
    if capacity.load_decides is False and offers:
        sentence += f" A higher load is hardly worse, so the limit does not fit this system; what it meets is {offers}."
        advice = "Judge by a limit that the system can meet, or make a single request faster."
    else:
        sentence += f" What it meets there is {offers}." if offers else ""
        advice = _LOWER
    made = _made("missed", capacity, sentence, advice, "no load that holds the SLO was tested")
    made.metric, made.fitting_ms = capacity.breaks_first, fitting
    return made


def _made(status: Status, capacity: Capacity, sentence: str, advice: str, why: str) -> LoadVerdict:
    return LoadVerdict(
        status=status,
        metric=None,
        stage=None,
        cause=None,
        sentence=sentence,
        advice=advice,
        capacity=capacity,
        reasons=dict.fromkeys(("metric", "stage", "cause"), why) if why else {},
    )


def _load(capacity: Capacity, rps: float) -> str:
    said = say_rate(rps, "requests") if rps else "no load"
    return (
        f"{capacity.in_flight:,} requests in flight, {said}"
        if capacity.closed and capacity.in_flight is not None
        else said
    )


def _interval(capacity: Capacity) -> str:
    if capacity.closed and capacity.in_flight is not None:
        low, high = capacity.interval_in_flight
        return f" (the limit lies {_between(low or 0, high)} requests in flight)"
    low_rps, high_rps = capacity.interval_rps
    return f" (the limit lies {_between(low_rps or 0.0, high_rps)} requests/s)"


def _between(low: float, high: float | None) -> str:
    return f"above {low:.3g}" if high is None else f"between {low:.3g} and {high:.3g}"


def _at_break(capacity: Capacity, own: Sequence[RunRow]) -> str:
    """The first load that misses the SLO, with the limits that are missed there and their numbers."""
    rows = [row for row in own if _at(row, capacity.breaks_at_rps)]
    found: dict[str, LimitRow] = {}
    for row in rows:
        for limit in row.limits:
            if limit.met is False and limit.metric not in found:
                found[limit.metric] = limit
    closed = [row.in_flight for row in rows if row.closed and row.in_flight is not None]
    load = (
        f"{min(closed):,} requests in flight"
        if capacity.closed and closed
        else say_rate(capacity.breaks_at_rps or 0.0, "requests")
    )
    said = [_number(found[name]) for name in capacity.breaks if name in found]
    if not said:
        return f"At {load} too few requests meet all limits at once"
    more = f"; also {', '.join(said[1:])}" if said[1:] else ""
    return f"At {load} {said[0]}; this limit breaks first{more}"


def _at(row: RunRow, load: float | None) -> bool:
    level = level_of(row)
    return (
        load is not None and level is not None and abs(level - load) <= 0.03 * load and not row.held
    )


def _number(limit: LimitRow) -> str:
    if limit.metric == _ERRORS:
        return f"{say_ratio((limit.value_ms or 0.0) / 100.0)} of the requests fail"
    value = say_ms(limit.value_ms) if limit.value_ms is not None else "beyond its limit"
    return (
        f"{limit.metric.upper()} P{limit.percentile:g} is {value} against {say_ms(limit.limit_ms)}"
    )


def say_slo(slo: Slo) -> str:
    """Return the limits of an SLO with their percentiles: `TTFT P99 1 s, E2E P95 5 s`."""
    return ", ".join(
        printable(f"{metric.upper()} P{part.percentile:g} {say_ms(limit)}")
        for part in slo.each()
        for metric, limit in part.limits().items()
    )
