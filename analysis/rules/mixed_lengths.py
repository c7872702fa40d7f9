"""mixed_lengths: short answers are slow because they run beside long ones.

Detects
    Calls with short answers whose time per token rises with the share of long ones in their batch, where that share grew
    although the batch did not, and their added time explains the excess.

Why it hurts
    Long sequences read more KV cache at every step and hold their seats: whoever asks briefly pays for whoever asks at length.

Evidence
    Share of long answers beside short ones, before and now; rank correlation of a short call's time per token with it at equal
    batch sizes; time per token of short calls.

Fix
    Two lanes by predicted length (a router with the length predictor), or priority for short work. The gain gives short calls
    their former pace: a bound, with lengths known rather than predicted.

False alarms
    More sequences (`batch_past_knee`) and more prefill (`decode_stall`) slow short calls too and come first. Answers that
    became longer themselves are `long_outputs`.

Source
    10 to 110 % overhead from mixing: published range. Rank correlation above 0.4: own default.
"""

from typing import Final

import numpy as np

from analysis.budget import BoolArray, FloatArray
from analysis.calls import MIN_CALLS, Calls, known
from analysis.case import Case, too_few_breaches
from analysis.cause import Action, bound_fix, enough, named
from analysis.finding import Diagnosis, NotEnoughData, RuledOut, say_ms, say_ratio
from analysis.overlap import Flow
from analysis.rules.serial_orchestrator import rank_correlation
from analysis.speed import decode_parts

RULE: Final = "mixed_lengths"
# Long: over the former P90; short: up to the former median; own defaults.
LONG, SHORT = 90.0, 50.0
MIN_CORRELATION: Final = 0.4
MIN_RISE: Final = 0.1


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the mixing with its bound, None when short calls do not run beside more long ones."""
    before, parts = case.calls_before, decode_parts(case)
    if before is None or parts is None or parts["speed"] <= 0.0 or min(len(before), len(case.calls)) < MIN_CALLS or not known(before.of("output_tokens")).any():
        return None
    low, high = (float(q) for q in np.nanpercentile(before.of("output_tokens"), [SHORT, LONG]))
    sides = [_beside(calls, low, high) for calls in (before, case.calls)]
    if any(side is None for side in sides):
        return None
    (share0, token0), (share1, token1) = ((side[0], side[1]) for side in sides if side is not None)
    rise, follows = float(share1.mean() - share0.mean()), rank_correlation(token1, share1)
    if rise < MIN_RISE or follows < MIN_CORRELATION:
        shares = [say_ratio(float(share.mean())) for share in (share1, share0)]
        return RuledOut(what=RULE, figure=f"{shares[0]} of what runs beside short answers is long, {shares[1]} before")
    short = (case.slow["output_tokens"] <= low).fill_null(False).to_numpy()
    claims = {"decode": float(short.mean()) * parts["speed"]}
    if not enough(case, claims):
        return None
    few = too_few_breaches(case)
    if few is not None:
        return few
    mine = (case.rows["output_tokens"] <= low).fill_null(False).to_numpy()
    slower = max(0.0, 1.0 - float(np.median(token0)) / max(float(np.median(token1)), 1e-9))
    fix = bound_fix(
        case, "lanes", "Give short and long answers lanes of their own",
        f"Route by predicted length: answers over {high:,.0f} tokens to replicas of their own, or give short work priority (vLLM "
        "--scheduling-policy priority, SGLang --enable-priority-scheduling).",
        "short answers come at their former pace, and lengths are predicted well", np.where(mine, slower * case.spent("decode"), 0.0))
    return named(
        case, RULE, "decode", claims,
        Action("platform", "Send the route with the long answers to one replica of its own.", "Return it to the pool.", fix),
        headline=f"{say_ratio(float(share1.mean()))} of what runs beside short answers is long ({say_ratio(float(share0.mean()))} before), and their tokens "
        f"take {say_ms(float(np.median(token1)))} instead of {say_ms(float(np.median(token0)))}",
        because="short answers run beside more long ones",
        evidence={
            "long_share_before": float(share0.mean()), "long_share_now": float(share1.mean()), "correlation": follows, "short_up_to_tokens": low,
            "long_from_tokens": high, "short_token_ms_before": float(np.median(token0)), "short_token_ms_now": float(np.median(token1))},
        weight=0.7)


def _beside(calls: Calls, low: float, high: float) -> tuple[FloatArray, FloatArray] | None:
    """Per short call: the share of long answers in its batch, and its time per token; None below 30 of them."""
    out = calls.of("output_tokens")
    usable = known(out, calls.token_ms, calls.running) & calls.has_engine
    share = np.full(len(calls), np.nan)
    for engine in np.unique(calls.engine):
        mine: BoolArray = usable & (calls.engine == engine)
        long = mine & (out > high)
        if mine.any():
            flow = Flow(calls.first_s[long], calls.last_s[long], (calls.last_s - calls.first_s)[long])
            seconds = np.maximum(calls.last_s[mine] - calls.first_s[mine], 1e-3)
            share[mine] = flow.between(calls.first_s[mine], calls.first_s[mine] + seconds) / seconds / np.maximum(calls.running[mine], 1.0)
    chosen = usable & (out <= low) & known(share)
    return (share[chosen], calls.token_ms[chosen]) if int(chosen.sum()) >= MIN_CALLS else None
