"""cold_start: replicas that have just started answer slowly until they are warm.

Detects
    Engine or application instances that first appear after the onset, whose first minute of calls is slower by
    a factor of two than their later calls and than other instances, and that served the slow requests. A factor
    of 1.5, or of two in the first half minute alone, is enough if they clearly get faster with their age. If no
    other instance served at the same time, as after a deployment that replaces all, they must get faster with
    their age. Older instances count too if all of their calls became that slow at once and then faster with
    their age, while others kept their pace: they restarted. What is unloaded in silences is
    named by the open diagnosis (`expiry_in_silence`, `displaced`).

Why it hurts
    The first users of every new replica wait while it loads weights, compiles graphs and fills caches: scaling
    up under load makes latency worse before it gets better.

Evidence
    When each new instance was first seen, the pace of its first minute against warm calls, the share of slow
    requests that it served while cold.

Fix
    Warm pools: send synthetic requests through a new replica before it gets traffic (readiness gate), never
    scale to zero, scale early on queue depth. The gain gives cold replicas the pace of warm ones: exact.

False alarms
    An instance that stays slow is a straggler. A restart of the collector makes old instances look new: the
    instance must be absent from the baseline. A deployment during an incident gives every instance a new name:
    new instances that are no slower than others at the same time, and no faster later, are not the cause. If all
    instances restart at once under their old names, it looks like a passing overload.

Source
    First 60 s against later, ratio above 2, at least 5 calls: published default. A first call of 18 s in a captured payload.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.cold_instances import Cold, cold_instances
from overrun.analysis.evidence.observed import ENGINE_STAGES
from overrun.analysis.words.finding import (
    Diagnosis,
    NotEnoughData,
    RuledOut,
    printable,
    say_count,
    say_ratio,
)

RULE: Final = "cold_start"


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the cold instances with the gain of warm ones, None without instances that began or where they are as fast as others."""
    highest = 0.0
    for found in cold_instances(case):
        if isinstance(found, float):
            highest = max(highest, found)
            continue
        part = float(found.hit[case.tail.tail_index].mean())
        claims = {stage: part * case.excess_ms(stage) for stage in found.stages}
        if enough(case, claims):
            return _diagnosis(case, found, claims)
    said = f"new instances take {highest:.2f} times the usual time in their first minute"
    return RuledOut(what=RULE, figure=said) if highest else None


def _diagnosis(case: Case, found: Cold, claims: dict[str, float]) -> Diagnosis:
    who = ", ".join(printable(name, 30) for name in found.names[:3])
    part = float(found.hit[case.tail.tail_index].mean())
    spent = sum(case.spent(stage) for stage in found.stages)
    fix = bound_fix(
        case,
        "warm_pool",
        "Warm new replicas up before they get traffic",
        "Send a few synthetic requests of typical length through a new replica and let it report ready once their pace is normal; keep one "
        "spare warm replica, keep weights and compiled graphs on local disk, scale up earlier (on queue depth, not on GPU use).",
        "a new replica answers as fast as a warm one",
        np.where(found.hit, np.asarray(spent) * (1.0 - 1.0 / found.ratio), 0.0),
        whatif="warm_pool" if found.stages is ENGINE_STAGES else None,
    )
    return named(
        case,
        RULE,
        max(claims, key=lambda stage: claims[stage]),
        claims,
        Action(
            "platform",
            f"Take the new replicas ({who}) out of rotation until they are warm; the others serve their calls meanwhile.",
            "Restore their weight.",
            fix,
            120,
        ),
        headline=f"{say_count(len(found.names), 'instance')} that had just started ({who}) took {found.ratio:.1f} times the usual time while they were cold and served "
        f"{say_ratio(part)} of the slow requests",
        because=f"replicas that had just started ({who}) took {found.ratio:.1f} times as long",
        evidence={
            "new_instances": [printable(name) for name in found.names[:10]],
            "ratio": found.ratio,
            "young_calls": found.n,
            "share_of_slow": part,
        },
        among=np.flatnonzero(case.breaching & found.hit),
        why_no_service="several instances",
    )
