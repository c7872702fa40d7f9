"""no_timeout_fallback: requests far over the limit continue, because no timeout ends them.

Detects
    Slow requests that take more than twice the limit without a second call that replaces the first. An
    opportunity: it bounds the tail for any cause, and is never the cause itself.

Why it hurts
    Without a timeout the slowest dependency decides the tail. Users have left long before.

Evidence
    Share of requests over twice the limit, the longest one, after how long callers give up, whether any request shows a fallback (a failed call followed by
    one of another model).

Fix
    A timeout on the main call with a degraded answer or a small model behind it, and cancel the loser. The gain is exact
    replay of min(time, timeout + fallback): the P99 to plan for is the timeout plus the fallback.

False alarms
    Long jobs without a waiting user need no timeout. If the timeout plus its fallback takes longer than the
    judged percentile, nothing is reported.

Source
    Timeout of 3 to 5 s with a fallback: published pattern; twice the limit: published signature.
"""

from typing import Final

import numpy as np
import polars as pl

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.repeated_calls import impatient
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import MIN_BREACHING, Diagnosis, say_limits, say_ms, say_ratio

RULE: Final = "no_timeout_fallback"
TIMES_LIMIT: Final = 2.0
# A fallback (template or small model) answers within this part of the limit; own default.
FALLBACK_OF_LIMIT: Final = 0.25
# A cut above the percentile leaves it where it is: nothing is proposed that takes less than a hundredth off it; own default.
WORTH: Final = 0.99


def diagnose(case: Case) -> Diagnosis | None:
    """Return what a timeout would buy, None when few requests are far over the limit, when something cuts them already, or when it buys nothing."""
    limits = np.asarray(case.limits_ms)
    far = case.values > TIMES_LIMIT * limits
    if (
        case.metric not in ("e2e", "ttft")
        or int(far.sum()) < MIN_BREACHING
        or _fallbacks(case) > 0.0
    ):
        return None
    saved = np.maximum(case.values - (1.0 + FALLBACK_OF_LIMIT) * limits, 0.0)
    timeout, fallback = say_limits(limits), say_limits(FALLBACK_OF_LIMIT * limits)
    fix = bound_fix(
        case,
        "timeout_fallback",
        f"End the call after {timeout} and use a fallback",
        f"Set the client's timeout to {timeout}, answer with a template, a cached answer or a small model ({fallback} assumed), cancel the "
        "call and log it.",
        f"the fallback answers within {fallback} and is good enough",
        saved,
        cost={"fallback_ratio": float((case.values > limits).mean())},
        parameters=_parameters(case.metric, limits),
        whatif="timeout_fallback" if _parameters(case.metric, limits) else None,
    )
    if fix.predicted is None or fix.predicted.after > WORTH * fix.predicted.before:
        return None
    stage = max(case.tail.tail_ms, key=lambda name: case.tail.tail_ms[name])
    ended_ms = _ended_ms(case)
    ends = (
        "no timeout ends them"
        if ended_ms is None
        else f"a timeout ends calls only after {say_ms(ended_ms)}"
    )
    return named(
        case,
        RULE,
        stage,
        {},
        Action("app", fix.title, "Remove the timeout.", fix),
        headline=(
            f"{say_ratio(float(far.mean()))} of the requests take more than {TIMES_LIMIT:.0f} times the limit, the longest "
            f"{say_ms(float(case.values.max()))}, and {ends}"
        ),
        because="no timeout ends slow requests" if ended_ms is None else ends,
        evidence={
            "far_over_ratio": float(far.mean()),
            "longest_ms": float(case.values.max()),
            "limit_ms": float(np.median(limits[np.isfinite(limits)])),
        },
        opportunity=True,
    )


def _parameters(metric: str, limits: FloatArray) -> dict[str, float | str]:
    """What the what-if of this name is asked for the same cut: none where limits differ, which it has no words for."""
    known = np.unique(limits[np.isfinite(limits)])
    if len(known) != 1:
        return {}
    return {
        "timeout_ms": float(known[0]),
        "fallback_ms": FALLBACK_OF_LIMIT * float(known[0]),
        "until": "first_token" if metric == "ttft" else "end",
    }


def _ended_ms(case: Case) -> float | None:
    """How long the calls took that their caller gave up (median); None if there are few."""
    given_up = case.calls.frame.filter(pl.col("error").fill_null(False) & impatient())
    took_ms = given_up["e2e_ms"].drop_nulls()
    return float(np.median(took_ms.to_numpy())) if len(took_ms) >= MIN_BREACHING else None


def _fallbacks(case: Case) -> float:
    """Share of slow requests with a failed call and a later one of another model."""
    calls = case.slow_calls.frame
    if not calls.height:
        return 0.0
    failed = calls.filter(pl.col("error").fill_null(False))["trace_key"]
    several = (
        calls.drop_nulls("model")
        .group_by("trace_key")
        .agg(pl.col("model").n_unique())
        .filter(pl.col("model") > 1)["trace_key"]
    )
    return len(set(failed.to_list()) & set(several.to_list())) / max(case.slow.height, 1)
