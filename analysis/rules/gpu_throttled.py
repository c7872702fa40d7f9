"""gpu_throttled: the GPU runs slower than it did: lower clocks, a power or heat limit, or errors.

Detects
    GPU clocks that fell by more than 10 %, temperature or power at their limit, or XID errors since the onset, on engines
    whose tokens or prefill became slower at equal batch sizes.

Why it hurts
    Every kernel takes longer in proportion to the clock; nothing in the requests or in the engine's settings shows why.

Evidence
    Clocks, power, temperature and XID errors before and now, time per token at equal batch sizes.

Fix
    Cool, raise the power limit (nvidia-smi -pl), take the host out of rotation, replace the card after XID errors. The gain
    gives prefill and decode their former pace.

False alarms
    An idle GPU lowers its clocks by itself: the fall must come with slower tokens. Without DCGM metrics the rule says nothing.

Source
    Clocks, power or XID from DCGM at the onset: published signature; a fall of 10 %: own default.
"""

from typing import Final

import numpy as np

from analysis.case import Case, too_few_breaches
from analysis.cause import Action, bound_fix, enough, named
from analysis.finding import Diagnosis, NotEnoughData, RuledOut, say_ratio
from analysis.rules.batch_past_knee import same_batch_pace
from analysis.speed import decode_parts

RULE: Final = "gpu_throttled"
MIN_FALL: Final = 0.1
MIN_SLOWER: Final = 1.1


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the throttled GPU, None when clocks and tokens kept their pace."""
    before = case.calls_before
    if before is None or not case.calls.has_engine.any():
        return None
    clocks = case.gauge("gpu_clock", before=True), case.gauge("gpu_clock")
    errors = float(case.gauge("gpu_xid").max(initial=0.0)) > float(case.gauge("gpu_xid", before=True).max(initial=0.0))
    fell = 1.0 - float(np.min(clocks[1])) / max(float(np.median(clocks[0])), 1e-9) if min(len(side) for side in clocks) else 0.0
    pace = same_batch_pace(before, case.calls)
    if fell < MIN_FALL and not errors:
        return RuledOut(what=RULE, figure=f"GPU clocks are {say_ratio(1.0 - fell)} of what they were") if len(clocks[1]) else None
    if pace is not None and pace < MIN_SLOWER:
        return RuledOut(what=RULE, figure=f"tokens take {pace:.2f} times as long at equal batch sizes")
    parts = decode_parts(case)
    slower = parts["speed"] if parts is not None else case.excess_ms("decode")
    claims = {"decode": slower, "prefill": case.excess_ms("prefill"), "queue": case.excess_ms("queue")}
    if not enough(case, claims):
        return None
    few = too_few_breaches(case)
    if few is not None:
        return few
    ratio = pace or 1.0 / max(1.0 - fell, 0.1)
    heat = [float(np.median(side)) if len(side) else None for side in (case.gauge("gpu_temperature", before=True), case.gauge("gpu_temperature"))]
    power = [float(np.median(side)) if len(side) else None for side in (case.gauge("gpu_power", before=True), case.gauge("gpu_power"))]
    said = f"GPU clocks fell by {say_ratio(fell)}" if fell >= MIN_FALL else "the GPU reports XID errors"
    fix = bound_fix(
        case, "eject", "Take the throttled host out of rotation",
        "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER names the limit: check cooling and the power cap (nvidia-smi -pl), drain the node, and replace the "
        "card if XID errors return.",
        "prefill and decode run at their former pace", (1.0 - 1.0 / max(ratio, 1.0)) * (case.spent("prefill") + case.spent("decode")))
    return named(
        case, RULE, case.slowed(), claims,
        Action("platform", "Drain the replica on that GPU.", "Return it when the clocks are back.", fix),
        headline=f"{said}{f', and tokens take {pace:.2f} times as long at equal batch sizes' if pace else ''}",
        because=said,
        evidence={
            "clock_fall": fell, "clock_before": float(np.median(clocks[0])) if len(clocks[0]) else None,
            "clock_now": float(np.min(clocks[1])) if len(clocks[1]) else None, "xid_errors": errors, "same_batch_pace": pace,
            "temperature_before": heat[0], "temperature_now": heat[1], "power_before": power[0], "power_now": power[1]},
        weight=0.98)
