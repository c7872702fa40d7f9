"""slower_engine: your own engine takes longer for each token than before, at the same load, and nothing that it reports explains it.

Detects
    Time per output token of an engine with telemetry that is clearly above the former one among calls that met batches of
    the same size, and above what the former line over batch and prefill gives for today's.

Why it hurts
    Every answer takes longer, and the engine serves fewer calls a second: what was enough capacity becomes a queue.

Evidence
    Time per token at equal load, now over before, with its interval; the part of waiting and writing that goes with it, apart from
    the growth of the work; arrivals and tokens of a call, now and before.

Fix
    Compare version, flags, quantisation, driver and clocks with those before the onset. Look for another process on the GPU or
    the CPU cores, a CPU quota, thermal limits, a debug or tracing flag. How much that gains is what the former pace gives.

False alarms
    What explains a slower pace comes first: lower clocks (`gpu_throttled`), one replica alone (`straggler_replica`), prompts that
    stop answers (`decode_stall`), pauses (`engine_pauses`), drafts (`speculation_not_paying`), another model (`model_changed`),
    a full KV cache (`kv_pressure`). At a provider the same is `token_rate_sag`.

Source
    Pace at equal batch sizes 1.2 times the former one, by both comparisons: own default. How busy an engine is, is work times time
    per work; the waiting is split between the two on the log scale.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.prefill import by_work, spread
from overrun.analysis.words.finding import Diagnosis, RuledOut, say_ratio

RULE: Final = "slower_engine"


def diagnose(case: Case) -> Diagnosis | RuledOut | None:
    """Return the slower engine with the gain of its former pace, None without engine times or a baseline."""
    fact, by = case.facts["pace_equal_load"], case.slower_engine
    if fact.now is None or not case.calls.has_engine.any():
        return None
    if by <= 1.0:
        figure = f"a token takes {fact.now.value:.2f} times as long as before at equal load"
        return RuledOut(what=RULE, figure=figure)
    grown, work = spread(case, 1.0), by_work(case)
    claims = {stage: ms - work.get(stage, 0.0) for stage, ms in grown.items()}
    if case.demand is None:
        claims = {"decode": fact.excess_ms.get("decode", 0.0)}
    if not enough(case, claims):
        return None
    said = f"each token of the engine takes {by:.2f} times as long as before at the same load"
    writing = case.spent("decode") * (1.0 - 1.0 / by)
    fix = bound_fix(
        case,
        "former_pace",
        "Find what slows the engine down",
        "Compare its version, flags, quantisation, driver and clocks with those before the onset; look for another process on its GPU or CPU cores, a CPU quota, "
        "thermal limits, and debug or tracing flags.",
        "tokens come at the former pace (the waiting that this ends is not counted)",
        np.asarray(writing),
    )
    action = Action(
        "platform",
        "Roll back what changed on the engine's machines, or send part of the calls to other replicas.",
        "Send them back when the former pace is back.",
        fix,
    )
    return named(
        case,
        RULE,
        max(claims, key=lambda stage: claims[stage]),
        claims,
        action,
        headline=said
        + (
            f" ({fact.change_interval[0]:.2f} to {fact.change_interval[1]:.2f})"
            if fact.change_interval
            else ""
        ),
        because=said,
        evidence={
            "pace_at_equal_load": fact.now.value,
            "pace_interval": fact.change_interval,
            "work_ratio": case.demand.growth if case.demand else None,
            "decode_share": say_ratio(case.tail.share("decode")),
        },
        why_no_service="all replicas are slower",
    )
