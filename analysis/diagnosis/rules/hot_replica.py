"""hot_replica: the load is uneven: requests wait on the busiest replica while others have spare capacity.

Detects
    A share of the engine work that rose clearly (beyond its interval) to 1.5 times an even one; a smaller share if the waits
    of the busiest replica stand out. Its requests wait longer or
    decode slower, at the same pace per batch size as its peers. If the shares were as uneven before: waits
    that stand out on this replica alone.

Why it hurts
    A request is as fast as the replica that serves it. With wrong affinity or hashing, one replica queues while
    three are idle.

Evidence
    Share of work, waits and pace of every replica, Gini now and before, the part of the slow calls that the hot one served.

Fix
    Route by least outstanding work with prefix affinity as a preference, not a rule; cap the sessions per
    replica. The gain gives the hot replica's requests the waits and pace of the others: a bound, because the
    others become busier.

False alarms
    A replica that is slow at the same load is a straggler. Small fleets with few calls are uneven by chance: at
    least 20 calls per replica are needed.

Source
    A share above an even one and above its former value, beyond its 95 % interval; then 1.5 times an even share, or waits four times every
    other replica's: own defaults. Length- and load-aware routing lowers P99 by 25 to 69 %: published range.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.case import Case
from overrun.analysis.evidence.fleet import MIN_ENGINES, Replica, gini, replicas, share_on
from overrun.analysis.evidence.thresholds import MUCH_MORE
from overrun.analysis.words.finding import (
    Diagnosis,
    NotEnoughData,
    RuledOut,
    printable,
    say_ms,
    say_ratio,
)

RULE: Final = "hot_replica"
# Mean wait in ms, and how many times every other replica's, from which the waits show it at any share above an even one; own defaults.
MIN_WAIT_MS: Final = 20.0
MIN_WAIT_RATIO: Final = 4.0


def diagnose(case: Case) -> Diagnosis | NotEnoughData | RuledOut | None:
    """Return the replica that has too much, None when the load is even or was as uneven before."""
    now = replicas(case.calls, case.slowest_model)
    if len(now) < MIN_ENGINES:
        return None
    before = (
        replicas(case.calls_before, case.slowest_model) if case.calls_before is not None else []
    )
    uneven, was = gini([one.share for one in now]), gini([one.share for one in before])
    hot = max(now, key=lambda one: one.share)
    share = case.facts["replica_share"]
    above = share.now is not None and (share.now.interval or (0.0,))[0] * len(now) > 1.0
    grew = share.change is None or (bool(share.clear) and share.change > 0.0)
    much = grew and hot.share * len(now) >= MUCH_MORE
    if not above or not (much or waits_stand_out(hot, now)):
        return RuledOut(
            what=RULE,
            figure=f"the busiest of {len(now)} replicas has {say_ratio(hot.share)} of the work (Gini {uneven:.2f}, {was:.2f} before)",
        )
    on_slow, on_all = share_on(case.slow_calls, hot.name), share_on(case.calls, hot.name)
    claims = case.facts["replica_share"].excess_ms
    if not enough(case, claims):
        return None
    name = printable(hot.name)
    mine = np.isin(
        case.rows["trace_key"].to_numpy(),
        case.calls.frame.filter(case.calls.frame["engine_instance"] == hot.name)[
            "trace_key"
        ].to_numpy(),
    )
    saved = sum(
        np.maximum(case.spent(stage) - case.tail.reference_ms.get(stage, 0.0), 0.0)
        for stage in ("queue", "decode", "prefill")
    )
    calm = min(now, key=lambda one: one.share)
    fix = bound_fix(
        case,
        "least_work",
        "Route by least outstanding work",
        f"{name} has {say_ratio(hot.share)} of the work, {printable(calm.name)} {say_ratio(calm.share)}: let session or prefix affinity give "
        "way when a replica has more than its share of calls in flight.",
        "its requests wait no longer than usual",
        np.where(mine, saved, 0.0),
        whatif="routing",
        parameters={"policy": "least_load"},
    )
    return named(
        case,
        RULE,
        max(claims, key=lambda stage: claims[stage]),
        claims,
        Action(
            "platform",
            f"Lower the weight of {name}, or switch the router from affinity to least connections.",
            "Restore the router's policy.",
            fix,
        ),
        headline=f"{name} has {say_ratio(hot.share)} of the work of {len(now)} replicas (Gini {uneven:.2f}, {was:.2f} before) and a mean wait of "
        f"{say_ms(hot.mean_wait_ms)}, {printable(calm.name)} one of {say_ms(calm.mean_wait_ms)}",
        because=f"{name} gets {say_ratio(hot.share)} of the work while other replicas have spare capacity",
        evidence={
            "instance": name,
            "gini_now": uneven,
            "gini_before": was if before else None,
            "share_of_slow": on_slow,
            "share_of_all": on_all,
            "replicas": [
                {
                    "instance": printable(one.name),
                    "n": one.calls,
                    "load_share": one.share,
                    "wait_ms": one.mean_wait_ms,
                    "pace": float(np.exp(one.pace)),
                }
                for one in now
            ],
        },
        service=name,
        among=case.tail.tail_index[mine[case.tail.tail_index]],
    )


def waits_stand_out(hot: Replica, every: list[Replica]) -> bool:
    """Return whether the requests of one replica wait many times as long as those of any other."""
    longest = max((one.mean_wait_ms for one in every if one.name != hot.name), default=0.0)
    return hot.mean_wait_ms >= max(MIN_WAIT_MS, MIN_WAIT_RATIO * longest)
