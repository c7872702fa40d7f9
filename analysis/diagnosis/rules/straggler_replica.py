"""straggler_replica: one replica is slower than its peers at the same work.

Detects
    An engine instance whose time for a call of given tokens is well above its peers' (and above its own past), and that
    served most of the slow requests.

Why it hurts
    Every request on it is slow, and a router that ignores latency sends it as many requests as the others.

Evidence
    Pace of each replica (observed over expected time, the work mix taken out) with a standard score, share of slow and of
    all calls that it served, share of load.

Fix
    Take it out of rotation and look at the host (thermal throttling, a noisy neighbour, a degraded link, another process on
    the GPU); route by latency or outstanding work. The gain replaces its pace by its peers': exact for the calls, without
    the load that the others take over.

False alarms
    Other hardware, model version or role is a different kind of replica, not a straggler: only replicas of one model are
    compared. A replica that gets more work is hot, not slow (`hot_replica`), unless it lags in batches that its peers had as well.
    One that took as much longer in like batches before has not changed: what runs there has (`mixed_lengths`).

Source
    Largest standardised residual above 4 after a regression on tokens, and 25 % slower than its peers: own defaults.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.fleet import (
    MIN_ENGINES,
    Replica,
    lag_at_equal_batch,
    lags_in_shared_batches,
    replicas,
    share_on,
)
from overrun.analysis.evidence.observed import ENGINE_STAGES
from overrun.analysis.evidence.slow_replica import lost_on, slowest
from overrun.analysis.evidence.thresholds import LONGER, STEADY
from overrun.analysis.words.finding import Diagnosis, NotEnoughData, RuledOut, printable, say_ratio

RULE: Final = "straggler_replica"
MIN_Z: Final = 4.0


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the slow replica with the gain of its peers' pace, None when all keep pace."""
    now = replicas(case.calls, case.slowest_model)
    if len(now) < MIN_ENGINES:
        return None
    before = {
        one.name: one
        for one in (
            replicas(case.calls_before, case.slowest_model) if case.calls_before is not None else []
        )
    }
    worst, slower, z = slowest(now, before)
    if slower < LONGER or z < MIN_Z:
        return RuledOut(
            what=RULE,
            figure=f"the slowest of {len(now)} replicas takes {slower:.2f} times its peers' time for the same work",
        )
    load = worst.share * len(now)
    equal = lag_at_equal_batch(case.calls, worst.name)
    # Who is full of more work slows down by more than its share of it, and how much more its peers have not shown: only like batches tell then.
    if load > STEADY and (
        slower < load or not lags_in_shared_batches(case.calls, worst.name, LONGER)
    ):
        return RuledOut(
            what=RULE,
            figure=f"{printable(worst.name)} takes {slower:.2f} times its peers' time, but has {load:.2f} times an even load",
        )
    if equal is not None and equal < LONGER:
        return RuledOut(
            what=RULE,
            figure=f"{printable(worst.name)} takes {slower:.2f} times its peers' time, but {equal:.2f} times in batches like theirs",
        )
    old = (
        lag_at_equal_batch(case.calls_before, worst.name) if case.calls_before is not None else None
    )
    if equal is not None and old is not None and equal < LONGER * old:
        return RuledOut(
            what=RULE,
            figure=f"{printable(worst.name)} takes {equal:.2f} times its peers' time in batches like theirs, {old:.2f} times before",
        )
    on_slow, on_all = share_on(case.slow_calls, worst.name), share_on(case.calls, worst.name)
    lost = lost_on(case, worst.name)
    part = max(0.0, (max(on_slow, lost) - on_all) / (1.0 - on_all)) if on_all < 1.0 else 0.0
    claims = {stage: part * case.excess_ms(stage) for stage in ENGINE_STAGES}
    if not enough(case, claims):
        return None
    return _diagnosis(case, worst, slower, z, on_slow, on_all, claims, now)


def _diagnosis(
    case: Case,
    worst: Replica,
    slower: float,
    z: float,
    on_slow: float,
    on_all: float,
    claims: dict[str, float],
    now: list[Replica],
) -> Diagnosis:
    name = printable(worst.name)
    mine = np.isin(
        case.rows["trace_key"].to_numpy(),
        case.calls.frame.filter(case.calls.frame["engine_instance"] == worst.name)[
            "trace_key"
        ].to_numpy(),
    )
    spent = sum(case.spent(stage) for stage in ("prefill", "decode", "generation"))
    queue = np.maximum(case.spent("queue") - case.tail.reference_ms.get("queue", 0.0), 0.0)
    fix = bound_fix(
        case,
        "eject",
        f"Take {name} out of rotation",
        f"Drain {name} and check its host: clocks and temperature (nvidia-smi -q -d PERFORMANCE), other processes, links. Route by least "
        "outstanding work so that a slow replica gets less.",
        "its peers serve its calls at their own pace and have spare capacity",
        np.where(mine, spent * (1.0 - 1.0 / slower) + queue, 0.0),
        whatif="eject",
        parameters={},
    )
    stage = case.slowed()
    answer = named(
        case,
        RULE,
        stage,
        claims,
        Action(
            "platform",
            f"Drain {name} (weight 0 in the load balancer); its peers take its calls and have less room.",
            "Restore its weight when it is as fast as its peers.",
            fix,
        ),
        headline=f"{name} takes {slower:.2f} times its peers' time for the same work and served {say_ratio(on_slow)} of the slow calls "
        f"({say_ratio(on_all)} of all)",
        because=f"{name} is {slower:.1f} times slower than the other replicas and served {say_ratio(on_slow)} of the slow calls",
        evidence={
            "instance": name,
            "slower": slower,
            "z": z,
            "share_of_slow": on_slow,
            "share_of_all": on_all,
            "replicas": [
                {
                    "instance": printable(one.name),
                    "n": one.calls,
                    "pace": float(np.exp(one.pace)),
                    "load_share": one.share,
                }
                for one in now
            ],
        },
        service=name,
        among=case.tail.tail_index[mine[case.tail.tail_index]],
    )
    return replace(answer, apart=True)
