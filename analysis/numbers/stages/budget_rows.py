"""Which routes and models keep the budgets that were set for them? One row per budget, over the requests that are held to it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from overrun.analysis.numbers.latency.percentiles import min_n, sorted_quantile
from overrun.analysis.numbers.stages.budget import Budgets, StageTimes, group_time, overrun_shares
from overrun.analysis.numbers.stages.tail import TAIL_POINTS, band
from overrun.analysis.words.arrays import BoolArray
from overrun.analysis.words.finding import printable, say_ms, say_ratio


class BudgetRow(msgspec.Struct, kw_only=True):
    """One budget and its requests, on the path of the judged metric. Milliseconds by group.

    `budget` is the table's name (a route, a model, `*`) or the published split. `breaching` of the `n` requests are over the limit. `percentile_ms` is the
    SLO percentile of these requests alone, `tail_ms` the means of those within 2 points of it, and `over` the groups where that exceeds `budget_ms`, the
    most overrun first. `breach_share` is each group's mean share of the overrun among the breaching requests (`other`: time without a span).
    """

    budget: str
    n: int
    breaching: int
    percentile_ms: float | None
    budget_ms: dict[str, float]
    tail_ms: dict[str, float]
    over: list[str]
    breach_share: dict[str, float] | None
    reasons: dict[str, str] = {}


def budget_rows(
    times: StageTimes, budgets: Budgets, breaching: BoolArray, percentile: float
) -> list[BudgetRow]:
    """Return a row for every budget that a request is held to, most breaching requests first; none where the metric has no stage budgets."""
    parts = [(one, mine) for one, mine in held_to(times, budgets) if one.group_ms and len(mine)]
    rows = [
        _row(one, replace(times.take(mine), whose=None), breaching[mine], percentile)
        for one, mine in parts
    ]
    return sorted(rows, key=lambda row: -row.breaching)


def said(row: BudgetRow, name: str) -> tuple[str, ...]:
    """Return a budget's row as texts: whose, requests, those over the limit, the percentile `name`, and what is over its budget."""
    over = (
        ", ".join(
            f"{group} {say_ms(row.tail_ms[group])} of {say_ms(row.budget_ms[group])}"
            for group in row.over
        )
        or "nothing"
    )
    percentile = f"{name} -" if row.percentile_ms is None else f"{name} {say_ms(row.percentile_ms)}"
    return (
        printable(row.budget, 60),
        f"{row.n:,}",
        f"{row.breaching:,} ({say_ratio(row.breaching / row.n)})",
        percentile,
        over,
    )


def held_to(
    times: StageTimes, budgets: Budgets
) -> list[tuple[Budgets, np.ndarray[tuple[int], np.dtype[np.intp]]]]:
    """Return each budget by itself with the indices of the requests that are held to it."""
    alone = replace(budgets, own=())
    if times.whose is None:
        return [(alone, np.arange(len(times.total_ms)))]
    return [(one, np.flatnonzero(times.whose == k)) for k, one in enumerate((alone, *budgets.own))]


def _row(budgets: Budgets, times: StageTimes, breaching: BoolArray, percentile: float) -> BudgetRow:
    n, needed, reasons = len(breaching), min_n(percentile), {}
    near = times.take(band(times.total_ms, percentile - TAIL_POINTS, percentile + TAIL_POINTS))
    tail_ms = {group: float(group_time(near, group).mean()) for group in budgets.group_ms}
    excess = {group: tail_ms[group] - ms for group, ms in budgets.group_ms.items()}
    shares = overrun_shares(times.take(breaching), budgets)
    if n < needed:
        reasons["percentile_ms"] = (
            f"P{percentile:g} needs at least {needed} requests, there are {n}"
        )
    if shares is None:
        reasons["breach_share"] = "no breaching request overran a budget"
    return BudgetRow(
        budget=budgets.name,
        n=n,
        breaching=int(breaching.sum()),
        percentile_ms=sorted_quantile(np.sort(times.total_ms), percentile / 100.0)
        if n >= needed
        else None,
        budget_ms=dict(budgets.group_ms),
        tail_ms=tail_ms,
        over=sorted(
            (group for group, ms in excess.items() if ms > 0.0), key=lambda group: -excess[group]
        ),
        breach_share=shares,
        reasons=reasons,
    )
