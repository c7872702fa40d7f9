"""Does a limit fit what it is put on? One that clearly more requests missed than may, before anything changed, cannot date an incident: one that would fit
is offered beside it. Where nobody gave a limit, the latency is held against itself.

The moment of the change is where the metric left its former distribution (`onset.departure`), which does not depend on any limit. A limit that dates a change
itself (`find_onset`) fits well enough, and so may one whose misses grew before that moment: then the trouble began earlier. The limit that fits is the
percentile of the SLO of what came before, at the upper end of its 95 % interval, rounded up to two digits.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Final

import msgspec
import numpy as np
import polars as pl

from overrun.analysis.incident.onset import departure
from overrun.analysis.numbers.latency.percentiles import min_n, quantile_interval, sorted_quantile
from overrun.analysis.numbers.outcomes.goodput import design_effect
from overrun.analysis.numbers.statistics.change_points import find_onset, in_time
from overrun.analysis.numbers.statistics.proportion import Z_ONE_SIDED, wilson
from overrun.analysis.numbers.window import RequestFrame
from overrun.analysis.words.arrays import BoolArray, FloatArray, IntArray
from overrun.analysis.words.finding import say_ms, say_ratio
from overrun.analysis.words.slo import Slo
from overrun.analysis.words.timestamps import from_us, to_us

_PACES: Final = ("tpot", "itl")


class Unfit(msgspec.Struct, kw_only=True):
    """A limit that `missed_before` of the requests missed before `since`, when they became slower; `fits_ms` is the one that they met at the SLO's percentile."""

    metric: str
    limit_ms: float
    missed_before: float
    fits_ms: float
    since: datetime


def unfit(frame: RequestFrame, slo: Slo, before: pl.DataFrame | None = None) -> list[Unfit]:
    """Return the limits of an SLO that do not fit the requests of a window; limits that requests came with themselves are not asked about.

    `before` are requests of a time before the window that it is compared with, None without one: a limit that these kept fits.

    Where one limited metric changed, a limit on another that too many requests missed before that moment does not fit either.
    """
    allowed = 1.0 - slo.goodput_target
    times = {
        metric: _known(frame.rows, metric)
        for metric in slo.limits()
        if f"slo_{metric}_ms" not in frame.rows.columns
    }
    enough = 2 * min_n(slo.percentile)
    missed = {
        metric: (start, values)
        for metric, (start, values) in times.items()
        if len(values) >= enough and _undated(start, values > slo.limits()[metric], allowed)
    }
    moments = {
        metric: departure(start, values, int(start[-1]) + 1, shared=metric in _PACES)
        for metric, (start, values) in missed.items()
    }
    found: dict[str, Unfit] = {}
    for metric, (start, values) in missed.items():
        at = moments[metric]
        one = None if at is None else _unfit(metric, slo, values[start < at], at)
        # A change that keeps to the limit which would fit is none that a limit is needed for.
        if at is not None and one and _clearly_over(values[start >= at] > one.fits_ms, allowed):
            found[metric] = one
    if not found:
        return []
    first = min(one.since for one in found.values())
    for metric, (start, values) in missed.items():
        one = _unfit(metric, slo, values[start < to_us(first)], to_us(first))
        if metric not in found and one is not None:
            found[metric] = one
    return [one for one in found.values() if before is None or not _kept(before, one, slo)]


def _kept(rows: pl.DataFrame, one: Unfit, slo: Slo) -> bool:
    """Whether the requests of an earlier time kept a limit: then it fits, and the window begins after the trouble did."""
    _, values = _known(rows, one.metric)
    over = values > one.limit_ms
    return len(values) >= min_n(slo.percentile) and not _clearly_over(
        over, 1.0 - slo.goodput_target
    )


def _undated(start: IntArray, missed: BoolArray, allowed: float) -> bool:
    """Whether clearly more requests miss a limit than may, and their share dates no change."""
    return _clearly_over(missed, allowed) and find_onset(start, missed, allowed) is None


def _clearly_over(missed: BoolArray, allowed: float) -> bool:
    n = len(missed) / design_effect(missed)
    return wilson(float(missed.mean()) * n, n, Z_ONE_SIDED)[0] > allowed if n else False


def _steady(missed: BoolArray) -> bool:
    """Whether the share of misses (in order of time) is the same in both halves, as far as their intervals tell."""
    first, second = (wilson(int(half.sum()), len(half)) for half in np.array_split(missed, 2))
    return first[0] <= second[1] and second[0] <= first[1]


def _known(rows: pl.DataFrame, metric: str) -> tuple[IntArray, FloatArray]:
    """Starts and values of the successful requests that carry a metric, in order of time."""
    known = rows.filter(~pl.col("error") & pl.col(f"{metric}_ms").is_not_null())
    start, values = in_time(known["start_us"].to_numpy(), known[f"{metric}_ms"].to_numpy())
    return start, values


def _unfit(metric: str, slo: Slo, before: FloatArray, since: int) -> Unfit | None:
    """What is to be said of a limit by the values before a change, in order of time; None where it fitted them, or they were changing already."""
    limit_ms, p = slo.limits()[metric], slo.percentile / 100.0
    missed = before > limit_ms
    if len(before) < min_n(slo.percentile) or not (
        _clearly_over(missed, 1.0 - slo.goodput_target) and _steady(missed)
    ):
        return None
    return Unfit(
        metric=metric,
        limit_ms=limit_ms,
        missed_before=float(missed.mean()),
        fits_ms=_fitting(before, p),
        since=from_us(since),
    )


def usual(frame: RequestFrame, slo: Slo) -> Slo:
    """Return an SLO that nobody gave with limits that fit the requests of a window, before the metric changed where it did: what misses them has become slower.

    As it is where too few requests carry a first token or an end.
    """
    found, p = dict[str, float](), slo.percentile / 100.0
    for metric in ("ttft", "e2e"):
        start, values = _known(frame.rows, metric)
        at = departure(start, values, int(start[-1]) + 1) if len(values) else None
        sides = (values if at is None else values[start < at], values)
        enough = [some for some in sides if len(some) >= min_n(slo.percentile)]
        if enough:
            found[f"{metric}_ms"] = _fitting(enough[0], p)
    limits = dict.fromkeys(f"{metric}_ms" for metric in slo.limits()) if found else {}
    return msgspec.structs.replace(slo, **(limits | found), given=not found)


def _fitting(values: FloatArray, p: float) -> float:
    """The upper end of a percentile's interval, rounded up to two digits as people write limits."""
    ordered = np.sort(values)
    edges = quantile_interval(ordered, p)
    fits = sorted_quantile(ordered, p) if edges is None else edges[1]
    step = 10.0 ** (math.floor(math.log10(max(fits, 1e-3))) - 1)
    return float(math.ceil(fits / step - 1e-9) * step)


def say_unfit(found: list[Unfit], slo: Slo) -> str:
    """Return that limits do not fit, and which would."""
    said = "; ".join(
        f"{one.metric.upper()} P{slo.percentile:g} {say_ms(one.limit_ms)} ({say_ratio(round(one.missed_before, 3))} of the requests missed it "
        f"before anything changed; {say_ms(one.fits_ms)} would fit)"
        for one in found
    )
    many = len(found) > 1
    return f"The limit{'s do' if many else ' does'} not fit: {said}."


def say_usual(slo: Slo) -> str:
    """Return that nobody gave a limit, and which would fit."""
    text = " ".join(f"{name}:{limit:g}" for name, limit in slo.limits().items())
    return f'No limit is given: the latency is held against itself. --slo "{text}" would fit.'
