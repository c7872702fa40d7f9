"""burst_arrivals: requests arrive in bursts and wait for each other, although the mean load fits.

Detects
    Queue time that explains the excess while the mean rate stayed within 20 % and the arrivals became bursty:
    the variance of counts over their mean is three times its former value. Or it is beyond chance and the slow
    requests arrived in the bursts.

Why it hurts
    An engine with spare capacity on average has none for fifty requests in one second. They queue, and the
    queue drains only as fast as the engine works.

Evidence
    Index of dispersion now and before (1 for independent arrivals), mean rate now and before, the share of the excess in the
    queue.

Fix
    Smooth the sender (jitter on cron jobs and retries, a token bucket), give interactive traffic priority, keep
    20-30 % spare capacity. The gain shown limits the wait to its former length: a bound.

False alarms
    A rate that follows the time of day, or drops at once, is no burst: counts are compared with their
    neighbours. Retries make their own bursts (`retry_storm`), and one tenant may send the burst
    (`noisy_tenant`). If a provider is slow at other moments than those of the bursts, the bursts are not the
    cause.

Source
    Dispersion above 3 x the baseline with the mean within 20 %: published default. Index of dispersion for counts: Cox and
    Lewis, The Statistical Analysis of Series of Events (1966). Mean square successive difference: von Neumann (1941).
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.arrival_bursts import (
    CROWDED_TIMES,
    MIN_BURSTS,
    UNLIKELY,
    arrival_dispersion,
    crowding,
)
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.prefill import spread
from overrun.analysis.evidence.tenant_load import one_tenant
from overrun.analysis.evidence.thresholds import MOST, STEADY
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, RuledOut

RULE: Final = "burst_arrivals"
STAGES: Final = ("queue", "first_token", "generation")


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the bursts, None when arrivals are as regular as before or more of them come."""
    stage = case.worst(*STAGES)
    if case.excess_ms(stage) <= 0.0:
        return None
    now, before = arrival_dispersion(case)
    if now is None:
        return None
    usual = max(before if before is not None else 1.0, 1.0)
    then = "before" if before is not None else "for independent ones"
    clear, crowd = now >= MIN_BURSTS * usual, crowding(case)
    # What is led back from a sample may be its noise: then the slow ones must have come in the crowds as well.
    clear = clear and (not case.thinned or crowd >= CROWDED_TIMES)
    # What no engine tells of may be slow at any time, however one's own requests come: those of a burst are late then, not the others.
    clear = clear and (stage == "queue" or crowd > 1.0)
    if not clear and (usual >= UNLIKELY or now < UNLIKELY or crowd < CROWDED_TIMES):
        return RuledOut(
            what=RULE, figure=f"the dispersion of arrivals is {now:.1f}, {usual:.1f} {then}"
        )
    grown = case.demand
    if grown is not None and (grown.arrivals_ratio > STEADY or grown.repeats > 0.5):
        return None
    tenant = one_tenant(case)
    if tenant is not None and tenant > MOST and grown is not None and grown.growth > STEADY:
        return None
    claims = spread(case, 1.0)
    if stage != "generation":  # an answer without a recorded first token is no wait throughout
        claims[stage] = case.excess_ms(stage)
    if not enough(case, claims):
        return None
    ratio = grown.arrivals_ratio if grown is not None else None
    limit = case.tail.reference_ms.get(stage, 0.0)
    fix = bound_fix(
        case,
        "smoothing",
        "Smooth the arrivals",
        "Add jitter to jobs that start together (cron, batch clients, reconnects), put a token bucket before the engine, give interactive requests "
        "priority (vLLM --scheduling-policy priority, SGLang --enable-priority-scheduling).",
        f"no request waits longer than {limit:,.0f} ms, as {case.when}",
        np.maximum(case.spent(stage) - limit, 0.0),
    )
    return named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "app",
            "Limit concurrency at the gateway: bursts then wait there, interactive requests first, and what the queue cannot hold is refused.",
            "Lift the limit again.",
            fix,
        ),
        headline=f"arrivals come in bursts: dispersion {now:.1f}, {usual:.1f} {then}"
        + (f", at {ratio:.2f} times the mean rate" if ratio else ""),
        because="requests come in bursts" + (" at the same mean rate" if ratio else ""),
        evidence={
            "dispersion_now": now,
            "dispersion_before": before,
            "arrivals_ratio": ratio,
            "crowding": crowd,
        },
    )
