"""Whose work is it? Engine work per tenant, now against before."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from overrun.analysis.evidence.calls import MIN_CALLS, Calls
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.demand import cost_of, token_costs
from overrun.analysis.evidence.fact import Draws
from overrun.analysis.evidence.prefill import by_work

# Standard errors by which a tenant's work must have grown: 1 in 700 by chance, and it is the largest of several tenants; own default.
CLEAR_GROWTH_SE: Final = 3.0


class Noisy(NamedTuple):
    """The tenant whose work grew most: its part of all growth (0..1), its share of all work before and now, whether that is more than chance, what it
    added over all work of before, and its part less a standard error."""

    name: str
    part: float
    share_before: float
    share_now: float
    clear: bool = True
    added: float = 0.0
    part_low: float = 1.0


def work_by_tenant(
    calls: Calls, cost_in: float, cost_out: float, seconds: float
) -> dict[str, float]:
    """Return engine work per second of each tenant, in ms of engine time."""
    work = cost_of(calls, cost_in, cost_out)
    codes, names = calls.codes("tenant"), calls.names("tenant")
    return {
        name: float(work[codes == code].sum()) / max(seconds, 1e-3)
        for code, name in enumerate(names)
    }


def noisiest(case: Case) -> Noisy | None:
    """Return the tenant whose work grew most; None without a baseline, without tenants, or where no work was added."""
    before = case.calls_before
    if before is None or case.baseline is None or min(len(case.calls), len(before)) < MIN_CALLS:
        return None
    costs = token_costs(before, case.calls)
    now, then = (
        work_by_tenant(case.calls, *costs, case.period.seconds),
        work_by_tenant(before, *costs, case.baseline.seconds),
    )
    if len(now) < 2:
        return None
    grown = {name: value - then.get(name, 0.0) for name, value in now.items()}
    added = sum(now.values()) - sum(then.values())
    name = max(grown, key=lambda one: grown[one])
    if added <= 0.0 or grown[name] <= 0.0:
        return None
    errors = [
        _error(side, *costs, name, period.seconds)
        for side, period in ((case.calls, case.period), (before, case.baseline))
    ]
    error = math.hypot(*errors)
    return Noisy(
        name,
        min(1.0, grown[name] / added),
        then.get(name, 0.0) / max(sum(then.values()), 1e-9),
        now[name] / sum(now.values()),
        grown[name] > CLEAR_GROWTH_SE * error,
        grown[name] / max(sum(then.values()), 1e-9),
        max(0.0, min(1.0, (grown[name] - error) / added)),
    )


def _error(calls: Calls, cost_in: float, cost_out: float, name: str, seconds: float) -> float:
    """Return the standard error of a tenant's work per second: conversations come at random (compound Poisson), so the sum of their squares is the variance."""
    work = pl.DataFrame(
        {
            "ms": cost_of(calls, cost_in, cost_out),
            "key": calls.frame.select(pl.coalesce("session", pl.col("trace_key").cast(pl.String))),
        }
    )
    theirs = work.filter(calls.frame["tenant"] == name).group_by("key").agg(pl.col("ms").sum())
    return math.sqrt(float((theirs["ms"] ** 2).sum())) / max(seconds, 1e-3)


def work_share(case: Case, found: Noisy) -> tuple[Draws | None, Draws | None]:
    """Return a tenant's share of all work now and before, each with its replicates; None below 30 calls or without work."""
    before = case.calls_before
    if before is None:
        return None, None
    costs = token_costs(before, case.calls)
    now, then = (_share(side, costs, found.name) for side in (case.calls, before))
    return now, then


def _share(calls: Calls, costs: tuple[float, float], name: str) -> Draws | None:
    work = cost_of(calls, *costs)
    theirs = (calls.frame["tenant"] == name).fill_null(value=False).to_numpy()
    return calls.sample.ratio(np.where(theirs, work, 0.0), work)


def added_by(case: Case, found: Noisy) -> dict[str, float]:
    """Return what a tenant's added work adds to the waiting and the pace of all, in ms per stage.

    Without engine telemetry, waiting hides in the first token.
    """
    work = case.demand
    growth = (
        1.0
        if work is None
        else work.arrivals + work.repeats + work.input + work.cache + work.output
    )
    slower = by_work(case)
    if not case.calls.has_engine.any():
        slower["first_token"] = case.excess_ms("first_token")
    out = {stage: ms * found.part * growth for stage, ms in slower.items()}
    out["prefill"] = case.excess_ms("prefill") * found.part
    return out


def one_tenant(case: Case) -> float | None:
    """Return the part of the added work that a single tenant brought, None if that is not known."""
    found = noisiest(case)
    return (
        found.part
        if found is not None and found.clear and found.share_now > 1.5 * found.share_before
        else None
    )
