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
from overrun.analysis.evidence.calls import MIN_CALLS
from overrun.analysis.evidence.case import Case, too_few_breaches
from overrun.analysis.evidence.repeated_calls import attempts
from overrun.analysis.evidence.span_tree import Tree
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import (
    MIN_DOMINATED,
    Diagnosis,
    NotEnoughData,
    RuledOut,
    say_ms,
    say_ratio,
)
from overrun.analysis.words.timestamps import to_us

RULE: Final = "agent_loop"
STAGES: Final = (
    "tool",
    "queue",
    "prefill",
    "decode",
    "first_token",
    "generation",
    "network",
    "retrieval",
)
# Steps that a slow request must take on the average to be a loop at all.
MIN_STEPS: Final = 2.0
# Added steps of a loop; twice the usual is one as well: an answer that was of no use (it did not validate) is asked for again. Own default.
MIN_MORE: Final = 2.0
MIN_EQUAL: Final = 3
# Share of slow requests that must be over the former P95 of steps; own default.
MIN_LOOPING: Final = 0.3


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the loops with a cap on steps, None when requests take as many steps as before."""
    if (
        not case.slow.height or _steps(case.slow, None).mean() < MIN_STEPS
    ):  # nor with their repeats left out
        return None
    again = (
        case.calls.frame.filter(pl.Series(attempts(case.calls).repeat))
        .group_by("trace_key")
        .len("again")
    )
    slow = _steps(case.slow, again) - _checks(case.slow_tree, case.slow)
    usual = _steps(case.reference, again if case.baseline is None else None) - _checks(
        case.usual_tree, case.reference
    )
    if not len(slow) or not len(usual) or slow.mean() < MIN_STEPS:
        return None
    ordinary, caps, median = _of_its_route(case, again if case.baseline is None else None)
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
    if (looping < MIN_MORE and not twice) or (over.mean() < MIN_LOOPING and alone < MIN_DOMINATED):
        said = f"{slow.mean():.1f} steps in slow and {ordinary.mean():.1f} in {case.tail.reference} requests"
        return RuledOut(what=RULE, figure=said) if more > 0.0 else None
    busier = case.facts["repeats"].excess_ms
    claims = {stage: float(ms.mean()) + busier.get(stage, 0.0) for stage, ms in added.items()}
    if not enough(case, claims) and alone < MIN_DOMINATED:
        return None
    few = too_few_breaches(case)
    if few is not None:
        return few
    equal = _equal_calls(case)
    tool = _tool(case)
    limit = max(2.0, cap)
    every = _steps(case.rows, None)
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


def _steps(rows: pl.DataFrame, again: pl.DataFrame | None) -> FloatArray:
    """Model and tool calls per request, repeats of a model call not counted."""
    steps = (rows["llm_calls"].fill_null(0) + rows["tool_calls"].fill_null(0)).cast(pl.Float64)
    if again is not None:
        steps = steps - rows.select("trace_key").join(
            again, on="trace_key", how="left", maintain_order="left"
        )["again"].fill_null(0)
    values: FloatArray = steps.to_numpy()
    return values


def _checks(tree: Tree, rows: pl.DataFrame) -> FloatArray:
    """Model calls per request that check a prompt or an answer (in a guardrail): no step that an agent takes."""
    return tree.per_request(_checked(tree).with_columns(one=pl.lit(1)), "one", rows["trace_key"])


def _checked(tree: Tree) -> pl.DataFrame:
    return tree.frame.filter(
        (pl.col("role") == "llm")
        & ((pl.col("stage") == "guardrail") | (pl.col("parent_stage") == "guardrail"))
    )


def _of_its_route(
    case: Case, again: pl.DataFrame | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the mean, P95 and median of the steps that other requests of each slow request's route take; of the reference where a route has few others.

    The requests compared with are of another route than the slow ones more often than not: an agent takes more steps than a search at any time. With a
    baseline the others are those before the onset, or those of the reference.
    Where a tool is called again with equal arguments many of the route may loop, not the slow ones alone: then twice its median is beyond the usual.
    """
    repeats = case.baseline is None and _equal_calls(case) >= MIN_EQUAL
    usual = _steps(case.reference, again) - _checks(case.usual_tree, case.reference)
    ordinary, caps, median = (
        np.full(len(case.slow), value)
        for value in (usual.mean(), np.percentile(usual, 95.0), np.median(usual))
    )
    rest = case.rows[np.setdiff1d(np.arange(case.rows.height), case.tail.tail_index)]
    if case.baseline is not None:
        earlier = rest.filter(pl.col("start_us") < to_us(case.period.start))
        rest = earlier if earlier.height else case.reference
    routes, others = (
        case.slow["route"].fill_null(""),
        rest.with_columns(pl.col("route").fill_null("")),
    )
    tree = case.tree if case.baseline is None else case.tree_before
    if (
        tree is not None and _checked(tree).height
    ):  # checks are distinguished from steps by spans, which are read of so many requests only
        others = others.filter(
            pl.col("trace_key").is_in(tree.frame["trace_key"].unique().implode())
        )
    steps = _steps(others, again) - (_checks(tree, others) if tree is not None else 0.0)
    for route in routes.unique().to_list():
        theirs = steps[(others["route"] == route).to_numpy()]
        if len(theirs) >= MIN_CALLS:
            mine = (routes == route).to_numpy()
            usually, most = (
                (np.median(theirs), 2.0 * np.median(theirs))
                if repeats
                else (theirs.mean(), np.percentile(theirs, 95.0))
            )
            ordinary[mine], caps[mine], median[mine] = (
                usually,
                min(most, float(np.percentile(theirs, 95.0))),
                np.median(theirs),
            )
    return ordinary, caps, median


def _equal_calls(case: Case) -> int:
    """Largest number of tool calls with equal tool and arguments in one slow request; 0 where neither is recorded."""
    calls = case.slow_tree.frame.filter(
        (pl.col("stage") == "tool") & pl.col("arguments").is_not_null()
    )
    if calls.is_empty():
        return 0
    counted = (
        calls.with_columns(what=pl.coalesce("tool", "name"))
        .group_by("trace_key", "what", "arguments")
        .len()["len"]
        .to_numpy()
    )
    return int(counted.max())


def _tool(case: Case) -> str | None:
    """The tool that slow requests call most."""
    names = (
        case.slow_tree.frame.filter(pl.col("stage") == "tool")
        .select(pl.coalesce("tool", "name").alias("tool"))["tool"]
        .value_counts(sort=True)
    )
    return str(names["tool"][0])[:60] if names.height else None
