"""gpu_throttled: the GPU is slower than before: lower clocks, a power or heat limit, or errors.

Detects
    GPU clocks that fell by more than 10 %, or XID errors since the onset, on engines whose tokens became slower
    at equal batch sizes. Without clocks: even the fastest calls take longer in prefill and in decode, by the
    same factor, at equal work.

Why it hurts
    Every kernel takes longer, at most in proportion to the clock. Nothing in the requests or in the engine's
    settings shows the reason. A slowdown beyond that comes from a busier engine: it is split between the clocks
    and the growth of the work, on the log scale.

Evidence
    Clocks, power, temperature and XID errors before and now, time per token at equal batch sizes. Without them:
    the slowdown factor of the fastest calls.

Fix
    Cool, raise the power limit (nvidia-smi -pl), take the host out of rotation, replace the card after XID errors. The gain
    gives prefill and decode their former pace.

False alarms
    An idle GPU lowers its clocks by itself: the fall must coincide with slower tokens. Without DCGM metrics
    another process on the GPU, another build of the engine or another quantisation look the same: the finding
    reports that, and what to record.

Source
    Clocks, power or XID from DCGM at the onset: published signature. A fall of 10 %, and 1.2 times as long for
    the fastest calls: own defaults.
"""

import math
from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.gpu_clocks import MIN_FALL
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, RuledOut, say_ratio

RULE: Final = "gpu_throttled"


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the throttled GPU, None when clocks and tokens kept their pace."""
    if case.calls_before is None or not case.calls.has_engine.any():
        return None
    found = case.clocks
    if not found.lower:
        return (
            RuledOut(
                what=RULE,
                figure=f"GPU clocks are at {say_ratio(1.0 - found.fell)} of their former value",
            )
            if found.known
            else None
        )
    if found.ratio <= 1.0:
        return RuledOut(
            what=RULE, figure=f"tokens take {found.pace:.2f} times as long at equal batch sizes"
        )
    claims = case.facts["clock"].excess_ms
    if not enough(case, claims):
        return None
    heat, power = (
        [
            float(np.median(side)) if len(side) else None
            for side in (case.gauge(name, before=True), case.gauge(name))
        ]
        for name in ("gpu_temperature", "gpu_power")
    )
    saved = 1.0 - 1.0 / found.ratio if math.isfinite(found.ratio) else 0.0
    inferred = found.quick > 1.0
    said = (
        f"the engine's machine is slower: even its fastest calls take {found.quick:.2f} times as long in prefill and decode"
        if inferred
        else f"GPU clocks fell by {say_ratio(found.fell)}"
        if found.fell >= MIN_FALL
        else "the GPU reports XID errors"
    )
    fix = bound_fix(
        case,
        "eject",
        "Take the throttled host out of rotation",
        "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER shows the limit. Check cooling and the power cap (nvidia-smi -pl), drain the node, and replace the "
        "card if XID errors return.",
        "prefill and decode run at their former pace",
        saved * (case.spent("prefill") + case.spent("decode")),
    )
    return named(
        case,
        RULE,
        case.slowed(),
        claims,
        Action(
            "platform",
            "Drain the replica on that GPU; the others take its calls and have less room.",
            "Return it when the clocks are normal again.",
            fix,
        ),
        headline=said
        + (
            " (lower clocks, another process on the GPU, or another build of the engine; scrape DCGM to see which)"
            if inferred
            else f", and tokens take {found.pace:.2f} times as long at equal batch sizes"
            if found.pace
            else ""
        ),
        because=said,
        evidence={
            "clock_fall": None if inferred else found.fell,
            "quick_pace": found.quick if inferred else None,
            "clock_before": found.before,
            "clock_now": found.now,
            "xid_errors": found.errors,
            "same_batch_pace": found.pace,
            "temperature_before": heat[0],
            "temperature_now": heat[1],
            "power_before": power[0],
            "power_now": power[1],
        },
    )
