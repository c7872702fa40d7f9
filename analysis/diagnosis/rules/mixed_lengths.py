"""mixed_lengths: short answers are slow because they run beside long ones.

Detects
    Calls with short answers whose tokens are slower with more long answers in their batch. Slow ones had a
    larger share of long answers beside them than usual ones had before, and that explains their slower tokens.

Why it hurts
    Long sequences read more KV cache at every step and keep their batch slots: short answers pay for the long
    ones.

Evidence
    Share of long answers beside short ones, before and now; the time that each adds to a short answer's token,
    apart from the effects of batch size and concurrent prefill; time per token of short calls.

Fix
    Two lanes by predicted length (a router with the length predictor). The gain is simulated if the calibrated
    engine replays the recording well. Otherwise it gives short calls their former pace: a bound, with lengths
    known rather than predicted.

False alarms
    More sequences (`batch_past_knee`) and more prefill (`decode_stall`) slow short calls too: their part is taken off first. Answers
    that became longer themselves are `long_outputs`.

Source
    10 to 110 % overhead from mixing: published range. Long from four times the median, a share that rises by a tenth, a quarter of the
    slowdown explained: own defaults.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.beside_long import beside_long, per_long
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.thresholds import LEAST_PART
from overrun.analysis.evidence.token_speed import decode_parts
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import (
    MIN_LISTED,
    Diagnosis,
    NotEnoughData,
    RuledOut,
    say_ms,
    say_ratio,
)

RULE: Final = "mixed_lengths"
# Long: so many times the former median answer; all others are short. Own default.
LONG: Final = 4.0


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the mixing with its bound, None when short calls do not run beside more long ones."""
    before, parts = case.calls_before, decode_parts(case)
    if (
        before is None
        or parts is None
        or parts["speed"] <= 0.0
        or before.median("output_tokens") is None
    ):
        return None
    least = LONG * float(np.nanmedian(before.of("output_tokens")))
    all_before, all_now = beside_long(before, least), beside_long(case.calls, least)
    if all_before is None or all_now is None:
        return None
    was, now = all_before.of(case.reference), all_now.of(case.slow)
    if was is None or now is None:
        return None
    more, slower = (
        float(now.long.mean() - was.long.mean()),
        float(now.token_ms.mean() - was.token_ms.mean()),
    )
    within, slope = per_long(all_before, all_now)
    if now.share - was.share < LEAST_PART or within * more < MIN_LISTED * slower or slower <= 0.0:
        return RuledOut(
            what=RULE,
            figure=f"{say_ratio(now.share)} of the calls that run beside short answers are long, {say_ratio(was.share)} before",
        )
    part = min(1.0, slope * more / slower)
    short = (case.slow["output_tokens"] < least).fill_null(False).to_numpy()
    claims = {"decode": float(short.mean()) * part * parts["speed"]}
    if not enough(case, claims):
        return None
    mine = (case.rows["output_tokens"] < least).fill_null(False).to_numpy()
    usual_ms, slow_ms = float(was.token_ms.mean()), float(now.token_ms.mean())
    fix = bound_fix(
        case,
        "lanes",
        "Separate short and long answers",
        f"Route by predicted length: send answers of {least:,.0f} tokens and more to separate replicas.",
        "short answers have their former pace again and lengths are predicted well",
        np.where(mine, _beyond(case, usual_ms, part), 0.0),
        whatif="routing",
        parameters={"policy": "lanes"},
    )
    return named(
        case,
        RULE,
        "decode",
        claims,
        Action(
            "platform",
            "Send the route with the long answers to a separate replica, which costs a machine.",
            "Return it to the pool.",
            fix,
        ),
        headline=f"{say_ratio(now.share)} of the calls that run beside short answers are long ({say_ratio(was.share)} before), and their tokens "
        f"take {say_ms(slow_ms)} instead of {say_ms(usual_ms)}",
        because="short answers run beside more long ones",
        evidence={
            "long_share_before": was.share,
            "long_share_now": now.share,
            "token_ms_per_long": slope,
            "long_from_tokens": least,
            "short_token_ms_before": usual_ms,
            "short_token_ms_now": slow_ms,
        },
    )


def _beyond(case: Case, usual_ms: float, part: float) -> FloatArray:
    """Decode time (ms) per request over that of its tokens at the usual pace, as far as long answers explain it, shape (n,)."""
    tokens = case.rows["output_tokens"].fill_null(0).to_numpy().astype(np.float64)
    beyond: FloatArray = part * np.maximum(case.spent("decode") - usual_ms * tokens, 0.0)
    return beyond
