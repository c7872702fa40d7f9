"""How did each run of a load test do? One row a run: its load, percentiles, and whether it holds the SLO; of requests, or of a summary alone.

Takes the runs that `overrun.collector.sources.load_tests` reads. A request is good if it meets all limits at once, and a failed one is bad.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np
import polars as pl

from overrun.analysis.numbers.latency.percentiles import Percentiles, min_n, percentiles
from overrun.analysis.numbers.load_tests.warm_up import warm_up
from overrun.analysis.numbers.outcomes.goodput import design_effect
from overrun.analysis.numbers.outcomes.percentile_limits import LimitRow, limit_row
from overrun.analysis.numbers.quality.load_checks import closed_loop
from overrun.analysis.numbers.statistics.proportion import wilson
from overrun.analysis.words.arrays import BoolArray, FloatArray
from overrun.analysis.words.slo import METRICS, Slo
from overrun.collector.sources.load_tests import Request, Run, Summary

Holds = Literal["yes", "no", "unclear", "not known"]
# A run whose requests arrive so much faster than they are answered has a queue that grows for as long as it lasts; own default.
_BEHIND: Final = 0.9
# ...and whose last tenth waits so many times as long as its first tenth.
_GROWN: Final = 2.0
_LEAST_GROWTH: Final = 50
# Groups of requests by what was in flight: enough to see where the SLO breaks, each with what the percentile needs.
_GROUPS: Final = 20
_LEAST_GROUPS: Final = 4
_ERRORS: Final = "errors"


class Within(msgspec.Struct, kw_only=True):
    """Up to `in_flight` requests at once a run's own requests met the SLO."""

    in_flight: int


class RunRow(msgspec.Struct, kw_only=True):
    """One run. `rate_rps` is the rate at which requests arrived (by their times, else as asked for), `answered_rps` that of successful answers.

    `basis` says whether percentiles are of requests or from the generator's summary. `good_ratio` is the share of requests that met every limit, null of
    a summary; `holds` is about the whole SLO, `held` the same by the point
    estimate where chance could decide, `limits` about each limit. `growing`: the queue grew for as long as the run lasted.
    `warm_up` first requests were late while no later one was; they are left out of all figures, and took `warm_up_ms` to the first token (or as a whole) where
    the others took `after_ms`, both at the median.
    `closed`: no more was sent than was answered, because requests in flight were bounded, or as fast as possible.
    """

    name: str
    tool: str
    file: str
    model: str | None
    basis: Literal["requests", "summary"]
    rate_rps: float | None
    asked_rps: float | None
    in_flight: int | None
    answered_rps: float | None
    duration_s: float | None
    requests: int
    errors: int
    ttft_ms: Percentiles
    itl_ms: Percentiles
    tpot_ms: Percentiles
    e2e_ms: Percentiles
    good_ratio: float | None
    good_interval: tuple[float, float] | None
    holds: Holds
    held: bool | None
    limits: list[LimitRow]
    closed: bool
    growing: bool | None
    input_tokens: float | None
    output_tokens: float | None
    within: Within | None = None
    warm_up: int = 0
    warm_up_ms: float | None = None
    after_ms: float | None = None
    reasons: dict[str, str] = {}


@dataclass(frozen=True)
class _Times:
    """A run's requests as arrays of shape (n,): seconds since the first one, ms (NaN where not measured), and whether it failed."""

    start_s: FloatArray
    failed: BoolArray
    ms: Mapping[str, FloatArray]
    output_tokens: FloatArray


def run_rows(runs: Sequence[tuple[str, Path, Run]], slo: Slo) -> list[RunRow]:
    """Return a row per run, in order of load."""
    rows = [
        _of_requests(tool, path, run, slo)
        if run.requests
        else _of_summary(tool, path, run, run.summary or Summary({}, {}, None, 0), slo)
        for tool, path, run in runs
    ]
    return sorted(rows, key=lambda row: (row.model or "", order_of(row)))


def order_of(row: RunRow) -> float:
    """Return what runs are put in order by: closed loops by what is in flight, since beyond saturation their rate no longer rises with it."""
    if row.closed and row.in_flight is not None:
        return float(row.in_flight)
    return level_of(row) or 0.0


def level_of(row: RunRow) -> float | None:
    """Return the load of a run in requests/s: what arrived where that was set, what was answered where requests in flight were."""
    return row.answered_rps if row.closed else row.rate_rps


def _within(times: _Times, good: BoolArray, part: Slo) -> Within | None:
    """Up to how many others in flight a run's requests met the SLO, where those that found more did not.

    Requests are put in order of what was in flight when they were sent, and cut into groups that carry the percentile.
    """
    n, needed = len(good), min_n(part.percentile)
    groups = min(_GROUPS, n // needed)
    if groups < _LEAST_GROUPS:
        return None
    e2e = np.nan_to_num(times.ms["e2e"])
    ended, order = np.sort(times.start_s + e2e / 1e3), np.argsort(times.start_s, kind="stable")
    flying = np.empty(n, np.int64)
    flying[order] = np.arange(n) - np.searchsorted(ended, times.start_s[order], side="right")
    parts = np.array_split(np.argsort(flying, kind="stable"), groups)
    met = [float(good[one].mean()) >= part.goodput_target for one in parts]
    if met[-1] or not met[0]:
        return None
    last = met.index(False) - 1
    if any(met[last + 1 :]):  # more in flight was no worse
        return None
    return Within(in_flight=int(np.median(flying[parts[last]])) + 1)


def _of_requests(tool: str, path: Path, run: Run, slo: Slo) -> RunRow:
    first = _first(run, slo)
    if not first:
        return _of_all_requests(tool, path, run, slo)
    ordered = sorted(run.requests, key=lambda one: one.start_ns)
    row = _of_all_requests(tool, path, replace(run, requests=ordered[first:]), slo)
    row.warm_up = first
    row.warm_up_ms, row.after_ms = (
        _typical_wait(part) for part in (ordered[:first], ordered[first:])
    )
    return row


def _first(run: Run, slo: Slo) -> int:
    """How many first requests of a run are its warm-up, 0 where the file does not record when requests were sent."""
    if not run.timed or run.apart:
        return 0
    times = _times(run.requests)
    late = np.zeros(len(times.failed), np.bool_)
    for part in slo.each():
        for metric, limit in part.limits().items():
            late |= ~times.failed & (times.ms[metric] > limit)
    return warm_up(times.start_s, late, run.in_flight)


def _typical_wait(requests: Sequence[Request]) -> float | None:
    """The median time to the first token, or of whole answers where none is recorded."""
    times = _times(requests)
    waits = times.ms["ttft"] if (~np.isnan(times.ms["ttft"])).any() else times.ms["e2e"]
    waits = waits[~np.isnan(waits)]
    return float(np.median(waits)) if len(waits) else None


def _of_all_requests(tool: str, path: Path, run: Run, slo: Slo) -> RunRow:
    times = _times(run.requests)
    n, failed = len(run.requests), int(times.failed.sum())
    measured: dict[str, FloatArray] = {}
    for metric in METRICS:
        values = times.ms[metric][~times.failed]
        apart = run.apart.get(metric)
        measured[metric] = np.array(apart) if apart else values[~np.isnan(values)]
    limits = [
        limit_row(metric, part, limit, measured[metric])
        for part in slo.each()
        for metric, limit in part.limits().items()
    ]
    arrived = _arrived_rps(times) if run.timed else None
    last_s = float(np.nanmax(times.start_s + np.nan_to_num(times.ms["e2e"]) / 1e3)) if n else 0.0
    lasted = last_s if run.timed and last_s > 0.0 else run.duration_s
    reasons = {} if run.timed else {"rate_rps": "the file does not record when requests were sent"}
    latencies = {metric: percentiles(measured[metric]) for metric in METRICS}
    row = RunRow(
        name=run.name,
        tool=tool,
        file=path.name,
        model=run.model,
        basis="requests",
        rate_rps=arrived if arrived is not None else run.rate_rps,
        asked_rps=run.rate_rps,
        in_flight=run.in_flight,
        answered_rps=(n - failed) / lasted if lasted else None,
        duration_s=lasted,
        requests=n,
        errors=failed,
        ttft_ms=latencies["ttft"],
        itl_ms=latencies["itl"],
        tpot_ms=latencies["tpot"],
        e2e_ms=latencies["e2e"],
        good_ratio=None,
        good_interval=None,
        holds="not known",
        held=None,
        limits=[*limits, *_error_rows(n, failed, slo)],
        closed=_closed(run, times),
        growing=_growing(times) if run.timed else None,
        input_tokens=_mean([one.input_tokens for one in run.requests if one.error is None]),
        output_tokens=_mean([one.output_tokens for one in run.requests if one.error is None]),
        reasons=reasons,
    )
    _judge_requests(row, times, slo, set(run.apart))
    return row


def _judge_requests(row: RunRow, times: _Times, slo: Slo, apart: set[str]) -> None:
    """Set whether a run holds the SLO: the share of requests that meet all limits of a part at once reaches its target."""
    surely, surely_not, held = True, False, True
    for part in slo.each():
        good, known = ~times.failed, np.ones(len(times.failed), np.bool_)
        for metric, limit in part.limits().items():
            if metric in apart:
                continue
            values = times.ms[metric]
            short = _short(times, metric)
            known &= times.failed | ~np.isnan(values) | short
            good = good & ((values <= limit) | short)
        met = good[known]
        # Failed requests are bad by themselves, so they alone must not decide what no successful one carries.
        if not (known & ~times.failed).any():
            row.reasons["good_ratio"] = row.reasons["holds"] = (
                "no request succeeded"
                if times.failed.all()
                else f"no request carries every limited metric ({', '.join(part.limits())})"
            )
            row.holds = "no" if times.failed.all() else "not known"
            row.held = False if times.failed.all() else None
            return
        share = float(met.mean())
        if share < part.goodput_target and "rate_rps" not in row.reasons:
            row.within = row.within or _within(times, good, part)
        effective = len(met) / design_effect(met)
        low, high = wilson(share * effective, effective)
        if row.good_ratio is None or share < part.goodput_target:
            row.good_ratio, row.good_interval = share, (low, high)
        held &= share >= part.goodput_target
        surely &= low >= part.goodput_target
        surely_not |= high < part.goodput_target
    for beside in (one for one in row.limits if one.metric in apart):
        held &= beside.met is not False
        surely &= beside.met is True and beside.clear
        surely_not |= beside.met is False and beside.clear
    row.held = held
    row.holds = "yes" if surely else "no" if surely_not else "unclear"


def _of_summary(tool: str, path: Path, run: Run, told: Summary, slo: Slo) -> RunRow:
    done, failed = told.succeeded or 0, told.failed
    n = done + failed
    limits = [
        _summary_limit(metric, part, limit, told.percentiles.get(metric, {}), done)
        for part in slo.each()
        for metric, limit in part.limits().items()
    ]
    limits += _error_rows(n, failed, slo)
    known = [limit.met for limit in limits]
    holds: Holds = "no" if False in known else "not known" if None in known else "yes"
    why = "the file has no requests, only the generator's summary"
    return RunRow(
        name=run.name,
        tool=tool,
        file=path.name,
        model=run.model,
        basis="summary",
        rate_rps=run.rate_rps,
        asked_rps=run.rate_rps,
        in_flight=run.in_flight,
        answered_rps=told.answered_rps
        or (done / run.duration_s if run.duration_s and done else None),
        duration_s=run.duration_s,
        requests=n,
        errors=failed,
        ttft_ms=_told("ttft", told, done),
        itl_ms=_told("itl", told, done),
        tpot_ms=_told("tpot", told, done),
        e2e_ms=_told("e2e", told, done),
        good_ratio=None,
        good_interval=None,
        holds=holds,
        held={"yes": True, "no": False}.get(holds),
        limits=limits,
        closed=run.rate_rps is None,
        growing=None,
        input_tokens=told.input_tokens,
        output_tokens=told.output_tokens,
        reasons={
            **dict.fromkeys(("good_ratio", "good_interval", "growing"), why),
            **({"holds": _missing(limits)} if holds == "not known" else {}),
        },
    )


def _summary_limit(
    metric: str, part: Slo, limit: float, told: Mapping[float, float], n: int
) -> LimitRow:
    """A limit against a summary's percentiles: where the one that is asked for is missing, a higher one within the limit or a lower one beyond decides."""
    at = part.percentile
    met = None
    if at in told:
        met = told[at] <= limit
    elif any(value <= limit for p, value in told.items() if p >= at):
        met = True
    elif any(value > limit for p, value in told.items() if p <= at):
        met = False
    listed = ", ".join(f"P{p:g}" for p in sorted(told) if p < 100.0)
    why = f"the summary has {listed or 'no percentile'} of {metric.upper()}"
    return LimitRow(
        metric=metric,
        percentile=at,
        limit_ms=limit,
        value_ms=told.get(at),
        interval_ms=None,
        n=n,
        missed=0,
        met=met,
        clear=False,
        reasons={
            "interval_ms": "a summary has no interval",
            "missed": "a summary does not count them",
            **({} if at in told else {"value_ms": f"{why}, not P{at:g}"}),
            **({} if met is not None else {"met": f"{why}, which do not decide P{at:g}"}),
        },
    )


def _error_rows(n: int, failed: int, slo: Slo) -> list[LimitRow]:
    """The share of failed requests as a limit of its own: it alone may leave too few good ones. Its values are percent."""
    if not n or not failed:
        return []
    allowed = 1.0 - max(part.goodput_target for part in slo.each())
    low, high = wilson(failed, n)
    return [
        LimitRow(
            metric=_ERRORS,
            percentile=100.0,
            limit_ms=100.0 * allowed,
            value_ms=100.0 * failed / n,
            interval_ms=(100.0 * low, 100.0 * high),
            n=n,
            missed=failed,
            met=failed / n <= allowed,
            clear=high <= allowed or low > allowed,
        )
    ]


def _told(metric: str, told: Summary, n: int) -> Percentiles:
    found = told.percentiles.get(metric, {})
    why = "the summary does not have it"
    names = {50.0: "p50", 75.0: "p75", 90.0: "p90", 95.0: "p95", 99.0: "p99", 99.9: "p99_9"}
    out = Percentiles(
        n=n if found or metric in told.means else 0,
        source="the generator's summary" if found else None,
        max=found.get(100.0),
    )
    for at, name in names.items():
        setattr(out, name, found.get(at))
    nulls = [*names.values(), "p50_interval", "p95_interval", "p99_interval", "max", "source"]
    out.reasons = {name: why for name in nulls if getattr(out, name) is None}
    return out


def _times(requests: Sequence[Request]) -> _Times:
    def of(values: Sequence[int | None]) -> FloatArray:
        return np.array([np.nan if value is None else value for value in values], np.float64)

    start = of([request.start_ns for request in requests]) / 1e9
    e2e, ttft, itl = (
        of([getattr(request, name) for request in requests]) / 1e6
        for name in ("e2e_ns", "ttft_ns", "itl_ns")
    )
    tokens = of([request.output_tokens for request in requests])
    with np.errstate(invalid="ignore", divide="ignore"):
        tpot = np.where(tokens >= 2, (e2e - ttft) / (tokens - 1), np.nan)
    failed = np.array([request.error is not None for request in requests], np.bool_)
    return _Times(
        start - (start.min() if len(start) else 0.0),
        failed,
        {"ttft": ttft, "itl": itl, "tpot": tpot, "e2e": e2e},
        tokens,
    )


def _short(times: _Times, metric: str) -> BoolArray:
    """Answers of at most one token, which have no gap and meet any limit on it."""
    if metric not in ("itl", "tpot"):
        return np.zeros(len(times.failed), np.bool_)
    short: BoolArray = times.output_tokens <= 1
    return short


def _arrived_rps(times: _Times) -> float | None:
    n, span = len(times.start_s), float(times.start_s.max()) if len(times.start_s) else 0.0
    return (n - 1) / span if n > 1 and span > 0.0 else None


def _closed(run: Run, times: _Times) -> bool:
    """Whether requests waited for answers to be sent: by the load that was asked for, else by when they were sent."""
    if run.rate_rps is not None or run.in_flight is not None or not run.timed:
        return run.rate_rps is None
    e2e = np.nan_to_num(times.ms["e2e"])
    start_us = np.round(times.start_s * 1e6).astype(np.int64)
    ended_us = start_us + np.round(e2e * 1e3).astype(np.int64)
    found = closed_loop(pl.DataFrame({"start_us": start_us, "end_us": ended_us, "e2e_ms": e2e}))
    return found is not None and found.status != "ok"


def _growing(times: _Times) -> bool:
    """Whether requests waited ever longer: fewer were answered than arrived while requests were sent, and the last waited far longer than the first."""
    n = len(times.start_s)
    sent_s = float(times.start_s.max()) if n else 0.0
    if n < _LEAST_GROWTH or sent_s <= 0.0:
        return False
    done = int(((times.start_s + np.nan_to_num(times.ms["e2e"]) / 1e3) <= sent_s).sum())
    first = times.ms["ttft"] if not np.isnan(times.ms["ttft"]).all() else times.ms["e2e"]
    order = np.argsort(times.start_s, kind="stable")
    waits = first[order][~times.failed[order]]
    waits = waits[~np.isnan(waits)]
    part = max(len(waits) // 10, 5)
    if len(waits) < 2 * part:
        return False
    early, late = float(np.median(waits[:part])), float(np.median(waits[-part:]))
    return done < _BEHIND * n and late > _GROWN * max(early, 1.0)


def _mean(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _missing(limits: Sequence[LimitRow]) -> str:
    return "; ".join(
        dict.fromkeys(limit.reasons["met"] for limit in limits if "met" in limit.reasons)
    )
