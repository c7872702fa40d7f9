"""How is a plan read in a terminal? The answer in a sentence, a line a step with its gain and price, and what else was considered."""

from __future__ import annotations

import msgspec

from overrun.analysis.front.document import Block, Document, Items, Line
from overrun.analysis.front.plan import LOST_PRICE, Considered, Plan, PlanStep
from overrun.analysis.words.finding import say_after, say_costs, say_count, say_ms, say_ratio

_MOST_OTHERS = 6


def document(found: Plan, source: str = "", again: str = "") -> Document:
    """Return what a plan says: its steps, what they gain together, the command for all of them, and what else was asked."""
    groups: list[list[Block]] = [
        [Line((f"{at}. {step.title}",), hang=0), Line((gain(found, step),), indent=3, hang=-3)]
        for at, step in enumerate(found.steps, 1)
    ]
    if found.fixes is not None:
        command = f"overrun whatif together --fixes '{found.fixes}'{source}{again}"
        groups += [
            [Line((_whole(found),), hang=0)],
            [Line((command,), "ALL AT ONCE ", copied=True)],
        ]
    others = [(other(one), ()) for one in others_of(found)[:_MOST_OTHERS]]
    groups += [[Items("ALSO ASKED", others, hang=2)]] if others else []
    return Document(groups, lead=headline(found))


def others_of(found: Plan) -> list[Considered]:
    """Return the other sets that were asked, those that meet the SLO and cost least first."""
    others = [one for one in found.considered if "+".join(one.fixes) != found.fixes]
    return sorted(others, key=lambda one: (not one.meets, one.price))


def headline(found: Plan) -> str:
    """Return the answer in a sentence."""
    if not found.steps:
        why = found.reasons.get("steps", "no fix helps")
        return f"No plan: {why}."
    name = f"{found.metric.upper()} P{found.percentile:g}"
    limit = f", limit {say_ms(found.limit_ms)}" if found.limit_ms is not None else ""
    many = say_count(len(found.steps), "step")
    result = f"{name} {say_ms(found.before_ms or 0.0)} -> {say_ms(found.after_ms or 0.0)}{limit}"
    if not found.meets:
        return f"No set of fixes meets every limit. The nearest has {many}: {result}."
    sure = "" if found.certain else ", not certain: the interval reaches over a limit"
    return f"The cheapest set that meets the SLO has {many}: {result}{sure}."


def gain(found: Plan, step: PlanStep) -> str:
    """Return what a step gains and costs."""
    one = step.predicted
    between = f" ({say_ms(one.interval[0])} to {say_ms(one.interval[1])})" if one.interval else ""
    cost = say_costs(msgspec.structs.replace(one, cost=step.cost))
    return (
        f"{found.metric.upper()} P{found.percentile:g} {say_ms(one.before)} -> {say_after(one)}{between}, "
        f"{step.method}; {f'costs {cost}' if cost else 'no cost counted'}"
    )


def _whole(found: Plan) -> str:
    good = (
        f"Requests within the SLO {say_ratio(found.goodput_before)} -> {say_ratio(found.goodput_after)}. "
        if found.goodput_before is not None and found.goodput_after is not None
        else ""
    )
    return (
        f"{good}Price {found.price:.2g} of today's serving cost, where a lost answer counts as {LOST_PRICE:g} served ones. "
        f"Over {say_count(found.requests, 'request')} since the onset."
    )


def other(one: Considered) -> str:
    """Return a set that was asked, in a line."""
    titles = " and ".join(one.titles)
    if one.after_ms is None:
        return f"{titles}: no answer ({next(iter(one.reasons.values()), 'not predicted')})"
    met = "meets the SLO" if one.meets else "does not meet the SLO"
    return f"{titles}: {say_ms(one.after_ms)}, price {one.price:.2g}, {met}"
