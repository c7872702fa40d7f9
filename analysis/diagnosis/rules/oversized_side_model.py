"""oversized_side_model: a large model does a small side task (guard, classifier, router).

Detects
    Model calls beside the main one with very short outputs (up to 20 tokens) named after a guard, a classifier or a router, or
    of a model that was not called before, and those inside a guardrail (up to 100 tokens: a verdict with its reason), that take
    more than a tenth of the request and more than before.

Why it hurts
    A yes or no costs the TTFT of a large model, before every answer.

Evidence
    The side call's model and operation, its output tokens, time in slow and reference requests, share of the request, and
    whether it was there before.

Fix
    A small local model or rules (1-3 ms on a CPU), or run the check beside the main call and stop the stream if it fails. The
    gain holds the side task to 5 ms: an estimate of what a small model needs, exact for the rest.

False alarms
    A planner's short outputs are the agent's work, no side task. A guardrail that runs beside the main call costs nothing on
    the critical path and is not counted.

Source
    More than 10 % of the request with fewer than 20 output tokens: published signature; 1-3 ms local against 300 ms remote:
    published case.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.side_calls import (
    MOSTLY,
    asked_ratio,
    models_gone,
    new_models,
    of_all_before,
    side_calls,
    side_ms,
)
from overrun.analysis.evidence.thresholds import LEAST_PART
from overrun.analysis.words.finding import (
    Diagnosis,
    NotEnoughData,
    RuledOut,
    printable,
    say_ms,
    say_ratio,
)

RULE: Final = "oversized_side_model"
# What a small classifier on a CPU takes, with room: published 1-3 ms.
SMALL_MS: Final = 5.0


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the side task's model with the gain of a small one, None when side tasks are short or as before."""
    new = new_models(case.slow_tree, case.usual_tree)
    gone = models_gone(case.slow_tree, case.usual_tree)
    now, before = (
        side_ms(case.slow_tree, case.slow, new, moved=bool(gone)),
        side_ms(case.usual_tree, case.reference, gone),
    )
    if now is None:
        return None
    spent, operation, model, tokens = now
    of_slowest, before = before, of_all_before(case, gone, model, before)
    asked = case.usual_tree if before == of_slowest else case.tree_before
    if (
        before is not None
        and case.tail.reference == "baseline"
        and asked is not None
        and asked_ratio(asked, gone, model) >= MOSTLY
    ):
        return RuledOut(
            what=RULE,
            figure=f"{printable(model)} was called before as well and took {say_ms(before[0])} of a request",
        )
    usual = told = before[0] if before is not None else 0.0
    if (
        case.tail.reference != "baseline"
    ):  # what every request spends counts as usual as far as the budget of checks goes
        usual *= case.tail.kept_part("guardrail")
    whole = float((case.tail.tail_ms and sum(case.tail.tail_ms.values())) or 0.0)
    if whole <= 0.0 or spent < LEAST_PART * whole or spent - usual <= 0.0:
        return None
    stage = (
        "guardrail"
        if case.excess_ms("guardrail") > 0.5 * (spent - usual)
        else case.worst("generation", "first_token", "decode", "queue")
    )
    claims = {stage: spent - usual}
    if not enough(case, claims):
        return None
    every = case.tree.per_request(
        side_calls(case.tree, new, moved=bool(gone)),
        "duration_ms",
        case.rows["trace_key"],
        case.values,
    )
    name, what = printable(operation), printable(model)
    asks = name if what in name else f"{name} asks {what}"
    fix = bound_fix(
        case,
        "small_side_model",
        f"Use a small local model for {name}",
        f"Replace {what} by a distilled classifier or rules in the process (1-3 ms), or run it beside the main call and stop the stream on a hit.",
        f"a small model takes {say_ms(SMALL_MS)} and decides equally well",
        np.minimum(np.maximum(every - SMALL_MS, 0.0), sum(case.times.ms.values())),
    )
    return named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "app",
            f"Run {name} beside the main call, or only on routes that need it.",
            "Run it before the main call again.",
            fix,
        ),
        headline=f"{asks} for {tokens:.0f} tokens and takes {say_ms(spent)} of a slow request ({say_ratio(spent / whole)}), {say_ms(told)} of a "
        f"{case.tail.reference} one",
        because=f"{asks} takes {say_ms(spent)} for {tokens:.0f} tokens"
        if what in name
        else f"{asks} and takes {say_ms(spent)} for {tokens:.0f} tokens",
        evidence={
            "operation": name,
            "model": what,
            "output_tokens": tokens,
            "side_ms_slow": spent,
            "side_ms_reference": usual,
            "share_of_request": spent / whole,
        },
    )
