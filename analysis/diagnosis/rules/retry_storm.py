"""retry_storm: clients repeat calls while the first attempt still runs, and the repeats keep the engine busy.

Detects
    Model calls that repeat an earlier one (same model and prompt length within one request or session) more often than
    before, mostly without an error in between, and an engine whose added work is these repeats.

Why it hurts
    A retry of a slow call does not make it faster: it adds a second call to the queue that made it slow. Above
    a certain load this continues even after the first cause is gone.

Evidence
    Attempts per call while requests are slow, now and before; how many repeats followed an error and how many
    only slowness; correlation of the repeats of a minute with the latency of the minute before; part of the
    repeats in the growth of the engine's work while slow requests run.

Fix
    Retry on failure only (429 and 5xx), with a budget of 10 % of requests and back-off with jitter. For
    slowness hedge once and cancel the slower call. The gain is simulated if engines report their times.
    Otherwise each request loses the time of abandoned attempts, or the added time of its stages as far as the
    repeats explain it: it holds if the endpoint is as fast as before without repeats.

False alarms
    Retries of failed calls are right. An agent's steps are no repeats: each has read more than the one before.
    Retries hidden inside an SDK leave one span and are not visible here.

Source
    Amplification above 1.1 with a positive lag correlation: the 10 % retry budget of SRE practice. Metastable failures:
    Bronson et al., HotOS 2021.
"""

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.calls import MIN_CALLS
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.demand import token_costs
from overrun.analysis.evidence.lost_attempts import lag_correlation, lasted_s, lost_ms, work_of
from overrun.analysis.evidence.prefill import spread
from overrun.analysis.evidence.repeated_calls import (
    MIN_AMPLIFICATION,
    MIN_RISE,
    amplification,
    attempts,
)
from overrun.analysis.evidence.thresholds import MOST
from overrun.analysis.words.arrays import FloatArray
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, RuledOut, say_ms, say_ratio

RULE: Final = "retry_storm"
STAGES: Final = ("queue", "first_token", "prefill", "decode", "generation")


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the storm, None when calls are not repeated more than before, or only after errors."""
    while_slow, before = amplification(case)
    if while_slow < MIN_AMPLIFICATION or while_slow - before < MIN_RISE:
        return (
            RuledOut(what=RULE, figure=f"{while_slow:.2f} attempts per call, {before:.2f} before")
            if len(case.calls)
            else None
        )
    now = attempts(case.calls)
    refused = float(now.after_error[now.repeat].mean())
    lost = lost_ms(case.calls, now)
    mean_lost = float(
        np.mean([lost.get(key, 0.0) for key in case.slow["trace_key"].to_list()] or [0.0])
    )
    claims = _claims(case, mean_lost, _part(case, while_slow / before))
    if not enough(case, claims) or refused > MOST:
        return None
    lag = lag_correlation(case.calls, now)
    fix = bound_fix(
        case,
        "retries_on_error",
        "Retry on errors only, within a budget",
        "Retry 429 and 5xx only, at most 10 % of requests, with back-off min(2^n + U(0, 1), 60) s; drop retries on a slow first token, or hedge once "
        "and cancel the loser. Cancel the abandoned call so that the engine stops.",
        "the first attempt takes the time of the last one, and the endpoint is as fast as before",
        _saved_ms(case, claims, lost),
        whatif="retries",
        parameters={"policy": "on_error"},
    )
    stage = case.worst(*STAGES)
    answer = named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "app",
            "Switch off retries of slow calls (raise the client's read timeout) and keep retries of errors; a call that hangs is then given up later.",
            "Restore the former timeout.",
            fix,
        ),
        headline=(
            f"{while_slow:.2f} attempts per call while requests are slow, {before:.2f} before; {say_ratio(1.0 - refused)} of the retries "
            f"followed no refusal, and slow requests lost {say_ms(mean_lost)} with abandoned attempts"
        ),
        because=f"calls are tried {while_slow:.2f} times, mostly because the first attempt was slow",
        evidence={
            "amplification_now": while_slow,
            "amplification_before": before,
            "repeats": int(now.repeat.sum()),
            "after_error_ratio": refused,
            "lost_ms": mean_lost,
            "lag_correlation": lag,
        },
        driven=True,
    )
    return answer


def _part(case: Case, more: float) -> float:
    """Return the part (0..1) that `more` attempts a question have in the growth of the work while slow requests run, on the log scale.

    A storm that is over in half a minute is no growth of a longer period's work; 0 without a baseline, or where the engine has no more to do.
    """
    if case.calls_before is None or case.baseline is None:
        return 0.0
    before, slow = (
        side.where(side.of("engine_alone") != 1.0)
        for side in (case.calls_before, case.calls.beside(case.slow_calls))
    )
    costs = token_costs(case.calls_before, case.calls)
    each = [work_of(side, *costs) for side in (before, slow)]
    if min(len(before), len(slow)) < MIN_CALLS or not each[0] or not each[1]:
        return 0.0
    rates = len(before) / case.baseline.seconds, len(slow) / max(lasted_s(case.slow_calls), 1e-3)
    growth = each[1] * rates[1] / (each[0] * rates[0])
    return min(1.0, math.log(more) / math.log(growth)) if growth > 1.0 else 0.0


def _claims(case: Case, lost_ms: float, part: float) -> dict[str, float]:
    """The repeats' part of the busier engine, and the time lost with abandoned attempts, in proportion to the stages that grew."""
    claims = dict(spread(case, part))
    grown = {stage: case.excess_ms(stage) for stage in STAGES}
    whole = sum(grown.values())
    for stage, ms in grown.items():
        if whole > 0.0 and ms > 0.0:
            claims[stage] = min(ms, claims.get(stage, 0.0) + lost_ms * ms / whole)
    return claims


def _saved_ms(case: Case, claims: Mapping[str, float], lost: Mapping[int, float]) -> FloatArray:
    """What each request would save, shape (n,): the time of its abandoned attempts; a slow one all that it is over the others' model time, as far as the
    claims explain that. The slowest of the slow then takes as long as the slowest of the others, and so on."""
    spent = sum((case.spent(stage) for stage in STAGES), np.zeros(case.rows.height))
    saved = np.array([lost.get(key, 0.0) for key in case.rows["trace_key"].to_list()])
    slow = case.tail.tail_index
    others = np.setdiff1d(np.arange(case.rows.height), slow)
    if len(others) >= MIN_CALLS:
        part = sum(claims.values()) / max(case.excess_ms(*claims), 1e-9)
        rank = (np.argsort(np.argsort(spent[slow])) + 0.5) / len(slow)
        saved[slow] = np.maximum(
            saved[slow], min(1.0, part) * (spent[slow] - np.quantile(spent[others], rank))
        )
    least: FloatArray = np.minimum(saved, spent)
    return least
