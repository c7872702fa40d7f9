"""What should each stage be allowed, in words and as a table for the settings file? The derived budgets of one window."""

from __future__ import annotations

import math
from typing import Final

from overrun.analysis.front.budget_answer import BudgetView
from overrun.analysis.numbers.stages.budget import GROUPS, OTHER
from overrun.analysis.numbers.stages.budget_rows import said
from overrun.analysis.numbers.stages.stage_responsibility import Derived, Responsible
from overrun.analysis.words.finding import printable, say_count, say_ms, say_ratio

# What is said with one decimal.
_LEAST_MS: Final = 0.05


def render(view: BudgetView) -> str:
    """Return the answer for a terminal: whether the limit can be met, the allocation, and who is responsible for the breaches."""
    if view.metric is None or view.limit_ms is None:
        return f"No budget can be derived: {view.reasons.get('metric', 'nothing is judged')}."
    name = f"{view.metric.upper()} P{view.percentile:g}"
    lines = [
        f"BUDGET for {name} of {say_ms(view.limit_ms)}, {say_count(view.n, 'successful request')}"
    ]
    derived = view.derived
    if derived is None or derived.observed_ms is None:
        lines.append(
            f"No allocation: {view.reasons.get('derived') or next(iter(derived.reasons.values()) if derived else iter(['no healthy request']))}."
        )
    else:
        lines += [
            _achievable(derived, name),
            _method(view, derived),
            "",
            f"{'':22}{'derived':>12}{'in force':>12}",
        ]
        for group, ms in groups_of(derived).items():
            own = view.budget_ms.get(group)
            lines.append(f"  {group:20}{say_ms(ms):>12}{'-' if own is None else say_ms(own):>12}")
        lines.append(f"  in force: {printable(view.budget or '-', 200)}")
    if view.responsibility is not None and view.responsibility.groups:
        lines += [
            "",
            f"BREACHES {view.responsibility.breaching:,} of {view.responsibility.n:,} requests are over the limit",
        ]
        none = [
            row
            for row in view.responsibility.groups
            if not row.necessary and max(row.alone_ms, row.shapley_ms) < _LEAST_MS
        ]
        lines += [_responsible(row, name) for row in view.responsibility.groups if row not in none]
        lines += (
            [
                f"  {', '.join(f'{row.group} (budget {say_ms(row.budget_ms)})' for row in none)}: no effect on them"
            ]
            if none
            else []
        )
    if len(view.by_budget) > 1:
        lines += ["", "BY BUDGET, each request against the budget of its route, else of its model"]
    for held in view.by_budget if len(view.by_budget) > 1 else ():
        whose, n, breaching, percentile, over = said(held, name)
        lines.append(
            f"  {whose}: {n} requests, {breaching} over the limit, {percentile}; over its budget: {over}"
        )
        lines += [
            f"  {_responsible(row, name)}"
            for row in held.responsibility.groups
            if row.necessary or row.sufficient
        ]
    return "\n".join(lines)


def to_toml(view: BudgetView, route: str | None) -> str:
    """Return the allocation as a `[budgets]` table for the settings file; without one, a comment that says why."""
    if (
        view.derived is None
        or not view.derived.stage_ms
        or view.limit_ms is None
        or view.metric is None
    ):
        return f"# no budget can be derived: {printable(next(iter(view.reasons.values()), 'no healthy request'))}"
    groups = groups_of(view.derived)
    name = printable(route or "*").replace("\\", "\\\\").replace('"', '\\"')
    head = f"# {view.metric.upper()} P{view.percentile:g} of {say_ms(view.limit_ms)}, from {view.derived_from}; milliseconds"
    lines = [
        head,
        f'[budgets."{name}"]',
        *(f'"{group}" = {ms:.1f}' for group, ms in groups.items() if group != OTHER and ms > 0.0),
    ]
    return "\n".join(
        [
            *lines,
            *(
                [f"# {groups[OTHER]:.1f} ms have no span: add spans there"]
                if groups.get(OTHER)
                else []
            ),
        ]
    )


def groups_of(derived: Derived) -> dict[str, float]:
    """Return the derived budgets by group in ms; they sum to the target, with what has no span under `other`."""
    members = {**GROUPS, OTHER: (OTHER,)}
    sums = {
        group: math.fsum(derived.stage_ms.get(stage, 0.0) for stage in stages)
        for group, stages in members.items()
    }
    return {group: ms for group, ms in sums.items() if ms > 0.0}


def _achievable(derived: Derived, name: str) -> str:
    observed, typical = derived.observed_ms or 0.0, derived.median_ms or 0.0
    if not derived.achievable:
        return (
            f"Not achievable: the medians of the stages alone sum to {say_ms(typical)}. Half of the requests cannot meet any split of "
            f"{say_ms(derived.target_ms)}: shorten a stage, or raise the limit."
        )
    if observed <= derived.target_ms:
        return (
            f"Achievable: {name} of the healthy requests is {say_ms(observed)}, within the limit."
        )
    return f"Achievable: the medians sum to {say_ms(typical)}, but {name} of the healthy requests is {say_ms(observed)}: the slow requests of each stage must become faster."


def _method(view: BudgetView, derived: Derived) -> str:
    how = (
        f"means of the {say_count(derived.n_band, 'request')} around the percentile"
        if derived.method == "euler"
        else f"shares of medians, because only {derived.n_band:,} requests are near the percentile"
    )
    return f"From {view.derived_from}: {how}, scaled to the limit; they sum to it."


def _responsible(row: Responsible, name: str) -> str:
    again = (
        ""
        if row.recomputed_ms is None
        else f" ({say_ms(row.recomputed_ms)} with a new critical path)"
    )
    return (
        f"  {row.group}: within its budget of {say_ms(row.budget_ms)} it alone would end {row.necessary:,} of them and lower {name} by "
        f"{say_ms(row.alone_ms)}{again}. Its fair (Shapley) share is {say_ms(row.shapley_ms)} and {say_ratio(row.shapley_breaches)} of all requests"
    )
