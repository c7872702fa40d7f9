"""prompt_bloat: prompts have become longer, and reading them takes the added time.

Detects
    Input tokens per request that grew (a longer system prompt, more passages, a history that is never cut), while cache and
    reading speed stayed as they were, and whose prefill explains the excess.

Why it hurts
    Prefill grows with every uncached token, and so does the KV memory that a request holds to its end. Other
    requests wait for both.

Evidence
    Input tokens of all calls, and of slow and reference requests with Cliff's delta; growth of input per turn of a session
    where turns are recorded; milliseconds per new token; the part of the excess from longer input, apart from cache and speed.

Fix
    Trim the prompt, keep two to four raw turns and summarise the rest (the summarising call costs time of its own), set a
    hard context limit, move long documents off the interactive path. The gain takes the added tokens off each request at the
    measured cost of a token: a bound.

False alarms
    A new route with longer prompts is a change of traffic: compare by route. Longer prompts that are in the cache cost
    little, and are not counted.

Source
    Prefill explained by uncached input: own split, at least a quarter of the excess (a tenth where the prompts of all calls
    grew by a tenth and more: own defaults). A system prompt above 1,000 tokens as a tax, two to four raw turns: published
    advice. Effect size: Cliff, Psychological Bulletin 114 (1993).
"""

from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.calls import Calls, known
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.demand import MIN_GROWTH, lost_and_longer, slope
from overrun.analysis.evidence.prefill import LONGER_PROMPTS, Reading, reading
from overrun.analysis.numbers.statistics.effect_size import MIN_CLIFF, cliffs_delta
from overrun.analysis.words.finding import (
    MIN_LISTED,
    MIN_SHIFTED,
    Diagnosis,
    NotEnoughData,
    RuledOut,
    say_ms,
    say_ratio,
)

RULE: Final = "prompt_bloat"


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the longer prompts with their bound, None when input did not grow or does not explain the excess."""
    found = reading(case)
    if found is None:
        if max(case.tail.share("prefill"), case.tail.share("first_token")) < 0.5:
            return None
        return NotEnoughData(
            "the first token takes longer, but calls carry no input token counts: record gen_ai.usage.input_tokens"
        )
    # What the cache holds costs nothing to read: where it is known, growth is measured on the rest. A prompt that is asked again is no longer one.
    slow, usual = (
        _longest(case.slow_calls) or found.input_slow,
        _longest(case.usual_calls) or found.input_usual,
    )
    _, longer = lost_and_longer(
        usual,
        usual * (1.0 - (found.hit_usual or 0.0)),
        slow,
        slow * (1.0 - (found.hit_slow or 0.0)),
    )
    more = longer / max(usual * (1.0 - (found.hit_usual or 0.0)), 1.0)
    sides = [
        rows["input_tokens"].drop_nulls().to_numpy().astype(np.float64)
        for rows in (case.slow, case.reference)
    ]
    delta, everyone = cliffs_delta(sides[0], sides[1]), _everyone(case)
    if everyone is None and max(slow / max(usual, 1.0), 1.0 + more) < LONGER_PROMPTS:
        return RuledOut(
            what=RULE,
            figure=f"{found.input_slow:,.0f} input tokens in slow and {found.input_usual:,.0f} in {case.tail.reference} requests",
        )
    claims = case.facts.excess("input", "input_slow")
    tokenised = _tokenised_ms(case, slow - usual)
    if tokenised > 0.0:
        claims["network"] = tokenised
    if claims.get("generation", 0.0) > claims.get(found.stage, 0.0):  # no first token was recorded
        found = found._replace(stage="generation")
    least = MIN_SHIFTED if everyone is not None else MIN_LISTED
    if (everyone is None and delta < MIN_CLIFF) or not enough(case, claims, least):
        return None
    return _diagnosis(case, found, delta, claims, everyone)


def _tokenised_ms(case: Case, more: float) -> float:
    """What the front end of the engine takes for so many more prompt tokens, where the gap in front of the engine is mostly a call's own work; else 0."""
    front = case.front_end
    return 0.0 if front is None or front.waits else max(0.0, more) * front.token_ms


def _everyone(case: Case) -> tuple[float, float] | None:
    """Return the mean input of all calls before and now where all have clearly more to read; None otherwise.

    Thousands of calls tell a growth that the few slow ones, chosen for being slow before as well, do not: it counts as the growth of any other work.
    """
    (now, before), work = case.served, case.demand
    if before is None or work is None or 1.0 + work.longer_ratio < MIN_GROWTH:
        return None
    sides = [side.of("input_tokens")[known(side.of("input_tokens"))] for side in (now, before)]
    return (
        (float(sides[1].mean()), float(sides[0].mean()))
        if cliffs_delta(sides[0], sides[1]) >= MIN_CLIFF
        else None
    )


def _diagnosis(
    case: Case,
    found: Reading,
    delta: float,
    claims: dict[str, float],
    everyone: tuple[float, float] | None,
) -> Diagnosis:
    n_in = case.rows["input_tokens"].fill_null(0).to_numpy().astype(np.float64)
    limit = max(1.0, found.input_usual)
    new_ratio = 1.0 - (found.hit_usual or 0.0)
    saved = np.minimum(
        case.spent(found.stage), np.maximum(n_in - limit, 0.0) * new_ratio * found.token_ms
    )
    per_turn = turn_growth(case.mine)
    turns = (
        f", {say_ratio(per_turn)} more with every turn"
        if per_turn is not None and per_turn > 0.0
        else ""
    )
    fix = bound_fix(
        case,
        "context_limit",
        f"Limit the prompt to {limit:,.0f} tokens",
        f"Prompts grew from {found.input_usual:,.0f} to {found.input_slow:,.0f} tokens{turns}. Cut the history to the last 2-4 turns and a "
        f"summary, pass fewer passages, and refuse or reroute prompts above {limit:,.0f} tokens.",
        f"no prompt is longer than {limit:,.0f} tokens (engine time that this frees is not counted)",
        saved,
        cost={"trimmed_ratio": float((n_in > limit).mean())},
        whatif="context_limit",
        parameters={"max_input_tokens": round(limit)},
    )
    answer = named(
        case,
        RULE,
        found.stage,
        claims,
        Action(
            "app",
            f"Cut the history or the passages so that prompts stay below {limit:,.0f} tokens; the model then sees less of the conversation.",
            "Restore the former prompt.",
            fix,
        ),
        headline=(
            f"prompts of all calls have {everyone[1]:,.0f} tokens, {everyone[0]:,.0f} before; "
            if everyone is not None
            else ""
        )
        + f"prompts of slow requests have {found.input_slow:,.0f} tokens, {found.input_usual:,.0f} in {case.tail.reference} ones{turns}. "
        f"Reading the difference takes {say_ms(found.input_ms)}",
        because=f"prompts have {found.input_slow:,.0f} tokens instead of {found.input_usual:,.0f}"
        if delta >= MIN_CLIFF or everyone is None
        else f"prompts of all calls have {everyone[1]:,.0f} tokens instead of {everyone[0]:,.0f}",
        evidence={
            "input_tokens_slow": found.input_slow,
            "input_tokens_reference": found.input_usual,
            "cliffs_delta": delta,
            "prefill_ms_per_new_token": found.token_ms,
            "input_ms": found.input_ms,
            "cache_ms": found.cache_ms,
            "speed_ms": found.speed_ms,
            "input_tokens_all": None if everyone is None else list(everyone),
            "hit_ratio_slow": found.hit_slow,
            "hit_ratio_reference": found.hit_usual,
            "growth_per_turn": per_turn,
        },
    )
    return replace(
        answer,
        least=MIN_LISTED if everyone is None else MIN_SHIFTED,
    )


def _longest(calls: Calls) -> float | None:
    """Return the mean over requests of their longest prompt in tokens, None if calls do not report it."""
    longest = (
        calls.frame.group_by("trace_key")
        .agg(pl.col("input_tokens").max())["input_tokens"]
        .drop_nulls()
        .to_numpy()
    )
    return float(longest.mean()) if len(longest) else None


def turn_growth(calls: Calls) -> float | None:
    """Return by what ratio the input grows from turn to turn (slope of ln n_in over the turn), None where turns are not recorded."""
    turn, n_in = calls.of("turn"), calls.of("input_tokens")
    both = known(turn, n_in) & (n_in > 0)
    if int(both.sum()) < 30 or len(np.unique(turn[both])) < 3:
        return None
    return float(np.expm1(slope(turn[both], np.log(n_in[both]))))
