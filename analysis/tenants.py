"""Whose work is it? Engine work per tenant, now against before."""

from __future__ import annotations

from typing import NamedTuple

from analysis.calls import MIN_CALLS, Calls
from analysis.case import Case
from analysis.demand import cost_of, token_costs


class Noisy(NamedTuple):
    """The tenant whose work grew most: its part of all growth (0..1), its share of all work before and now."""

    name: str
    part: float
    share_before: float
    share_now: float


def work_by_tenant(calls: Calls, cost_in: float, cost_out: float, seconds: float) -> dict[str, float]:
    """Return engine work per second of each tenant, in ms of engine time."""
    work = cost_of(calls, cost_in, cost_out)
    codes, names = calls.codes("tenant"), calls.names("tenant")
    return {name: float(work[codes == code].sum()) / max(seconds, 1e-3) for code, name in enumerate(names)}


def noisiest(case: Case) -> Noisy | None:
    """Return the tenant whose work grew most; None without a baseline, without tenants, or where no work was added."""
    before = case.calls_before
    if before is None or case.baseline is None or min(len(case.calls), len(before)) < MIN_CALLS:
        return None
    costs = token_costs(before, case.calls)
    now, then = work_by_tenant(case.calls, *costs, case.period.seconds), work_by_tenant(before, *costs, case.baseline.seconds)
    if len(now) < 2:
        return None
    grown = {name: value - then.get(name, 0.0) for name, value in now.items()}
    added = sum(now.values()) - sum(then.values())
    name = max(grown, key=lambda one: grown[one])
    if added <= 0.0 or grown[name] <= 0.0:
        return None
    return Noisy(name, min(1.0, grown[name] / added), then.get(name, 0.0) / max(sum(then.values()), 1e-9), now[name] / sum(now.values()))


def one_tenant(case: Case) -> float | None:
    """Return the part of the added work that a single tenant brought, None where that cannot be told."""
    found = noisiest(case)
    return found.part if found is not None and found.share_now > 1.5 * found.share_before else None
