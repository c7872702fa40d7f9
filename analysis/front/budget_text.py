"""What should each stage be allowed, in words and as a table for the settings file? The derived budgets of one window."""

from __future__ import annotations

import math
from typing import Final

from overrun.analysis.front.budget_answer import BudgetView
from overrun.analysis.front.document import Block, Document, Figure, Items, Line, Table
from overrun.analysis.numbers.stages.budget import GROUPS, OTHER
from overrun.analysis.numbers.stages.budget_rows import said
from overrun.analysis.numbers.stages.stage_responsibility import Derived, Responsible
from overrun.analysis.words.finding import printable, say_count, say_ms, say_ratio

# What is said with one decimal.
_LEAST_MS: Final = 0.05


def document(view: BudgetView) -> Document:
    """Return whether the limit can be met, the allocation, and who is responsible for the breaches."""
    if view.metric is None or view.limit_ms is None:
        why = view.reasons.get("metric", "nothing is judged")
        return Document([], lead=f"No budget can be derived: {why}.")
    name, counted = (
        f"{view.metric.upper()} P{view.percentile:g}",
        say_count(view.n, "successful request"),
    )
    head = Line((f"BUDGET for {name} of {say_ms(view.limit_ms)}, {counted}",))
    first, *rest = _allocation(view, name)
    return Document([[head, *first], *rest, _breaches(view, name), _by_budget(view, name)])


def _allocation(view: BudgetView, name: str) -> list[list[Block]]:
    derived = view.derived
    if derived is None or derived.observed_ms is None:
        reasons = derived.reasons if derived else {}
        why = view.reasons.get("derived") or next(iter(reasons.values()), "no healthy request")
        return [[Line((f"No allocation: {why}.",))]]
    rows = [
        (f"  {group}", Figure(ms), Figure(view.budget_ms.get(group)))
        for group, ms in groups_of(derived).items()
    ]
    note = f"in force: {printable(view.budget or '-', 200)}"
    return [
        [Line((_achievable(derived, name),)), Line((_method(view, derived),))],
        [Table(("", "derived", "in force"), rows, "<>>", least=(22, 10, 10), note=note)],
    ]


def _breaches(view: BudgetView, name: str) -> list[Block]:
    found = view.responsibility
    if found is None or not found.groups:
        return []
    rows, idle = [], []
    for row in found.groups:
        if row.necessary or max(row.alone_ms, row.shapley_ms) >= _LEAST_MS:
            rows.append(_responsible(row, name))
        else:
            idle.append(f"{row.group} (budget {say_ms(row.budget_ms)})")
    rows += [f"{', '.join(idle)}: no effect on them"] if idle else []
    title = f"BREACHES {found.breaching:,} of {found.n:,} requests are over the limit"
    return [Items(title, [(row, ()) for row in rows], hang=2)]


def _by_budget(view: BudgetView, name: str) -> list[Block]:
    entries = []
    for held in view.by_budget:
        whose, n, breaching, percentile, over = said(held, name)
        entries.append(
            (
                f"{whose}: {n} requests, {breaching} over the limit, {percentile}; over its budget: {over}",
                [
                    _responsible(row, name)
                    for row in held.responsibility.groups
                    if row.necessary or row.sufficient
                ],
            )
        )
    title = "BY BUDGET, each request against the budget of its route, else of its model"
    return [Items(title, entries, hang=2)] if len(entries) > 1 else []


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
        f"{row.group}: within its budget of {say_ms(row.budget_ms)} it alone would end {row.necessary:,} of them and lower {name} by "
        f"{say_ms(row.alone_ms)}{again}. Its fair (Shapley) share is {say_ms(row.shapley_ms)} and {say_ratio(row.shapley_breaches)} of all requests"
    )
