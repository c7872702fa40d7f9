"""reasoning_inflation: the model reasons longer before it answers, and that takes the added time.

Detects
    Reasoning tokens per request that grew and whose time at the usual pace explains the excess, while the
    visible answers kept their length.

Why it hurts
    Reasoning tokens are generated one by one like all others, but before the user sees anything: ten times the
    reasoning is ten times the wait for the first word.

Evidence
    Reasoning and visible tokens of slow and reference requests, their share of all output, time per token, and the part of
    the excess that the added reasoning takes.

Fix
    Limit the reasoning effort (reasoning.effort, thinking budget), send only hard questions to a reasoning
    model, give such traffic its own SLO. The gain takes the added reasoning off each request at its own pace.
    Its effect on the quality of answers is not in these data.

False alarms
    Harder questions need more reasoning: compare by route. If reasoning tokens are not reported, output tokens
    that do not fit after the first visible one replace them. If output tokens leave them out too, answers just
    seem to start later.

Source
    Reasoning share up by 10 points and a quarter of the excess: own defaults. 200 to 5,000 and more reasoning tokens, 10-50
    times the latency: published observations.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.hidden_reasoning import unsaid_thought
from overrun.analysis.evidence.reasoning_share import MIN_SHARE_RISE, reasoned
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, say_ms, say_ratio

RULE: Final = "reasoning_inflation"


def diagnose(case: Case) -> Diagnosis | NotEnoughData | None:
    """Return the longer reasoning with its bound, None when reasoning did not grow or does not explain the excess."""
    unsaid, found = _unsaid(case), reasoned(case)
    if unsaid is not None or found is None:
        return unsaid
    stage, token_ms = found.stage, found.token_ms
    r1, r0, n1, n0 = found.slow, found.reference, found.output_slow, found.output_reference
    of_all = case.facts["reasoning"]
    mostly = r1 / n1 - r0 / n0 >= MIN_SHARE_RISE or (r1 - r0) >= 0.5 * (n1 - n0)
    if not of_all.excess_ms and (r1 <= r0 or not mostly):
        return None
    claims = case.facts.excess("reasoning", "reasoning_slow")
    if not enough(case, claims):
        return None
    reasoning = case.rows["reasoning_tokens"].fill_null(0).to_numpy().astype(np.float64)
    limit = max(1.0, r0)
    fix = bound_fix(
        case,
        "reasoning_effort",
        f"Limit reasoning to {limit:,.0f} tokens",
        "Set the reasoning effort one step lower or give a thinking budget; send only hard questions to the reasoning model.",
        "answers stay good enough with less reasoning (engine time that this frees is not counted)",
        np.minimum(case.spent(stage), np.maximum(reasoning - limit, 0.0) * token_ms),
        cost={"limited_ratio": float((reasoning > limit).mean())},
        whatif="reasoning_effort",
        parameters={
            "factor": round(
                float(np.minimum(reasoning, limit).sum() / max(reasoning.sum(), 1.0)), 3
            )
        },
    )
    return named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "app",
            "Set the reasoning effort to low on interactive routes; answers to hard questions get worse.",
            "Restore the former effort.",
            fix,
            600,
        ),
        headline=f"slow requests reason for {r1:,.0f} tokens ({say_ratio(r1 / n1)} of their output), {case.tail.reference} ones for {r0:,.0f} "
        f"({say_ratio(r0 / n0)}); the difference takes {say_ms((r1 - r0) * token_ms)}",
        because=f"the model reasons for {r1:,.0f} tokens instead of {r0:,.0f}",
        evidence={
            "reasoning_tokens_slow": r1,
            "reasoning_tokens_reference": r0,
            "output_tokens_slow": n1,
            "output_tokens_reference": n0,
            "reasoning_share_slow": r1 / n1,
            "reasoning_share_reference": r0 / n0,
            "token_ms": token_ms,
        },
    )


def _unsaid(case: Case) -> Diagnosis | NotEnoughData | None:
    """The longer thought of which only the output tokens tell that do not fit after the first visible one; the gain takes it off those that wait for it."""
    found = unsaid_thought(case)
    if found is None:
        return None
    claims = {"first_token": min(case.excess_ms("first_token"), found.added * found.token_ms)}
    if not enough(case, claims):
        return None
    usual = case.tail.reference_ms.get("first_token", 0.0)
    fix = bound_fix(
        case,
        "reasoning_effort",
        "Limit reasoning to its former length",
        "Set the reasoning effort one step lower or give a thinking budget; record reasoning tokens to see its length.",
        "answers stay good enough with less reasoning",
        np.maximum(case.spent("first_token") - usual, 0.0),
    )
    answer = named(
        case,
        RULE,
        "first_token",
        claims,
        Action(
            "app",
            "Set the reasoning effort to low on interactive routes; answers to hard questions get worse.",
            "Restore the former effort.",
            fix,
            600,
        ),
        headline=(
            f"slow requests count {found.slow:,.0f} output tokens, {case.tail.reference} ones {found.reference:,.0f}, and {found.added:,.0f} of "
            f"the difference must come before the first visible token, where they take {say_ms(found.added * found.token_ms)}"
        ),
        because=f"the model writes {found.added:,.0f} more tokens before the first visible one; only reasoning does that (reasoning tokens are not reported)",
        evidence={
            "output_tokens_slow": found.slow,
            "output_tokens_reference": found.reference,
            "unsaid_tokens": found.added,
            "token_ms": found.token_ms,
        },
    )
    return answer
