"""gateway_queue: calls wait in a proxy between the application and the engine.

Detects
    Gateway time (or the gap between client and engine) that grew and grows with the number of calls in flight, while the
    engine itself is no slower.

Why it hurts
    A proxy with too few workers or connections queues in front of an idle engine, and no engine metric shows it.

Evidence
    Gateway and network time of slow and reference requests, the gap between client and engine now and before, its rank
    correlation with the calls in flight, the engine's own queue.

Fix
    Raise the proxy's workers, connections or concurrency limit, or take it out of the path of streams. The gain gives back
    the former gateway time: exact.

False alarms
    A proxy that holds back a limit on purpose protects the engine: look at the engine's queue before lifting it. A buffered
    stream is `not_streaming`.

Source
    Client minus engine gap with load: published signature; rank correlation above 0.3: own default.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case, too_few_breaches
from overrun.analysis.evidence.network_gap import engine_gaps, load_correlation
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, RuledOut, say_ms

RULE: Final = "gateway_queue"
STAGES: Final = ("gateway", "network")
MIN_CORRELATION: Final = 0.3
MIN_RATIO: Final = 2.0


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the proxy's queue with its gain, None when neither gateway nor gap grew with the load."""
    grown = sum(case.excess_ms(stage) for stage in STAGES)
    claims = {stage: case.excess_ms(stage) for stage in STAGES}
    if grown <= 0.0 or not enough(case, claims):
        return None
    gaps = engine_gaps(case)
    correlation = load_correlation(case.calls, gaps.now_ms) if gaps is not None else 0.0
    gateway = case.excess_ms("gateway") > 0.5 * grown
    if not gateway and (
        gaps is None
        or correlation < MIN_CORRELATION
        or max(gaps.ratio, gaps.slow_ratio) < MIN_RATIO
    ):
        return (
            RuledOut(
                what=RULE,
                figure=f"the gap in front of the engine follows the load by {correlation:.2f}",
            )
            if gaps is not None
            else None
        )
    few = too_few_breaches(case)
    if few is not None:
        return few
    stage = case.worst(*STAGES)
    usual = sum(case.tail.reference_ms.get(name, 0.0) for name in STAGES)
    now = sum(case.tail.tail_ms.get(name, 0.0) for name in STAGES)
    said = (
        f"; the gap follows the calls in flight (rank correlation {correlation:.2f})"
        if gaps is not None
        else ""
    )
    fix = bound_fix(
        case,
        "gateway_capacity",
        "Give the proxy more room",
        "Raise its workers, connection pool and concurrency limit (LiteLLM: --num_workers, max_parallel_requests; nginx: keepalive, worker_connections), "
        "or call the engine directly. Check the engine's queue first: it must be able to take what the proxy holds back.",
        "the proxy passes calls on as fast as before",
        np.maximum(sum(case.spent(name) for name in STAGES) - usual, 0.0),
    )
    return named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "platform",
            "Add a replica of the proxy, or route around it.",
            "Remove the extra replica.",
            fix,
        ),
        headline=f"between application and engine a slow request spends {say_ms(now)}, a {case.tail.reference} one {say_ms(usual)}{said}",
        because=f"calls wait {say_ms(now)} in front of the engine, {say_ms(usual)} {case.when}",
        evidence={
            "between_ms_slow": now,
            "between_ms_reference": usual,
            "gap_ms_now": gaps.median_ms if gaps else None,
            "gap_ms_before": gaps.before_ms if gaps else None,
            "load_correlation": correlation,
            "queue_ms_slow": case.tail.tail_ms.get("queue", 0.0),
        },
        weight=0.92 if gateway or correlation > 0.5 else 0.8,
    )
