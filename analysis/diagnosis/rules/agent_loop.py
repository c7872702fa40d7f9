"""agent_loop: agents take more steps than they need, calling the same tool again and again.

Detects
    Requests with more tool and model calls than nearly all requests had before: more than their P95, and at
    least two more or twice as many. These added steps explain the excess. Repeated calls of one tool with equal
    arguments confirm it.

Why it hurts
    Every step is a model call, a tool call and a longer prompt for the next one: a loop multiplies all three.

Evidence
    Steps of slow and reference requests, the former P95, the largest number of equal (tool, arguments) calls in
    a request, the share of slow requests that loop, and the time of a step. If other requests are slow for
    another reason, a tenth of slow requests with added steps is enough.

Fix
    Cap the steps (two tool steps are plenty for most), detect equal calls and return the first answer, plan with a smaller
    model. The gain cuts every request at the cap: exact for time, but the answers of the requests that are cut change.

False alarms
    Harder tasks need more steps: compare by route. A retried call is no step, because it has read nothing new.
    A model's check of a prompt or an answer is no step either.

Source
    Steps above the P95 of the baseline and three equal calls: published signature. Two tool steps: published advice.
"""

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, made_slow, named
from overrun.analysis.evidence.agent_steps import (
    MIN_EQUAL,
    checks_of,
    equal_calls,
    most_called,
    of_its_route,
    steps_of,
)
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.repeated_calls import attempts
from overrun.analysis.words.finding import (
    MIN_DOMINATED,
    Diagnosis,
    NotEnoughData,
    RuledOut,
    say_ms,
    say_ratio,
)

RULE: Final = "agent_loop"
STAGES: Final = (
    *("tool", "queue", "prefill", "decode", "first_token", "generation", "network", "retrieval"),
)
# Steps that a slow request must take on the average, and more than usual, to be a loop; own default.
MIN_STEPS: Final = 2.0
# Share of slow requests that must be over the former P95 of steps; own default.
MIN_LOOPING: Final = 0.3


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the loops with a cap on steps, None when requests take as many steps as before."""
    if (
        not case.slow.height or steps_of(case.slow, None).mean() < MIN_STEPS
    ):  # nor with their repeats left out
        return None
    again = (
        case.calls.frame.filter(pl.Series(attempts(case.calls).repeat))
        .group_by("trace_key")
        .len("again")
    )
    slow = steps_of(case.slow, again) - checks_of(case.slow_tree, case.slow)
    usual = steps_of(case.reference, again if case.baseline is None else None) - checks_of(
        case.usual_tree, case.reference
    )
    if not len(slow) or not len(usual) or slow.mean() < MIN_STEPS:
        return None
    ordinary, caps, median = of_its_route(case, again if case.baseline is None else None)
    cap = float(caps.max())
    over, more = slow > caps, float((slow - ordinary).mean())
    # Of slow requests that loop, what their steps beyond the usual took; where others are slow for another reason, these are few.
    beyond = np.where(over, (slow - ordinary) / np.maximum(slow, 1.0), 0.0)
    added = {stage: beyond * case.spent(stage)[case.tail.tail_index] for stage in STAGES}
    alone = made_slow(case, sum(added.values(), np.zeros(len(slow))))
    looping = float((slow - ordinary)[over].mean()) if over.any() else 0.0
    # Without a baseline, who has twice as much to do as is typical is no news.
    twice = (
        case.baseline is not None
        and over.any()
        and slow[over].mean() >= 2.0 * max(1.0, float(median[over].mean()))
    )
    if (looping < MIN_STEPS and not twice) or (over.mean() < MIN_LOOPING and alone < MIN_DOMINATED):
        said = f"{slow.mean():.1f} steps in slow and {ordinary.mean():.1f} in {case.tail.reference} requests"
        return RuledOut(what=RULE, figure=said) if more > 0.0 else None
    busier = case.facts["repeats"].excess_ms
    claims = {stage: float(ms.mean()) + busier.get(stage, 0.0) for stage, ms in added.items()}
    if not enough(case, claims) and alone < MIN_DOMINATED:
        return None
    equal = equal_calls(case)
    tool = most_called(case)
    limit = max(2.0, cap)
    every = steps_of(case.rows, None)
    cut = np.where(every > limit, (every - limit) / np.maximum(every, 1.0), 0.0)
    saved = cut * sum(case.spent(stage) for stage in STAGES)
    fix = bound_fix(
        case,
        "step_cap",
        f"Stop after {limit:.0f} steps",
        f"Set the step limit to {limit:.0f} (max_iterations, recursion_limit) and answer with the results so far; return the earlier result when "
        f"{f'{tool} is' if tool else 'a tool is'} called again with equal arguments.",
        "an agent that is stopped can answer with its results so far",
        saved,
        cost={"cut_ratio": float((every > limit).mean())},
        whatif="step_cap",
        parameters={"steps": round(limit)},
    )
    stage = max(claims, key=lambda one: min(claims[one], case.excess_ms(one)))
    taken = float(slow[over].mean())
    repeats = (
        f", {tool or 'one tool'} up to {equal} times with equal arguments"
        if equal >= MIN_EQUAL
        else (f", most often {tool}" if tool else "")
    )
    answer = named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "app",
            f"Set the agent's step limit to {limit:.0f}; runs that need more steps end without an answer.",
            "Raise the limit again once the loop is fixed.",
            fix,
        ),
        headline=f"slow requests take {slow.mean():.1f} steps, {case.tail.reference} ones {ordinary.mean():.1f} (P95 {cap:.0f}){repeats}; one step takes "
        f"{say_ms(sum(case.tail.tail_ms.get(one, 0.0) for one in STAGES) / float(slow.mean()))}",
        because=f"agents take {taken:.0f} steps instead of {ordinary.mean():.0f}{repeats}",
        evidence={
            "steps_slow": float(slow.mean()),
            "steps_reference": float(ordinary.mean()),
            "steps_p95_reference": cap,
            "looping_ratio": float(over.mean()),
            "equal_calls": equal,
            "tool": tool,
            "share_looping": say_ratio(float(over.mean())),
        },
        dominates=alone,
    )
    # Each step reads what the former ones said.
    return answer
