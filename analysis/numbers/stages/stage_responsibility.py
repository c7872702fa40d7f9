"""Which stage is responsible for the breaches, and what would each budget have to be? Counterfactuals on recorded stage times, exact on each path.

Clipping a stage to its budget takes the time over it out of every request. What that changes is the stage's value; Shapley's split shares
out what several stages change together. The stages beside it keep their times, so for a queue this is a bound, not a forecast.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import numpy as np

from overrun.analysis.numbers.latency.percentiles import sorted_quantile
from overrun.analysis.numbers.stages.budget import Budgets, StageTimes, group_time
from overrun.analysis.numbers.stages.tail import TAIL_POINTS, band
from overrun.analysis.words.arrays import FloatArray

# 2^8 evaluations; groups of stages are six.
MOST_PLAYERS: Final = 8
# Values of a coalition are quantiles of all requests: beyond this many a systematic sample by rank keeps P99 within its own interval.
_MOST_ROWS: Final = 50_000
# Requests in the band around the percentile that a mean per stage needs: 50 are 2,500 requests at P95 with 2 points either side.
LEAST_IN_BAND: Final = 50


class Responsible(msgspec.Struct, kw_only=True):
    """One group of stages. Over the breaching requests: in how many it alone is enough to end the breach when held to its budget (`necessary`),
    and in how many the breach stays when all others are held (`sufficient`).

    `budget_ms` is the mean where requests are held to different budgets. `alone_ms` is what holding it alone takes off the percentile, `shapley_ms` its fair
    share of what holding all takes off (they sum to that), `shapley_breaches` the same of the share of breaching requests. `recomputed_ms` is `alone_ms`
    with the critical path worked out again (another branch may take over): less by what that takes back in the requests of every k-th trace.
    """

    group: str
    budget_ms: float
    necessary: int
    sufficient: int
    alone_ms: float
    shapley_ms: float
    shapley_breaches: float
    recomputed_ms: float | None = None
    reasons: dict[str, str] = {}


class Responsibility(msgspec.Struct, kw_only=True):
    """Who is responsible for the breaches of the judged metric: the percentile before, with all groups held to their budgets, and each group's part."""

    n: int
    breaching: int
    before_ms: float | None
    all_held_ms: float | None
    groups: list[Responsible]
    recomputed_n: int = 0
    reasons: dict[str, str] = {}


def responsibility(
    times: StageTimes, budgets: Budgets, limit_ms: float | FloatArray, percentile: float
) -> Responsibility:
    """Return each budgeted group's responsibility; unattributed time has no budget and is nobody's. Every request is held to its own budgets and limit."""
    n = len(times.total_ms)
    players = [group for group in budgets.group_ms if group_time(times, group).any()][:MOST_PLAYERS]
    limits = np.broadcast_to(limit_ms, n)
    breaching = times.total_ms > limits
    out = Responsibility(
        n=n, breaching=int(breaching.sum()), before_ms=None, all_held_ms=None, groups=[]
    )
    if n == 0 or not players:
        why = "no request" if n == 0 else "the judged metric has no stage budgets"
        out.reasons = dict.fromkeys(("before_ms", "all_held_ms", "groups"), why)
        return out
    held_ms = {group: np.asarray(budgets.limit_ms(group, times)) for group in players}
    saved = {group: np.maximum(group_time(times, group) - ms, 0.0) for group, ms in held_ms.items()}
    everything = sum(saved.values(), np.zeros(n))
    keep = (
        np.arange(n)
        if n <= _MOST_ROWS
        else np.argsort(times.total_ms, kind="stable")[
            np.linspace(0, n - 1, _MOST_ROWS).round().astype(np.int64)
        ]
    )
    total, most, parts = (
        times.total_ms[keep],
        limits[keep],
        {group: value[keep] for group, value in saved.items()},
    )

    def after(held: frozenset[str]) -> FloatArray:
        return total - sum((parts[group] for group in held), np.zeros(len(total)))

    def gained_ms(held: frozenset[str]) -> float:
        return (
            out.before_ms - sorted_quantile(np.sort(after(held)), percentile / 100.0)
            if out.before_ms is not None
            else 0.0
        )

    out.before_ms = sorted_quantile(np.sort(total), percentile / 100.0)
    share = float((total > most).mean())
    by_ms = shapley(players, gained_ms)
    by_breach = shapley(players, lambda held: share - float((after(held) > most).mean()))
    out.all_held_ms = out.before_ms - gained_ms(frozenset(players))
    for group in players:
        alone = times.total_ms - saved[group]
        others = times.total_ms - (everything - saved[group])
        out.groups.append(
            Responsible(
                group=group,
                budget_ms=float(held_ms[group].mean()),
                necessary=int((breaching & (alone <= limits)).sum()),
                sufficient=int((breaching & (others > limits)).sum()),
                alone_ms=gained_ms(frozenset([group])),
                shapley_ms=by_ms[group],
                shapley_breaches=by_breach[group],
            )
        )
    out.groups.sort(key=lambda row: -row.shapley_ms)
    return out


def shapley(players: list[str], value: Callable[[frozenset[str]], float]) -> dict[str, float]:
    """Return Shapley's split of value(all) - value(none) among the players: phi_i = sum over S without i of |S|!(n-|S|-1)!/n! (v(S+i) - v(S)).

    L. S. Shapley, "A value for n-person games", 1953. 2^n evaluations.
    """
    n = len(players)
    worth = {
        frozenset(held): value(frozenset(held))
        for size in range(n + 1)
        for held in itertools.combinations(players, size)
    }
    out = dict.fromkeys(players, 0.0)
    for held, v in worth.items():
        for player in players:
            if player not in held:
                weight = (
                    math.factorial(len(held))
                    * math.factorial(n - len(held) - 1)
                    / math.factorial(n)
                )
                out[player] += weight * (worth[held | {player}] - v)
    return out


class Derived(msgspec.Struct, kw_only=True):
    """Stage budgets that sum to the target, and whether it can be met: `observed_ms` is the healthy percentile today.

    `method` is `euler` (means of the requests around the percentile, scaled; they sum to it exactly) or `medians` (shares of medians, where the band holds
    too few). `achievable` is False when the medians of the stages, which sum to `median_ms`, exceed the target: no split can help.
    """

    target_ms: float
    observed_ms: float | None
    method: str | None
    n_band: int
    stage_ms: dict[str, float]
    achievable: bool | None
    median_ms: float | None = None
    reasons: dict[str, str] = {}


def derive(times: StageTimes, percentile: float, target_ms: float) -> Derived:
    """Allocate a target among the stages of healthy requests (Euler allocation: B_s = E[x_s | total near its percentile] x target / percentile)."""
    total = times.total_ms
    out = Derived(
        target_ms=target_ms, observed_ms=None, method=None, n_band=0, stage_ms={}, achievable=None
    )
    if not len(total):
        out.reasons = dict.fromkeys(
            ("observed_ms", "method", "achievable", "median_ms"),
            "no healthy request to derive from",
        )
        return out
    index = band(total, percentile - TAIL_POINTS, percentile + TAIL_POINTS)
    out.observed_ms, out.n_band = sorted_quantile(np.sort(total), percentile / 100.0), len(index)
    medians = {stage: float(np.median(spent)) for stage, spent in times.ms.items()}
    out.median_ms = math.fsum(medians.values())
    out.achievable = out.median_ms <= target_ms
    means = (
        {stage: float(spent[index].mean()) for stage, spent in times.ms.items()}
        if len(index) >= LEAST_IN_BAND
        else medians
    )
    out.method = "euler" if len(index) >= LEAST_IN_BAND else "medians"
    out.stage_ms = _scaled(means, target_ms)
    return out


def _scaled(parts: Mapping[str, float], target_ms: float) -> dict[str, float]:
    """Scale the parts so that they sum to the target; unattributed time keeps its share, which says what to instrument."""
    whole = math.fsum(parts.values())
    return (
        {stage: value * target_ms / whole for stage, value in parts.items()} if whole > 0.0 else {}
    )
