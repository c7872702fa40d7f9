"""hot_replica: the load is uneven: requests wait on the busiest replica while others have spare capacity.

Detects
    Shares of engine work that became uneven (Gini above 0.2 and above the baseline's; a lower one if the waits
    of the busiest replica stand out), and a replica with more than its share whose requests wait longer or
    decode slower, at the same pace per batch size as its peers. If the shares were equally uneven before: waits
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
    Gini of token load above 0.2: own default. Near full load a tenth more than its share is too much for a
    replica. So each of these replaces the Gini (own defaults): a mean wait of at least 20 ms that is four times
    every other's, with more calls than chance gives (their former scatter shows the chance: calls that go in
    turn scatter less); or half as clearly more calls with by far the longest waits in every quarter of the
    period; or 1.3 times an even share, equally clearly beyond chance, with waits twice every other's. Length-
    and load-aware routing lowers P99 by 25 to 69 %: published range.
"""

from typing import Final

import numpy as np

from overrun.analysis.diagnosis.rule_answer import Action, bound_fix, enough, named
from overrun.analysis.evidence.calls import Calls
from overrun.analysis.evidence.case import Case, too_few_breaches
from overrun.analysis.evidence.fleet import (
    AS_FAST,
    MIN_ENGINES,
    NEAR_OVER,
    Replica,
    gini,
    lag_at_equal_batch,
    replicas,
    share_on,
)
from overrun.analysis.words.finding import (
    Diagnosis,
    NotEnoughData,
    RuledOut,
    printable,
    say_ms,
    say_ratio,
)

RULE: Final = "hot_replica"
MIN_GINI: Final = 0.2
# More than this many times an even share, and the Gini up by this much over the baseline's; own defaults.
MIN_OVER: Final = 1.3
MIN_RISE: Final = 0.08
# Mean wait in ms, and how many times every other replica's, from which the waits show one that has too much; the share that it must have then,
# over an even one and in standard deviations of a fair draw, and the rise of the Gini; own defaults.
MIN_WAIT_MS: Final = 20.0
MIN_WAIT_RATIO: Final = 4.0
NEAR_RISE: Final = 0.03
MIN_DEVIATIONS: Final = 4.0
# ... or fewer deviations where its waits are longer by this factor in each of so many parts of the period, and its pace no slower than this; own defaults.
LIKELY: Final = 2.0
PARTS: Final = 4
LONGEST: Final = 2.0
# How calls fell before tells what chance is: the scatter of their counts in runs of so many a replica, in so many runs at least and with so many
# standard errors of their variance more; never below half of that of a free draw, for a router in turn has none until one replica is restarted; own defaults.
RUN: Final = 10
MIN_RUNS: Final = 8
MIN_SCATTER: Final = 0.5
CERTAIN: Final = 2.0


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
    over = hot.share * len(now)
    # Of two replicas the Gini is at most a half: what matters is how far one is over its share.
    spread = (
        uneven >= MIN_GINI * (len(now) - 1) / len(now)
        and over >= MIN_OVER
        and (not before or uneven - was >= MIN_RISE)
    )
    # Near full load a little more than its share is too much: then the waits say so, if the share is more than chance.
    scatter = (
        dealt_out(case.calls_before, before) if case.calls_before is not None and before else 1.0
    )
    more = (
        over >= NEAR_OVER
        and deviations(hot, now, scatter) >= MIN_DEVIATIONS
        and (not before or uneven - was >= NEAR_RISE)
    )
    queues = waits_stand_out(hot, now) and (
        more
        or _too_much(case.calls, hot, now)
        or (
            deviations(hot, now) >= LIKELY
            and _always_longest(case.calls, case.slowest_model, hot, now)
        )
    )
    # ... or a share that is far from even and from chance, and was not before: its calls need not wait that much longer then.
    certain = (
        more
        and (not before or uneven - was >= MIN_RISE)
        and waits_stand_out(hot, now, LONGEST)
        and _too_much(case.calls, hot, now)
    )
    if not spread and not queues and not certain:
        return RuledOut(
            what=RULE,
            figure=f"the busiest of {len(now)} replicas has {say_ratio(hot.share)} of the work (Gini {uneven:.2f}, {was:.2f} before)",
        )
    on_slow, on_all = share_on(case.slow_calls, hot.name), share_on(case.calls, hot.name)
    claims = case.facts["replica_share"].excess_ms
    if not enough(case, claims):
        return None
    few = too_few_breaches(case)
    if few is not None:
        return few
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


def _too_much(calls: Calls, hot: Replica, every: list[Replica]) -> bool:
    """Return whether a replica that is as fast as its peers in batches like theirs clearly gets more work than they do, since whenever."""
    if hot.share * len(every) < MIN_OVER or deviations(hot, every) < MIN_DEVIATIONS:
        return False
    lag = lag_at_equal_batch(calls, hot.name)
    return lag is not None and lag < AS_FAST


def _always_longest(calls: Calls, of: str | None, hot: Replica, every: list[Replica]) -> bool:
    """Return whether a replica that is as fast as the others has the longest waits by far in every part of the period.

    Who is full all the time gets no more done than the others, whatever is sent there: its share of the work then hides what its queue shows.
    """
    if hot.pace - float(np.median([one.pace for one in every if one.name != hot.name])) >= np.log(
        AS_FAST
    ):
        return False
    start = calls.of("start_s")
    for part in np.array_split(np.argsort(start, kind="stable"), PARTS):
        waits = {
            one.name: one.mean_wait_ms
            for one in replicas(calls.where(np.isin(np.arange(len(calls)), part)), of)
        }
        if len(waits) < len(every) or waits[hot.name] < LONGEST * max(
            wait for name, wait in waits.items() if name != hot.name
        ):
            return False
    return True


def waits_stand_out(hot: Replica, every: list[Replica], ratio: float = MIN_WAIT_RATIO) -> bool:
    """Return whether the requests of one replica wait `ratio` times as long as those of any other."""
    longest = max((one.mean_wait_ms for one in every if one.name != hot.name), default=0.0)
    return hot.mean_wait_ms >= max(MIN_WAIT_MS, ratio * longest)


def deviations(hot: Replica, every: list[Replica], scatter: float = 1.0) -> float:
    """Return how many standard deviations the calls of a replica are above an even share, if calls fell on replicas by chance (`scatter` of its deviation)."""
    n, fair = sum(one.calls for one in every), 1.0 / len(every)
    return float((hot.calls - n * fair) / (scatter * np.sqrt(max(n * fair * (1.0 - fair), 1e-9))))


def dealt_out(calls: Calls, every: list[Replica]) -> float:
    """Return how much of chance's standard deviation the calls of these replicas scattered with at most (0.5 to 1), from runs of calls in their order.

    A router that deals calls out in turn gives a replica hardly one more than its share, so half a minute shows that it no longer does.
    """
    codes, names = calls.codes("engine_instance"), calls.names("engine_instance")
    ordered = codes[np.argsort(calls.of("start_s"), kind="stable")]
    ordered = ordered[np.isin(ordered, [names.index(one.name) for one in every])]
    runs = np.array_split(ordered, max(1, len(ordered) // (RUN * len(every))))
    if len(runs) < MIN_RUNS:
        return 1.0
    counts = np.array(
        [[int((run == code).sum()) for code in np.unique(ordered)] for run in runs],
        dtype=np.float64,
    )
    size, share = counts.sum(axis=1, keepdims=True), counts.sum(axis=0) / counts.sum()
    variance = ((counts - size * share) ** 2 / (size * share * (1.0 - share))).mean()
    freedom = len(runs) * (len(every) - 1)
    return float(
        np.clip(np.sqrt(variance * (1.0 + CERTAIN * np.sqrt(2.0 / freedom))), MIN_SCATTER, 1.0)
    )
